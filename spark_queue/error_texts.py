"""Texts of all errors: for each code what happened, with its values, why, and what to do next. One table for each class."""

from __future__ import annotations

#: A definition, key, option or name is wrong.
CONFIG: dict[str, str] = {
    "UNKNOWN_KEY": ("Unknown key '{key}' in {where}.{nearest} `sparkq options` lists every key."),
    "UNKNOWN_OPTION": ("Unknown option '{option}' for {where}.{nearest} `sparkq options` lists every option."),
    "MISSING_OPTION": ("Option '{option}' is missing for {where}: {reason} Add .option(\"{option}\", …)."),
    "BAD_VALUE": ("'{key}' in {where} is {value!r}, but it must be {expected}. Correct the value."),
    "CONTRADICTORY_SETTINGS": ("{where}: {reason} Remove one of: {keys}."),
    "NO_PEERS": (
        "Journal '{path}' has no peers, so there is nothing to show. Name the instances that it pulls from as [peers.NAME] "
        "in its definitions, and run `sparkq apply`."
    ),
    "LOCAL_QUEUE_REPLICATED": (
        "Queue '{queue}' has ownership \"local\", so it cannot be pulled from peer '{peer}' (R102). Take it out of the peer's "
        'queues, or give it ownership "distributed" on every instance.'
    ),
    "SINK_FEATURE_UNSUPPORTED": (
        "Batches cannot be appended to table '{table}' without Spark, since that would not keep what the table promises: {what}. "
        'Nothing was appended. Let Spark write it with writer="spark", or use a table without it.'
    ),
    "SINK_COMMIT_UNSAFE": (
        "Spark's Delta commits to table '{table}' by a look and a rename, so two drivers could both believe that they did. Nothing "
        'was written. Leave writer="spark" out, use a store with an atomic rename or conditional puts, or configure a log store '
        "for several drivers as spark.delta.logStore.{scheme}.impl. Where this driver alone commits to the table, as on a laptop, "
        "say single_driver=True."
    ),
    "SINK_RETENTION_SHORT": (
        "Table '{table}' forgets transaction ids after {key} = {value}, so a batch that is in doubt for longer could not be told "
        "from one that never landed. Nothing was appended. Set it to {days} days or more, or unset it."
    ),
    "SINK_IN_JOURNAL": (
        "Table '{table}' and journal '{path}' stand in each other's folder, where either would clean up files of the other. "
        "Choose another path for the table."
    ),
    "MESSAGE_TYPE_DIFFERS": (
        "Column '{column}' of message type '{message_type}' is {found} on peer '{peer}' and differs here, so its messages "
        "are not pulled. Give the message type the same columns on both instances; where each has stored its own, define a new one."
    ),
    "DEFINITIONS_UNREADABLE": (
        "The definitions in '{path}' cannot be read: {reason} They are TOML in UTF-8. Correct the file, or the path."
    ),
    "STORES_UNREADABLE": (
        "The file of stores '{file}' cannot be read: {reason} It is TOML in UTF-8, with a table of storage options, as texts, for "
        "each store, named by the beginning of its paths. Correct the file."
    ),
    "NAME_INVALID": (
        "The {what} name {name!r} is not allowed: names are 1 to 249 characters of A-Z a-z 0-9 . _ - and neither '.' nor "
        "'..', because they become paths and labels. Choose another name."
    ),
    "NAME_CASE_CLASH": (
        "The {what} names {name!r} and {other!r} differ only in case, which some file systems cannot tell apart. Rename one."
    ),
    "UNKNOWN_QUEUE": ("The journal has no queue '{queue}'.{nearest} `sparkq status` lists the queues."),
    "UNKNOWN_PEER": ("The journal has no peer '{peer}'.{nearest} `sparkq peers status` lists the peers."),
    "UNKNOWN_MESSAGE_TYPE": ("The journal has no message type '{message_type}'.{nearest}"),
    "UNKNOWN_TOPIC": (
        "No message type takes topic '{topic}'.{nearest} Add it to the `topics` of a message type and run `sparkq apply`."
    ),
    "QUEUE_TAKES_NO_PUBLISH": (
        "Queue '{queue}' holds dead letters, which enter it by reference only. Publish to a topic, or to the queue they come from."
    ),
    "TOPIC_CLAIMED_TWICE": (
        "Topic '{topic}' is claimed by message types '{first}' and '{second}', so a message would have two homes. Keep it in one."
    ),
    "TOPIC_AMBIGUOUS": (
        "Topic '{topic}' matches patterns of message types {message_types}, so its home is not clear. "
        "Narrow one of the patterns, or list the topic by name in one type."
    ),
    "RESERVED_COLUMN": (
        "Column '{column}' of message type '{message_type}' is reserved: each delivered row has one of that name beside the "
        'message\'s own. Give yours another name; where rows come in with this one, say `rename = {{{column} = "{suggested}"}}` '
        "for the message type. Reserved are {reserved} (reference/columns.md)."
    ),
    "MESSAGE_TYPE_CHANGED": (
        "Message type '{message_type}' cannot be changed that way: {reason} Only nullable columns may be appended; "
        "for anything else define a new message type."
    ),
    "DEFINITION_IN_USE": ("{what} '{name}' cannot be dropped or changed in that way: {reason} {next_step}"),
    "EXPRESSION_INVALID": ("The {what} expression {text!r} is wrong {place}: {reason} {next_step}"),
    "EXPRESSION_UNSUPPORTED": ("The {what} expression {text!r} is not accepted {place}: {reason} {next_step}"),
    "EXTRA_MISSING": (
        "{what} needs package {package}, which is not installed. Add the extra that brings it to what is installed: "
        "pip install 'spark-queue[{extra}]'."
    ),
    "DELTA_JARS_MISSING": ("Spark needs Delta's jars, and they are not here: {reason} {next_step}"),
    "JAVA_UNSUITABLE": (
        "Spark needs Java 17 or 21, and {found}. Install one of them, and let the environment variable JAVA_HOME name its "
        "directory: Spark looks there first, and then on the PATH."
    ),
    "STORAGE_OPTION_UNSUPPORTED": ("Storage option '{option}' is not supported: {reason} Supported: {supported}."),
}

