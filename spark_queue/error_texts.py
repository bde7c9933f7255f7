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
        "Journal '{path}' has no peers, so there is nothing to show. Define the instances that it pulls from as [peers.NAME], and "
        "run `sparkq apply`."
    ),
    "LOCAL_QUEUE_REPLICATED": (
        "Queue '{queue}' has ownership \"local\", so it cannot be pulled from peer '{peer}' (R102). Take it out of the peer's "
        'queues, or give it ownership "distributed" on every instance.'
    ),
    "SINK_FEATURE_UNSUPPORTED": (
        "Batches cannot be appended to table '{table}' without Spark, since the table has a feature that only Spark keeps: {what}. "
        'Nothing was appended. Let Spark write it with writer="spark", or use a table without that feature.'
    ),
    "SINK_COMMIT_UNSAFE": (
        "Spark's Delta commits to table '{table}' by a check and a rename, so two drivers could both believe that they had "
        'committed. Nothing was written. Leave writer="spark" out, use a store with an atomic rename or conditional puts, or '
        "configure a log store for several drivers as spark.delta.logStore.{scheme}.impl. If no other driver commits to the table, "
        "as on a laptop, set single_driver=True."
    ),
    "SINK_RETENTION_SHORT": (
        "Table '{table}' keeps transaction ids only for {key} = {value}, so a batch that is in doubt for longer could not be told "
        "from one that never landed. Nothing was appended. Set it to {days} days or more, or unset it."
    ),
    "SINK_IS_SOURCE": (
        "Table '{table}' is followed by message type '{message_type}' of queue '{queue}', so each row that a batch appended to it "
        "would come back as a message, without end. Nothing was appended. Choose another table."
    ),
    "TABLE_NAME_UNKNOWN": (
        "Table '{table}' in {where} is named as by a catalog, and its location cannot be found: {reason} Nothing was changed. Do "
        "this where a Spark session of that catalog is active, or name the location, which `DESCRIBE DETAIL {table}` shows; a "
        "directory of this name is './{table}'."
    ),
    "TABLE_COLUMNS_DIFFER": (
        "Message type '{message_type}' cannot follow table '{table}' by these columns: {reason} Correct the declaration, or leave "
        "`columns` out to take those of the table; where the message type has others already, define one of another name."
    ),
    "SINK_IN_JOURNAL": (
        "Table '{table}' is inside journal '{path}', or around it, so either would delete files of the other. Choose another path "
        "for the table."
    ),
    "MESSAGE_TYPE_DIFFERS": (
        "Column '{column}' of message type '{message_type}' is {found} on peer '{peer}' and differs here, so its messages are not "
        "pulled. Give the message type the same columns on both instances; if both have stored messages, define a new one."
    ),
    "DEFINITIONS_UNREADABLE": (
        "The definitions in '{path}' cannot be read: {reason} They are TOML in UTF-8. Correct the file, or the path."
    ),
    "STORES_UNREADABLE": (
        "The file of stores '{file}' cannot be read: {reason} It is TOML in UTF-8, with a table of storage options, as texts, for "
        "each store, named by the prefix of its paths. Correct the file."
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
        "Queue '{queue}' is a dead-letter queue, which messages enter by reference only. Publish to a topic, or to the queue they "
        "come from."
    ),
    "TOPIC_FOLLOWED": (
        "Topic '{topic}' is of message type '{message_type}', which follows table '{table}': its messages are the rows that are "
        "appended there, so nothing can be published to it. Append the rows to that table, or publish to another topic."
    ),
    "TOPIC_CLAIMED_TWICE": (
        "Topic '{topic}' is claimed by message types '{first}' and '{second}', but a topic belongs to one. Keep it in one of them."
    ),
    "TOPIC_AMBIGUOUS": (
        "Topic '{topic}' matches patterns of message types {message_types}, so its message type is ambiguous. Narrow one of the "
        "patterns, or list the topic by name in one type."
    ),
    "RESERVED_COLUMN": (
        "Column '{column}' of message type '{message_type}' is reserved: every delivered row has a column of that name. Give yours "
        'another name; if published rows use this one, set `rename = {{{column} = "{suggested}"}}` for the message type. Reserved: '
        "{reserved} (reference/columns.md)."
    ),
    "MESSAGE_TYPE_CHANGED": (
        "Message type '{message_type}' cannot be changed that way: {reason} Only nullable columns may be appended. If it never had "
        "a message, it may begin anew: apply the definitions without it and its queues (`--remove` names each queue), put them "
        "back with the change, and apply them again. Otherwise define a message type of another name."
    ),
    "DEFINITIONS_CHANGED": (
        "Other definitions were applied while these were compared with those before them, and would be undone in part. Nothing was "
        "changed. `sparkq log JOURNAL --people` shows by whom: bring their changes into yours, and apply again."
    ),
    "DEFINITION_IN_USE": ("{what} '{name}' cannot be dropped or changed in that way: {reason} {next_step}"),
    "EXPRESSION_INVALID": ("The {what} expression {text!r} is wrong {place}: {reason} {next_step}"),
    "EXPRESSION_UNSUPPORTED": ("The {what} expression {text!r} is not accepted {place}: {reason} {next_step}"),
    "EXTRA_MISSING": (
        "{what} needs package {package}, which is not installed. Install the extra that includes it: pip install "
        "'spark-queue[{extra}]'."
    ),
    "DELTA_JARS_MISSING": ("Spark needs Delta's jars, and they are missing: {reason} {next_step}"),
    "JAVA_UNSUITABLE": (
        "Spark needs Java 17 or 21, and {found}. Install one of them, and set the environment variable JAVA_HOME to its directory: "
        "Spark looks there first, then on the PATH."
    ),
    "STORAGE_OPTION_UNSUPPORTED": ("Storage option '{option}' is not supported: {reason} Supported: {supported}."),
}