#: A call does not fit the data, the queue or its mode.
CALLER: dict[str, str] = {
    "UNKNOWN_COLUMN": ("There is no column '{column}' in {where}.{nearest} Columns: {columns}."),
    "COLUMN_TYPE_MISMATCH": (
        "Column '{column}' of {where} is {found} in row {row}, but the message type declares {expected}, and a value is stored "
        "only if nothing of it is lost: {reason} Correct it, or cast it before publishing."
    ),
    "COLUMN_TWICE": (
        "Column '{column}' of {where} is given twice, as '{first}' and as '{second}': upper and lower case do not tell columns "
        "apart, as in Spark. Drop or rename one."
    ),
    "TOPIC_MISSING": ("No topic for {rows} row(s): give `topic`, or a `topic` column without NULLs. Nothing was published."),
    "ROWS_UNREADABLE": ("{what} is not {expected}.{next_step} Nothing was published."),
    "TOPIC_OF_OTHER_TYPE": (
        "Topic '{topic}' belongs to message type '{found}', but this publish goes to '{message_type}', and one publish is one "
        "commit to one type. Publish the rows of each type separately. Nothing was published."
    ),
    "SEQUENCE_MISSING": ("Publisher '{publisher}' needs {what} to number its rows. {reason} Nothing was published."),
    "SEQUENCE_NOT_ASCENDING": (
        "Publisher '{publisher}': sequence {sequence} follows {previous} in one batch, but sequences must ascend strictly, "
        "or the duplicate rule would drop rows. Sort by the sequence column. Nothing was published."
    ),
    "SEQUENCE_BEHIND": (
        "Publisher '{publisher}': the batch starts at sequence {first}, behind the persisted {persisted}, ends at {last}, "
        "and repeats no batch in the log. Its new rows might be other messages under used numbers. Continue from "
        "{persisted} + 1. Nothing was published."
    ),
    "SEQUENCE_ELSEWHERE": (
        "Publisher '{publisher}' has used its numbers up to {last}, but not for topic '{topic}'. Its numbers count in all topics "
        "of message type '{message_type}', so these rows would pass for a repeat and be dropped. Publish them under another "
        "publisher name, or numbered from {persisted} + 1 on. Nothing of this commit was published."
    ),
    "CHECKPOINT_BEHIND": (
        "Batch {number} of query {name} was published to {target} before, and this batch {number} is another one: the checkpoint "
        "has gone back behind what the query published, which ends with batch {newest}. Some of its rows may be in the journal, "
        "others not, so nothing was published. Put back the checkpoint that knows batch {newest}, or start with an empty one and "
        "let the source begin after what is in the journal. With `publisher` and `sequenceColumn` such rows are told apart by "
        "themselves."
    ),
    "TRANSACTION_USED": (
        "txnVersion {number} of txnAppId '{name}' was published to {target} before, {reason} Nothing was published. For rows that "
        "are new give a txnAppId that no other write has: one for each data interval, or for each DataFrame of a batch function. "
        "If they are those rows computed anew, they are in the journal; with txnCompare=version such a repeat is not compared."
    ),
    "PUBLISHER_NAME_IN_USE": (
        "Publisher name '{publisher}' was opened by another process (number {newest}, this one is {own}). One name "
        "belongs to one process at a time (R98). Open it again here, or use another name. Nothing was published."
    ),
    "PUBLISHER_IDENTITY_UNKNOWN": (
        "A repeated micro-batch of this stream could not be told from a new one: {reason} Set `publisher` and `sequenceColumn`. "
        "Nothing was published."
    ),
    "UNSUPPORTED_WRITE": ("{what} is not possible: {reason} {next_step}"),
    "UNSUPPORTED_READ": ("{what} is not possible: {reason} {next_step}"),
    "ACK_MODE_MISMATCH": (
        "Subscription '{subscription}' of queue '{queue}' uses ackMode {ack_mode}, but {what} needs {needed}. {next_step}"
    ),
    "UNKNOWN_BOOKMARK": ("Queue '{queue}' was given {count} bookmark(s) that {reason}, first {bookmark}. {next_step}"),
    "OUTCOME_INVALID": ("Outcomes of queue '{queue}': {reason} Nothing was settled. {next_step}"),
    "BATCH_FUNCTION_ENDED": (
        "The batch function of queue '{queue}' ended by {what}, which ends the thread that Spark waits for, and not the query. "
        "Return from the function, or raise an exception, and end the query by its own stop()."
    ),
    "SINK_SCHEMA_DIFFERS": ("Rows cannot be appended to '{table}' as they are: {reason} Nothing was appended. {next_step}"),
    "SINK_CHANGED": (
        "Table '{table}' was changed while a batch was staged for it, so the batch was not appended. It fails, and the next run of "
        "the stream appends it to the table as it is now. Nothing to do."
    ),
    "SINK_READABLE": (
        "Table '{table}' can be read, so what stands there decides about attempt {attempt} of subscription '{subscription}' of "
        "queue '{queue}', and not --force: a wrong word would lose its messages or append them twice. Nothing was changed. Run "
        "`sparkq decide` without --force. If you give the table up, delete it or move it away first."
    ),
    "UNKNOWN_ATTEMPT": (
        "Subscription '{subscription}' of queue '{queue}' has made no attempt {attempt} to append to a sink; the last is {last}. "
        "`sparkq decide` lists those that are in doubt."
    ),
    "UNKNOWN_SUBSCRIPTION": (
        "Queue '{queue}' has no subscription '{subscription}'.{nearest} It begins with the first start of its stream."
    ),
    "JOURNAL_FORKED": (
        "Process {pid} was forked from process {parent}, which had used spark_queue or delta-rs before, and what that one holds "
        "open does not work in a copy. Nothing was done. Start the process by 'spawn' or 'forkserver' instead of 'fork', as in "
        'multiprocessing.get_context("spawn"), or use a journal for the first time after the fork.'
    ),
    "MESSAGE_TOO_LARGE": ("A message of {size} bytes is over the limit of {limit} bytes. {next_step}"),
    "RECORD_UNKNOWN": ("{what} {value} is {reason}. The journal knows {first} to {last}."),
    "TIMESTAMP_AMBIGUOUS": (
        "Timestamp '{value}' of {where} has no offset: it could be {utc} or {local}. Write the offset, as in either reading."
    ),
    "FILE_UNREADABLE": ("'{file}' cannot be read as {format}: {reason} {next_step}"),
    "OUTPUT_FAILED": (
        "What this command prints could not be written: {reason}. It may have taken effect. "
        "Make room or send its output elsewhere, then look with `sparkq status`."
    ),
}

#: The caller does not hold what it names.
LEASE: dict[str, str] = {
    "SUBSCRIPTION_TAKEN": (
        "Subscription '{subscription}' of queue '{queue}' was taken over by a newer reader (incarnation {newest}, this one "
        "is {own}). Each running query needs a subscription name of its own; two queries on one checkpoint and a "
        "self-join of one stream share a name. Stop one, or join inside foreachBatch."
    ),
    "STALE_CALL": (
        "Call {call} of subscription '{subscription}' is older than call {newest}, which arrived before it. A delayed "
        "call is ignored; nothing to do."
    ),
    "STALE_RUN": (
        "A batch of subscription '{subscription}' of queue '{queue}' belongs to run {run}, but {reason}. Its outcomes were "
        "not recorded; the rows are delivered again by the newer run."
    ),
    "SINK_IN_DOUBT": (
        "Attempt {attempt} of subscription '{subscription}' of queue '{queue}' to append to '{table}' is in doubt: it may stand "
        "there by now. That has to be decided before {what}, and nothing was changed. The next run of its stream decides it, after "
        "the end of its lease any other stream of the queue that appends there, or you with `sparkq decide`."
    ),
    "SINK_LANDED": (
        "Attempt {attempt} of subscription '{subscription}' of queue '{queue}' stands in '{table}', and its messages are settled "
        "as was said when it was prepared. That rules out {what}, so nothing was changed. Nothing to do."
    ),
    "SINK_FENCED": (
        "Attempt {attempt} of subscription '{subscription}' of queue '{queue}' was fenced before it was committed to its sink, "
        "since its run seemed to be over. It stands nowhere. The batch fails, and its rows are read again; nothing to do."
    ),
    "SINK_ROWS_LOST": (
        "The batch of subscription '{subscription}' of queue '{queue}' has lost {count} message(s), first bookmark {bookmark}: its "
        "lease ended, and they are somebody else's by now, or done with. Nothing was appended. The batch fails, and is read again "
        "as it is now. Make `lease_period` longer where this comes often."
    ),
    "CHECKPOINT_FOREIGN": (
        "The checkpoint names {what}, which is not {expected}. It was copied, edited, or belongs to a journal that "
        "was restored. Nothing was acknowledged. Start with an empty checkpoint, or point the query at its own journal."
    ),
    "LEASE_HELD": (
        "Message {bookmark} of queue '{queue}' is leased to '{holder}' until {leased_until}; with strict leasing only its "
        "holder may settle it (R38). Wait until the lease ends."
    ),
    "LEASE_SETTLED": (
        "{count} message(s) of queue '{queue}', first {bookmark}, cannot be given outcome '{outcome}': {reason}. Nothing was "
        "settled. {next_step}"
    ),
}