#: A call does not fit the data, the queue or its mode.
CALLER: dict[str, str] = {
    "UNKNOWN_COLUMN": ("There is no column '{column}' in {where}.{nearest} Columns: {columns}."),
    "COLUMNS_APPENDED": (
        "Message type '{message_type}' was given {columns} after this stream was loaded, so later rows would come without their "
        "values. Nothing more is delivered. Load the stream anew, and start the query from its checkpoint. A stream that should go "
        "on without new columns names those that it reads, by option `columns`."
    ),
    "COLUMN_TYPE_MISMATCH": (
        "Column '{column}' of {where} is {found} in row {row}, but the message type declares {expected}, and values are stored "
        "only without loss: {reason} Correct it, or cast it before publishing."
    ),
    "COLUMN_TWICE": (
        "Column '{column}' of {where} is given twice, as '{first}' and as '{second}': column names are case-insensitive, as in "
        "Spark. Drop or rename one."
    ),
    "TOPIC_MISSING": ("No topic for {rows} row(s): give `topic`, or a `topic` column without NULLs. Nothing was published."),
    "MESSAGE_TYPE_RENEWED": (
        "Message type '{message_type}' was dropped, or defined anew with other columns, after this publish was planned. Nothing "
        "was published. Publish again by the definitions that hold."
    ),
    "ROWS_UNREADABLE": ("{what} is not {expected}.{next_step} Nothing was published."),
    "TOPIC_OF_OTHER_TYPE": (
        "Topic '{topic}' belongs to message type '{found}', but this publish goes to '{message_type}', and each publish is one "
        "commit to one type. Publish the rows of each type separately. Nothing was published."
    ),
    "REPEAT_MOVED": (
        "It is unknown whether the last rows of publisher '{publisher}' arrived in message type '{known}', and the topic belongs "
        "to '{message_type}' by now, where they would be other messages. Nothing was published. Open the publisher again: its "
        "last_sequence tells whether they arrived."
    ),
    "SEQUENCE_MISSING": ("Publisher '{publisher}' needs {what} to number its rows. {reason} Nothing was published."),
    "SEQUENCE_NOT_ASCENDING": (
        "Publisher '{publisher}': sequence {sequence} follows {previous} in one batch, but sequences must ascend strictly, "
        "or the duplicate rule would drop rows. Sort by the sequence column. Nothing was published."
    ),
    "SEQUENCE_BEHIND": (
        "Publisher '{publisher}': the batch starts at sequence {first}, behind the persisted {persisted}, ends at {last}, and "
        "repeats no batch in the log. Its new rows might be other messages that reuse old numbers. Continue from {persisted} + 1. "
        "Nothing was published."
    ),
    "SEQUENCE_ELSEWHERE": (
        "Publisher '{publisher}' has used its numbers up to {last}, but not for topic '{topic}'. Its numbers count in all topics "
        "of message type '{message_type}', so these rows would be taken for a repeat and dropped. Publish them under another "
        "publisher name, or number them from {persisted} + 1. Nothing was published."
    ),
    "CHECKPOINT_BEHIND": (
        "Query {name} has published a batch {number} to {target} before, and this batch {number} is a different one: the "
        "checkpoint is older than the last published batch, {newest}. Some of these rows may already be in the journal, so nothing "
        "was published. Restore the checkpoint that includes batch {newest}, or start with an empty one and let the source begin "
        "after the rows in the journal. With `publisher` and `sequenceColumn`, repeated rows are recognised with any checkpoint."
    ),
    "TRANSACTION_USED": (
        "txnVersion {number} of txnAppId '{name}' was published to {target} before, {reason} Nothing was published. For new rows, "
        "use a txnAppId of their own: one for each data interval, or for each DataFrame of a batch function. If they are the same "
        "rows computed again, they are in the journal already; with txnCompare=version such a repeat is not compared."
    ),
    "PUBLISHER_NAME_IN_USE": (
        "Publisher name '{publisher}' was opened by another process (number {newest}, this one is {own}). Only one process at a "
        "time may use a name (R98). Open it again here, or use another name. Nothing was published."
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
    "RECEIVER_CLOSED": ("The receiver of queue '{queue}' {reason}, so {what} is not possible. {next_step}"),
    "EVENT_LOOP_RUNNING": (
        "`process` runs a coroutine function in an event loop of its own, but this thread runs one already, as each cell of a "
        "notebook does. Nothing of queue '{queue}' was received. Write `await asyncio.to_thread(queue.process, fn, …)`: the "
        "function then runs in the loop of another thread. If it uses something of this loop, such as a connection, write "
        "`async with queue.receive(…) as messages`, and loop over them."
    ),
    "RECEIVER_FORKED": (
        "Process {pid} is a fork of process {parent}, and has a copy of its receiver of queue '{queue}'. The copy is dead: it has "
        "no threads, and the messages are the parent's. Nothing was settled. Make a receiver in the process that uses it."
    ),
    "BATCH_FUNCTION_ENDED": (
        "The batch function of queue '{queue}' ended by {what}, which ends the thread that Spark waits for, but not the query. "
        "Return from the function or raise an exception, and end the query with its stop()."
    ),
    "SINK_SCHEMA_DIFFERS": ("Rows cannot be appended to '{table}' as they are: {reason} Nothing was appended. {next_step}"),
    "SINK_CHANGED": (
        "Table '{table}' was changed while a batch was staged for it, so the batch was not appended. It fails, and the next run of "
        "the stream appends it to the changed table. Nothing to do."
    ),
    "SINK_READABLE": (
        "Table '{table}' can be read, so its content decides about attempt {attempt} of subscription '{subscription}' of queue "
        "'{queue}', not --force: a wrong answer would lose the messages or append them twice. Nothing was changed. Run `sparkq "
        "decide` without --force. If you no longer need the table, delete it or move it away first."
    ),
    "UNKNOWN_ATTEMPT": (
        "Subscription '{subscription}' of queue '{queue}' has no attempt {attempt} to append to a sink; the last is {last}. "
        "`sparkq decide` lists those that are in doubt."
    ),
    "UNKNOWN_SUBSCRIPTION": (
        "Queue '{queue}' has no subscription '{subscription}'.{nearest} A subscription begins when its stream first starts."
    ),
    "SEMANTICS_CHANGED": (
        "Queue '{queue}' has got other semantics since subscription '{subscription}' was begun, so nothing is granted to this "
        "start of it. Begin it again; a receiver does so by itself."
    ),
    "JOURNAL_FORKED": (
        "Process {pid} was forked from process {parent}, which had already used spark_queue or delta-rs, and their threads and "
        "connections do not survive a fork. Nothing was done. Start the process with 'spawn' or 'forkserver' instead of 'fork', as "
        'in multiprocessing.get_context("spawn"), or use no journal before the fork.'
    ),
    "MESSAGE_TOO_LARGE": ("A message of {size} bytes is over the limit of {limit} bytes. {next_step}"),
    "RECORD_UNKNOWN": ("{what} {value} is {reason}. The journal knows {first} to {last}."),
    "TIMESTAMP_AMBIGUOUS": (
        "Timestamp '{value}' of {where} has no offset: it could be {utc} or {local}. Add the offset, as in one of these."
    ),
    "FILE_UNREADABLE": ("'{file}' cannot be read as {format}: {reason} {next_step}"),
    "OUTPUT_FAILED": (
        "The output of this command could not be written: {reason}. The command may have taken effect. Free some space or redirect "
        "the output, then check with `sparkq status`."
    ),
}

#: The caller does not hold what it names.
LEASE: dict[str, str] = {
    "SUBSCRIPTION_TAKEN": (
        "Subscription '{subscription}' of queue '{queue}' was taken over by a newer reader (incarnation {newest}, this one is "
        "{own}). Each running query needs a subscription name of its own; two queries on one checkpoint share a name, and so do "
        "both sides of a self-join. Stop one, or join inside foreachBatch."
    ),
    "STALE_CALL": (
        "Call {call} of subscription '{subscription}' is older than call {newest}, which arrived first. Delayed calls are ignored; "
        "nothing to do."
    ),
    "STALE_RUN": (
        "A batch of subscription '{subscription}' of queue '{queue}' belongs to run {run}, but {reason}. Its outcomes were "
        "not recorded; the rows are delivered again by the newer run."
    ),
    "SINK_IN_DOUBT": (
        "Attempt {attempt} of subscription '{subscription}' of queue '{queue}' to append to '{table}' is in doubt: it may have "
        "landed there. That must be decided before {what}, so nothing was changed. The next run of its stream decides it; so does, "
        "once its lease ends, any other stream of the queue that appends there; or run `sparkq decide`."
    ),
    "SINK_LANDED": (
        "Attempt {attempt} of subscription '{subscription}' of queue '{queue}' landed in '{table}', and its messages have the "
        "outcomes that were prepared with it. That rules out {what}, so nothing was changed. Nothing to do."
    ),
    "SINK_FENCED": (
        "Attempt {attempt} of subscription '{subscription}' of queue '{queue}' was fenced before it was committed to its sink, "
        "since its run seemed to be over. It did not land. The batch fails, and its rows are read again; nothing to do."
    ),
    "SINK_ROWS_LOST": (
        "The batch of subscription '{subscription}' of queue '{queue}' has lost {count} message(s), first bookmark {bookmark}: its "
        "lease ended, and they have since been leased elsewhere or settled. Nothing was appended. The batch fails, and what is "
        "left of it is read again. If this happens often, make `lease_period` longer."
    ),
    "CHECKPOINT_FOREIGN": (
        "The checkpoint names {what}, which is not {expected}. The checkpoint was copied or edited, or belongs to a restored "
        "journal. Nothing was acknowledged. Start with an empty checkpoint, or point the query at its own journal."
    ),
    "NOTHING_TO_PROVE": (
        "Checkpoint '{checkpoint}' has no committed batch, so there is nothing to prove: its query has not committed one yet, or "
        "the checkpoint does not exist. If a batch was committed, check the path."
    ),
    "LEASE_HELD": (
        "Message {bookmark} of queue '{queue}' is leased to '{holder}' until {leased_until}; with strict leasing only its "
        "holder may settle it (R38). Wait until the lease ends."
    ),
    "MESSAGE_LOST": (
        "Outcome '{outcome}' of message {bookmark} of queue '{queue}' came too late for lease {lease}: {reason}. It was not "
        "recorded. Make sure that handling a message twice does no harm; if this happens often, make `lease_period` or "
        "`lease_renewal_limit` longer."
    ),
    "LEASE_SETTLED": (
        "{count} message(s) of queue '{queue}', first {bookmark}, cannot be given outcome '{outcome}': {reason}. Nothing was "
        "settled. {next_step}"
    ),
}

#: The stored journal is missing, damaged, newer, or was changed by a stranger.
JOURNAL: dict[str, str] = {
    "PEER_MISNAMED": (
        "Peer '{peer}' is {found}, so nothing is pulled from it: '{path}'. A peer's name must be the `instance` under [journal] in "
        "its own definitions. Correct the path or the name."
    ),
    "BEACON_DOUBTED": (
        "Part of the beacon of peer '{peer}' is ignored: {reason} Everything else continues. Find out who writes to that journal."
    ),
    "PUBLISHER_CLASH": (
        "Publisher '{publisher}' gave number {sequence} to two different messages on two instances; both are here, the later one "
        "as bookmark {bookmark}. Only one application at a time may use a publisher name, and a repeated number must mean the same "
        "message. Compare the two messages, and give each publisher its own name."
    ),
    "PEER_REPLACED": (
        "Peer '{peer}' is now journal {found}, but was {expected} when it was last pulled. Correct its path. If that instance was "
        "recreated, run `sparkq peers reset {journal} {peer}` to read the new journal from its beginning."
    ),
    "JOURNAL_RESTORED": (
        "Peer '{peer}' has pulled {record} of the journal at '{path}', but the journal's log lacks it: the journal was restored "
        "from a backup, or its log lost its end, before its record {since}. Until this is confirmed, nothing enters its shared "
        "topics and its replicated queues stand still, since new messages would be taken for the lost ones. Make sure that no "
        "other copy of it is served, then run `sparkq mark-restored {path}`."
    ),
    "JOURNAL_UNCOMPARED": (
        "Messages enter the journal at '{path}' although its coordinator could not read peer '{peer}' yet, which may have pulled "
        "records that the journal has lost. That matters only if the journal was restored from a backup, or its log lost its end: "
        "messages published now would then be taken for lost ones that '{peer}' has, and both may be lost. If it was restored, run "
        "`sparkq stop {path}`, and start it again once '{peer}' can be read. Otherwise there is nothing to do: the logs are "
        "compared as soon as '{peer}' can be read."
    ),
    "PEER_RESTORED": (
        "Peer '{peer}' no longer has record {record}, which was pulled: it was restored from a backup, or its log lost its end. "
        "Nothing more is pulled from it until its journal is marked with `sparkq mark-restored`; if that finds no sign of it, add "
        "`--after {common}`."
    ),
    "RETURNING": (
        "This instance was away for so long that others may have claimed its messages, so it delivers nothing of replicated queues "
        "until it has heard from every peer. That takes some seconds if all can be read; `sparkq peers status` shows what stands "
        "in the way. To continue without a lost peer, run `sparkq return JOURNAL --without PEER`: messages that it claimed may be "
        "delivered twice."
    ),
    "PEER_LIVES": (
        "Peer '{peer}' is alive: it was last heard from {heard_s} s ago. Messages that it owns may be leased there, so nothing was "
        "claimed. Hand them over there with `sparkq peers drain`; or stop its coordinator for good, and repeat this after "
        "{after_s} s."
    ),
    "DRAIN_STUCK": (
        "{transferred} message(s) were handed to peer '{peer}', and {count} of queue '{queue}' are still owned here: {reason} "
        "These stay here, and are delivered here. Correct the definitions, or drain to another peer, and repeat this."
    ),
    "PEER_REFUSED": (
        "Pulling from peer '{peer}' has stopped: {what} is refused, because {reason} Everything before it was pulled, other peers "
        "are still pulled, and nothing of this journal was changed. Run `sparkq verify` on the peer's journal, and restore it from "
        "a copy if it is damaged. If anyone you do not trust can write there, remove the peer from the definitions."
    ),
    "PEER_GAP": (
        "Peer '{peer}' removed {count} message(s) of type '{message_type}' before they were pulled, its bookmarks {bookmarks}: no "
        "queue there needed them any more, and its [replication] `keep` was over. Nothing more is pulled from it until you accept "
        "the loss: `sparkq peers skip {journal} {peer}`."
    ),
    "PEER_AWAY": (
        "Peer '{peer}' has no journal at '{path}' now, so nothing is read from it; what was pulled stays. Check that its store is "
        "mounted and reachable from here, and that the path in the definitions is right. Pulling resumes by itself once it is "
        "back. If the site is lost, choose one surviving instance, move the clients there, and let it take over: `sparkq "
        "proxied-transfer` (R112)."
    ),
    "SINK_UNREADABLE": (
        "Sink '{table}' cannot be read, so it is unknown whether attempt {attempt} of subscription '{subscription}' of queue "
        "'{queue}' landed there: {reason} Its messages wait. Make the table readable: the next batch then decides, or `sparkq "
        "decide`. If the table is gone for good, decide yourself: `sparkq decide` with --landed or --fenced, and --force."
    ),
    "SINK_UNFENCED": (
        "Attempt {attempt} of subscription '{subscription}' of queue '{queue}' has not landed in '{table}' but still may, since "
        "its fence could not be written: {reason} Its messages wait. Make the table writable, for example by freeing disk space: "
        "the next batch then decides, or `sparkq decide`."
    ),
    "SINK_STILL_IN_DOUBT": (
        "Attempt {attempt} of subscription '{subscription}' of queue '{queue}' to append to '{table}' is in doubt, although its "
        "lease has ended: its messages wait. The next run of its stream decides, or the next batch of any other "
        "stream of the queue that appends there, or `sparkq decide`."
    ),
    "NOT_A_JOURNAL": ("'{path}' is not a journal: {reason} Create one with `sparkq init`, or correct the path."),
    "JOURNAL_EXISTS": ("'{path}' already holds a journal. Use it, or choose another path."),
    "BACKUP_TARGET_TAKEN": (
        "Something is already at '{path}', and a backup needs an empty place. Nothing was copied. Name another one."
    ),
    "BACKUP_OVERTAKEN": (
        "'{file}' of '{path}' disappeared before it was copied, and the copy needs it. Delete the copy at '{copy}', and run the "
        "backup again. If this recurs, the journal lacks the file: `sparkq verify` names everything that is missing."
    ),
    "JOURNAL_MISMATCH": (
        "This call is for journal {expected}, but '{path}' is journal {found}: it was deleted and recreated, or restored. Restart "
        "the job against the journal that it belongs to."
    ),
    "PROTOCOL_NEWER": "The journal at '{path}' uses {what}, which this version of spark_queue does not know. Upgrade spark_queue.",
    "JOURNAL_DAMAGED": (
        "The journal at '{path}' is damaged: {what}. Nothing was changed. Restore the file from a copy; `sparkq verify` names "
        "everything that is wrong. {reason}"
    ),
    "LOG_GAP": (
        "The log of '{path}' lacks version {version}: '_delta_log/{version:020}.json' is gone, though later entries exist. The "
        "order cannot be known without it, so reading stops there. Restore that file. {next_step}"
    ),
    "TABLE_UNSUPPORTED": ("Table '{table}' cannot be followed by message type '{message_type}'{place}: {reason} {next_step}"),
    "TABLE_CHANGED": (
        "Version {version} of table '{table}', which message type '{message_type}' follows, is a {operation} that changes what was "
        "there: {reason} {next_step}"
    ),
    "TABLE_REPLACED": (
        "The log of table '{table}', which message type '{message_type}' follows, is not the one that was read up to version "
        "{version}: {reason} {next_step}"
    ),
    "TABLE_ROWS_LOST": (
        "{count} message(s) of queue '{queue}' are lost: the table that message type '{message_type}' follows removed their file, "
        "and VACUUM took it before anybody had copied them. The first: {what}. They are dead letters of reason `lost`, without a "
        "body. If they matter, get the rows from elsewhere; then `sparkq follow JOURNAL {message_type} --forget-lost` ends this."
    ),
    "TABLE_FILES_DUE": (
        "{count} message(s) of queue '{queue}' stand in {files} file(s) that the table of message type '{message_type}' has "
        "removed, or may have: VACUUM may take the first {when}. Nobody has copied them yet. Consume them, or run "
        "`sparkq follow JOURNAL --catch-up` now and then, which copies them."
    ),
    "JOURNAL_REWRITTEN": (
        "Version {version} of '{path}' removed or rewrote message files and was not written by spark_queue ({operation}). "
        "Bookmarks would change their meaning, so delivery stops there. Restore the table's files as of version {previous} from a "
        "copy; never run OPTIMIZE, DELETE, UPDATE, MERGE or RESTORE on a message table."
    ),
    "JOURNAL_ENTRY_REPEATED": (
        "Version {version} of the log of message type '{message_type}' adds {files} file(s) that an earlier entry had added, as "
        "happens when an entry is copied by hand or by a tool. Their messages count once, as for every reader of the table: "
        "nothing is lost or doubled. Leave the entry where it is, since the log must have no gap, and keep whatever copied it away "
        "from the journal. This is reported until the entry is cleaned up."
    ),
    "JOURNAL_FOREIGN_APPEND": (
        "{files} file(s) in the table of message type '{message_type}' were appended by other software: they have no bookmarks and "
        "enter no queue. Publish their rows through spark_queue, and write to message tables only through it."
    ),
    "MESSAGE_FILE_MISSING": ("Message file '{file}' of '{path}' cannot be read: {reason} {next_step}"),
    "MESSAGE_FILE_CORRUPT": ("Message file '{file}' of '{path}' is damaged: {reason} {next_step}"),
    "QUEUE_SET_ASIDE": (
        "Queue '{queue}' is set aside: {reason} Nothing of it is lost, and nothing is granted; other queues are not affected. "
        "Report this text, upgrade to a version with the fix, and run `sparkq revive JOURNAL {queue}`."
    ),
    "EXPRESSION_UNUSABLE": (
        "The {what} expression {text!r} over message type '{message_type}' was accepted before, but cannot be evaluated now: "
        "{reason} No message was skipped. {next_step}"
    ),
    "MESSAGES_RETIRED": (
        "Messages {first} to {last} of message type '{message_type}' no longer have a body: they were older than the journal's "
        "`retention`, or their file had left the table that is followed, and no queue needed them. The first message kept after "
        "them is {kept}. {next_step}"
    ),
    "STORE_UNSAFE": (
        "The store under '{path}' let one key be created twice, so two writers could overwrite each other. "
        "Use a local disk, or an object store with conditional puts."
    ),
    "SINK_FAILED": (
        "Table '{table}', to which batches are appended, cannot be used: {reason} The next run of the stream finds out whether the "
        "batch was committed. Check the store and the table, then start the stream again."
    ),
    "STORE_FAILED": ("Storage under '{path}' failed while {doing}: {reason} No partial change is visible. {next_step}"),
    "PUBLISH_CONTENDED": (
        "Publishing to '{path}' lost {attempts} races in a row to other writers. Nothing was published. Publish "
        "larger batches, or retry."
    ),
}


#: The caller may not do that.
ACCESS: dict[str, str] = {
    "NOBODY_ADMINISTERS": (
        "None of the principals {principals} may administer the journal permanently, so in time nobody could change them. Give the "
        "right 'administer' to one that never expires."
    ),
    "ACCESS_DENIED": (
        "Principal '{principal}' has no right '{right}' on {what}. Ask an administrator of the journal for it, or use the token of "
        "a principal that has it."
    ),
    "TOKEN_OF_NOBODY": (
        "Your token belongs to no principal of this journal, so it has no right '{right}' on {what}. Name the file of another "
        "token with --token-file, or in SPARKQ_TOKEN_FILE."
    ),
    "SUBSCRIPTION_OF_OTHER": (
        "Subscription '{subscription}' of queue '{queue}' does not belong to principal '{principal}'. Choose another name, or have "
        "a principal with the right 'change' unsubscribe it."
    ),
    "TOKEN_EXPIRED": (
        "The tokens of principal '{principal}' expired at {expired_at}. Ask an administrator of the journal for a new one: "
        "`sparkq token new {principal}`."
    ),
    "TOKEN_WITHDRAWN": (
        "The token of principal '{principal}' was removed from the definitions. Use its new token, or ask an administrator of the "
        "journal for one: `sparkq token new {principal}`."
    ),
}

#: No coordinator could be reached, or one may not serve here and now.
COORDINATOR: dict[str, str] = {
    "COORDINATOR_UNAVAILABLE": (
        "The coordinator of '{path}' could not be reached or started: {reason} `sparkq doctor` finds out why; the coordinator's "
        "log is {log}."
    ),
    "COORDINATOR_ELSEWHERE": (
        "The coordinator of '{path}' runs on another host: process {pid} on '{host}', at {address}, last heard from {age_s} s ago. "
        "It serves only its own host. Run `sparkq serve` there with TLS and point jobs at it with option 'coordinator', or stop it "
        "there with `sparkq stop`."
    ),
    "COORDINATOR_UNTRUSTED": (
        "The coordinator of '{path}' is at {address}, and its certificate is not trusted here. Set SPARKQ_TLS_ROOTS to a file with "
        "its root certificate."
    ),
    "COORDINATOR_SERVES": (
        "Another coordinator already serves '{path}', at {address}; nothing was started. Stop it with `sparkq stop`, or run "
        "`sparkq serve --standby`, which waits and takes over when it ends."
    ),
    "COORDINATOR_STANDS_BY": (
        "The coordinator at this address is a stand-in: it does not serve '{path}' while another one does. List all of them in "
        "'coordinator', such as a:7337,b:7337; callers find the one that serves."
    ),
    "COORDINATOR_RECOVERING": ("The coordinator of '{path}' is still reading its log or its peers' logs. Try again shortly."),
    "REPLICATION_PENDING": (
        "The {rows} row(s) are published, but within {timeout} only {found} of {wanted} peer(s) have pulled them: {reason} They "
        "are pulled as soon as possible. Publish them again only under the same publisher name and numbers."
    ),
    "COORDINATOR_DEPOSED": (
        "Coordinator epoch {epoch} of '{path}' is over: {reason}. Only what it committed counts. A newer one serves."
    ),
    "CLOCK_SKEW": (
        "The last record of '{path}' is {ahead_s} s ahead of this host's clock, so leases and expirations would be wrong. "
        "Set the clock, or run `sparkq serve --accept-clock`."
    ),
    "UNAUTHENTICATED": (
        "The coordinator at {address} refused the token. Set SPARKQ_TOKEN_FILE to a file with the token of its user or of a "
        "principal."
    ),
    "TOKEN_OF_OTHER_JOURNAL": (
        "The token from {source} is for journals other than '{path}', so it was not sent. If you trust this journal, add a line "
        "there: your token for it, a space, and the journal as you name it."
    ),
    "TOKEN_NAMES_NO_JOURNAL": (
        "The token of a principal was not sent to {address}: this address comes from '{path}', which others may have written, and "
        "the token names no journal. In its file, or in SPARKQ_TOKEN, write the journal after it, as in `TOKEN {path}`; or give "
        "the address yourself as 'coordinator'."
    ),
    "TOKEN_FILE_UNSAFE": (
        "The token file '{file}' {problem}, so others could act as you or read your queues. Check who wrote it, then run `chmod "
        "600` on it, or delete it: the next start creates a new one."
    ),
    "FRAME_TOO_LARGE": ("A call of {size} bytes is over the limit of {limit} bytes. Settle fewer rows at once."),
    "FRAME_MALFORMED": ("A call could not be understood: {reason} Use one version of spark_queue on both sides."),
    "VERSIONS_DIFFER": (
        "A call has version {given}, and the coordinator of journal {journal} knows version {known} only. Install one version of "
        "spark_queue on both sides, and restart what still runs the other one."
    ),
    "USER_DIRECTORY_UNUSABLE": (
        "The directory '{directory}' cannot be used for the token, logs and locks of coordinators: {reason} Set the environment "
        "variable {variable} to a place that this user may write to."
    ),
    "ADDRESS_UNUSABLE": (
        "No coordinator can listen on {address}: {reason} Free the address, or give another one with --bind; port 0 picks a free "
        "port."
    ),
    "ADDRESS_UNSAFE": (
        "Serving on {address} would expose the queue beyond this host: {reason} Give --tls-cert, --tls-key and a token."
    ),
    "INTERNAL": ("An invariant did not hold: {what}. Nothing was committed. Please report it with the output of `sparkq verify`."),
}