#: The stored journal is missing, damaged, newer, or was changed by a stranger.
JOURNAL: dict[str, str] = {
    "PEER_MISNAMED": (
        "Peer '{peer}' is {found}, so nothing is pulled from it: '{path}'. A peer has the name that its journal gives under "
        "[journal] instance. Correct the path, or the name."
    ),
    "BEACON_DOUBTED": (
        "Part of the beacon of peer '{peer}' is not believed: {reason} All else goes on. Find out who writes to that journal."
    ),
    "PUBLISHER_CLASH": (
        "Publisher '{publisher}' gave number {sequence} to two different messages on two instances; both are here, the later one "
        "as bookmark {bookmark}. One application at a time may use a publisher name, and a repeated number must mean the same "
        "message. Compare both, and give each publisher a name of its own."
    ),
    "PEER_REPLACED": (
        "Peer '{peer}' is now journal {found}, but was {expected} when it was last pulled. Correct its path. If that instance "
        "was made anew, run `sparkq peers reset {journal} {peer}`: then the new journal is read from its beginning."
    ),
    "JOURNAL_RESTORED": (
        "Peer '{peer}' has pulled {record} of the journal at '{path}', whose log does not have it: it was put back from a "
        "backup, or lost its end, before its record {since}. Nothing enters its shared topics, and its replicated queues do "
        "nothing, until somebody confirms that, since new messages would be taken for the lost ones. Make sure that no other copy "
        "of it is served, then run `sparkq mark-restored {path}`."
    ),
    "JOURNAL_UNCOMPARED": (
        "Messages enter the journal at '{path}' though its coordinator could not read peer '{peer}' yet, which may know more of it "
        "than it has. That matters only where the journal was put back from a backup, or lost its end: messages published now "
        "would then be taken for lost ones that '{peer}' has, and both may be lost. If it was put back, run `sparkq stop {path}`, "
        "and start it again once '{peer}' can be read. Otherwise nothing needs to be done: they are compared as soon as that is so."
    ),
    "PEER_RESTORED": (
        "Peer '{peer}' no longer has record {record}, which was pulled: it was put back from a backup, or lost its end. Nothing "
        "more is pulled from it until somebody runs `sparkq mark-restored` for its journal; if that finds no sign of it, add "
        "`--after {common}`."
    ),
    "RETURNING": (
        "This instance was away for so long that others may have claimed what it owns, so it delivers nothing of replicated "
        "queues before it has heard from each peer. That takes some seconds where all can be read: `sparkq peers status` tells "
        "what stands in the way. To go on without one that is lost, run `sparkq return JOURNAL --without PEER`: what it claimed "
        "may come twice."
    ),
    "PEER_LIVES": (
        "Peer '{peer}' is alive: it was heard from {heard_s} s ago. What it owns may be leased there, so nothing was claimed. Let "
        "it hand its messages over with `sparkq peers drain`; or stop its coordinator for good, and repeat this after {after_s} s."
    ),
    "DRAIN_STUCK": (
        "{transferred} message(s) were handed to peer '{peer}', and {count} of queue '{queue}' are still owned here: {reason} "
        "These stay here, and are delivered here. Repair it in the definitions, or drain to another peer, and repeat this."
    ),
    "PEER_REFUSED": (
        "Peer '{peer}' is not pulled further: {what} is refused, because {reason} What came before it is here, other peers are "
        "pulled, and nothing of this journal was changed. Run `sparkq verify` on the peer's journal, and restore it from a copy if "
        "it is damaged. If somebody you do not trust can write there, take the peer out of the definitions."
    ),
    "PEER_GAP": (
        "Peer '{peer}' let {count} message(s) of type '{message_type}' go before they were pulled, its bookmarks {bookmarks}: no "
        "queue there needed them any more, and it keeps them only for its [replication] keep. Nothing more is pulled from it "
        "until somebody accepts the loss: `sparkq peers skip {journal} {peer}`."
    ),
    "PEER_AWAY": (
        "Peer '{peer}' has no journal at '{path}' now, so nothing is read from it; what is known of it stays. Check that its store "
        "is mounted and reachable from here, and that the path in the definitions is right. Pulling goes on by itself once it "
        "is there. If the site is lost, choose one survivor, move the clients there, and let it take over: `sparkq "
        "proxied-transfer` (R112)."
    ),
    "SINK_UNREADABLE": (
        "Sink '{table}' cannot be read, so nobody can tell whether attempt {attempt} of subscription '{subscription}' of queue "
        "'{queue}' stands there: {reason} Its messages wait. Make the table readable: the next batch then decides, or `sparkq "
        "decide`. Where it is gone for good, say what became of it: `sparkq decide` with --landed or --fenced, and --force."
    ),
    "SINK_UNFENCED": (
        "Attempt {attempt} of subscription '{subscription}' of queue '{queue}' does not stand in '{table}', and may still land "
        "there, since its fence could not be written: {reason} Its messages wait. See to it that the table can be written, such as "
        "by room on its disk: the next batch then decides, or `sparkq decide`."
    ),
    "SINK_UNDECIDED": (
        "Attempt {attempt} of subscription '{subscription}' of queue '{queue}' to append to '{table}' is in doubt, its lease has "
        "ended, and nobody has decided: its messages wait. The next run of its stream decides, the next batch of any other stream "
        "of the queue that appends there, or you with `sparkq decide`."
    ),
    "NOT_A_JOURNAL": ("'{path}' is not a journal: {reason} Create one with `sparkq init`, or correct the path."),
    "JOURNAL_EXISTS": ("'{path}' already holds a journal. Use it, or choose another path."),
    "BACKUP_TARGET_TAKEN": (
        "Something is at '{path}' already, and a backup is made in an empty place. Nothing was copied. Name another one."
    ),
    "BACKUP_OVERTAKEN": (
        "'{file}' of '{path}' was gone before it was copied, and the copy needs it. Delete what is at '{copy}', and run the "
        "backup again. If that says the same, the journal lacks the file: `sparkq verify` tells what else it lacks."
    ),
    "JOURNAL_MISMATCH": (
        "This call is for journal {expected}, but '{path}' is journal {found}: it was deleted and made anew, or restored. "
        "Restart the job against the journal that it belongs to."
    ),
    "PROTOCOL_NEWER": "The journal at '{path}' uses {what}, which this version of spark_queue does not know. Upgrade spark_queue.",
    "JOURNAL_DAMAGED": (
        "The journal at '{path}' is damaged: {what}. Nothing was changed. Restore the file from a copy; `sparkq verify` names "
        "everything that is wrong. {reason}"
    ),
    "LOG_GAP": (
        "The log of '{path}' lacks version {version}: '_delta_log/{version:020}.json' is gone, though later entries exist. Order "
        "cannot be known without it, so reading stops before it. Restore that file; `sparkq verify` names everything that is wrong."
    ),
    "JOURNAL_REWRITTEN": (
        "Version {version} of '{path}' removed or rewrote message files and was not written by spark_queue ({operation}). "
        "Bookmarks would change their meaning, so delivery stops before it. Put the table's files back as they were at version "
        "{previous}, from a copy; never run OPTIMIZE, DELETE, UPDATE, MERGE or RESTORE on a message table."
    ),
    "JOURNAL_ENTRY_REPEATED": (
        "Version {version} of the log of message type '{message_type}' adds {files} file(s) that an earlier entry had added, as "
        "where an entry was copied by hand or by a tool. Their messages count once, as for every reader of the table: nothing is "
        "lost or doubled. Leave the entry where it is, since the log must have no gap, and keep whatever copied it away from the "
        "journal. This is told until the entry is cleaned away."
    ),
    "JOURNAL_FOREIGN_APPEND": (
        "{files} file(s) in the table of message type '{message_type}' were appended by other software: they have no bookmarks "
        "and enter no queue. Publish their rows through spark_queue, and write to message tables with nothing else."
    ),
    "MESSAGE_FILE_MISSING": (
        "Message file '{file}' of '{path}' cannot be read: {reason} Its messages stay in the queue. Restore the file."
    ),
    "MESSAGE_FILE_CORRUPT": (
        "Message file '{file}' of '{path}' is damaged: {reason} Its messages stay in the queue. Restore the file from a copy; "
        "`sparkq verify` names every file that is wrong."
    ),
    "QUEUE_SET_ASIDE": (
        "Queue '{queue}' is set aside: {reason} Nothing of it is lost, and nothing is granted; the other queues go on. Report what "
        "it says, upgrade to a version that mends it, and run `sparkq revive JOURNAL {queue}`."
    ),
    "EXPRESSION_UNUSABLE": (
        "The {what} expression {text!r} over message type '{message_type}' was accepted before, and cannot be evaluated now: "
        "{reason} No message was passed over. {next_step}"
    ),
    "MESSAGES_RETIRED": (
        "Messages {first} to {last} of message type '{message_type}' no longer have a body: they were older than the journal's "
        "`retention`, and no queue needed them. The first message that is kept after them is {kept}. {next_step}"
    ),
    "STORE_UNSAFE": (
        "The store under '{path}' let one key be created twice, so two writers could overwrite each other. "
        "Use a local disk, or an object store with conditional puts."
    ),
    "SINK_FAILED": (
        "Table '{table}', to which batches are appended, cannot be used: {reason} The next run of the stream finds out what was "
        "committed to it. Check the store and the table, then start the stream again."
    ),
    "STORE_FAILED": ("Storage under '{path}' failed while {doing}: {reason} Nothing half-done is visible. {next_step}"),
    "PUBLISH_CONTENDED": (
        "Publishing to '{path}' lost {attempts} races in a row to other writers. Nothing was published. Publish "
        "larger batches, or retry."
    ),
}


#: The caller may not do that.
ACCESS: dict[str, str] = {
    "NOBODY_ADMINISTERS": (
        "None of the principals {principals} may administer the journal permanently, so nobody could change them any more. "
        "Give one that never expires the right 'administer'."
    ),
    "ACCESS_DENIED": (
        "Principal '{principal}' has no right '{right}' on {what}. Ask an administrator of the journal for it, or call with the "
        "token of a principal that has it."
    ),
    "TOKEN_OF_NOBODY": (
        "Your token belongs to no principal of this journal, so it has no right '{right}' on {what}. Name the file of another "
        "token with --token-file, or in SPARKQ_TOKEN_FILE."
    ),
    "SUBSCRIPTION_OF_OTHER": (
        "Subscription '{subscription}' of queue '{queue}' belongs to another principal than '{principal}'. Take another name, or "
        "have somebody with the right 'change' unsubscribe it."
    ),
    "TOKEN_EXPIRED": (
        "The tokens of principal '{principal}' expired at {expired_at}. Ask an administrator of the journal for a new one: "
        "`sparkq token new {principal}`."
    ),
    "TOKEN_WITHDRAWN": (
        "The token of principal '{principal}' was taken out of the definitions. Call with its new token, or ask an administrator "
        "of the journal for one: `sparkq token new {principal}`."
    ),
}

#: No coordinator could be reached, or one may not serve here and now.
COORDINATOR: dict[str, str] = {
    "COORDINATOR_UNAVAILABLE": (
        "The coordinator of '{path}' could not be reached or started: {reason} `sparkq doctor` finds out why; its log is {log}."
    ),
    "COORDINATOR_ELSEWHERE": (
        "The coordinator of '{path}' runs on another host: process {pid} on '{host}', at {address}, last heard from {age_s} s ago. "
        "It only serves its own host. Run `sparkq serve` there with TLS and point jobs at it with option 'coordinator', or end it "
        "there with `sparkq stop`."
    ),
    "COORDINATOR_UNTRUSTED": (
        "The coordinator of '{path}' is at {address}, and its certificate is not trusted here. Name its root in SPARKQ_TLS_ROOTS."
    ),
    "COORDINATOR_SERVES": (
        "Another coordinator serves '{path}' already, at {address}; nothing was started. End that one with `sparkq stop`, or run "
        "`sparkq serve --standby`, which waits and takes over when it ends."
    ),
    "COORDINATOR_STANDS_BY": (
        "The coordinator that was asked stands by: it does not serve '{path}' while another one does. Name all of them in "
        "'coordinator', such as a:7337,b:7337; the one that serves is found."
    ),
    "COORDINATOR_RECOVERING": ("The coordinator of '{path}' is still reading its log, or those of its peers. Try again shortly."),
    "REPLICATION_PENDING": (
        "The {rows} row(s) are published, but within {timeout} only {found} of {wanted} peer(s) have pulled them: {reason} They "
        "are pulled as soon as that is possible. Publish them again only under the same publisher name and numbers."
    ),
    "COORDINATOR_DEPOSED": (
        "Coordinator epoch {epoch} of '{path}' is over: {reason}. Nothing it did not commit counts. A newer one serves."
    ),
    "CLOCK_SKEW": (
        "The last record of '{path}' is {ahead_s} s ahead of this host's clock, so leases and expirations would be wrong. "
        "Set the clock, or run `sparkq serve --accept-clock`."
    ),
    "UNAUTHENTICATED": (
        "The coordinator at {address} refused the token. Name a file with its user's token, or a principal's, in SPARKQ_TOKEN_FILE."
    ),
    "TOKEN_OF_OTHER_JOURNAL": (
        "The token from {source} is for other journals than '{path}', and is sent to no other. If you trust this journal, add a "
        "line there: the token that it gave you, a space, and the journal as you name it."
    ),
    "TOKEN_NAMES_NO_JOURNAL": (
        "The token of a principal was not sent to {address}: this address stands in '{path}', which others may have written, and "
        "the token does not say which journal it is for. In its file, or in SPARKQ_TOKEN, write the journal behind it, as in "
        "`TOKEN {path}`; or name the address yourself as 'coordinator'."
    ),
    "TOKEN_FILE_UNSAFE": (
        "The token file '{file}' {problem}, so somebody else could act as you or read your queues. Check who wrote it, "
        "then run `chmod 600` on it, or delete it: the next start makes a new one."
    ),
    "FRAME_TOO_LARGE": ("A call of {size} bytes is over the limit of {limit} bytes. Settle fewer rows at once."),
    "FRAME_MALFORMED": ("A call could not be understood: {reason} Use one version of spark_queue on both sides."),
    "USER_DIRECTORY_UNUSABLE": (
        "The directory '{directory}' cannot be used for the token, logs and locks of coordinators: {reason} Set the environment "
        "variable {variable} to a directory that this user may write to."
    ),
    "ADDRESS_UNUSABLE": (
        "No coordinator can listen on {address}: {reason} Free the address, or give another one with --bind; port 0 finds one."
    ),
    "ADDRESS_UNSAFE": (
        "Serving on {address} would expose the queue beyond this host: {reason} Give --tls-cert, --tls-key and a token."
    ),
    "INTERNAL": ("An invariant did not hold: {what}. Nothing was committed. Please report it with the journal's `sparkq verify`."),
}
