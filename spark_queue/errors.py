"""Every error that crosses the public surface, as one drawn tree.

::

    SparkQueueError
    ├── ConfigError        a definition, key, option or name is wrong; nothing was started
    ├── CallerError        a call does not fit: data, columns, bookmarks, sequences, modes
    ├── LeaseError         the caller does not, or no longer, hold what it speaks of
    ├── JournalError       the stored journal is missing, damaged, newer, or was changed by a stranger
    └── CoordinatorError   no coordinator could be reached, or it may not serve here

Each error carries a stable ``code``, the facts as ``facts``, and a message that says what happened (with values), why, and
what to do. The texts stand in one table below, so that a reader finds every refusal of the product in one place and a
test can walk them. The module imports nothing of ours; it is safe to import anywhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class SparkQueueError(Exception):
    """Base of every error raised by spark_queue.

    Parameters
    ----------
    code : str
        A key of `CATALOGUE`, for example ``"SUBSCRIPTION_TAKEN"``.
    **facts
        The values named by the code's text; also available as `facts`.
    """

    def __init__(self, code: str, **facts: Any) -> None:
        self.code = code
        self.facts: Mapping[str, Any] = facts
        super().__init__(f"[{code}] {_text(code, facts)}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles errors between processes, and exceptions with keyword arguments do not survive by themselves.
        return (error, (self.code, dict(self.facts)))


class ConfigError(SparkQueueError):
    """A definition, key, option or name is wrong; nothing was started or changed."""


class CallerError(SparkQueueError):
    """A call does not fit the data, the queue or its mode; nothing was changed."""


class LeaseError(SparkQueueError):
    """The caller does not, or no longer, hold the lease or subscription that it speaks of."""


class JournalError(SparkQueueError):
    """The stored journal is missing, damaged, newer than this software, or was changed by a stranger."""


class CoordinatorError(SparkQueueError):
    """No coordinator could be reached, or one may not serve here and now."""


class Refusal(NamedTuple):
    """What a code stands for."""

    error: type[SparkQueueError]
    #: What happened with its values, why, and what to do next; values are filled in from the facts.
    text: str


#: Every code there is.
CATALOGUE: dict[str, Refusal] = {
    # Configuration.
    "UNKNOWN_KEY": Refusal(ConfigError, "Unknown key '{key}' in {where}.{nearest} `sparkq options` lists every key."),
    "UNKNOWN_OPTION": Refusal(ConfigError, "Unknown option '{option}' for {where}.{nearest} `sparkq options` lists every option."),
    "MISSING_OPTION": Refusal(ConfigError, "Option '{option}' is missing for {where}: {reason} Add .option(\"{option}\", …)."),
    "BAD_VALUE": Refusal(ConfigError, "'{key}' in {where} is {value!r}, but it must be {expected}. Correct the value."),
    "CONTRADICTORY_SETTINGS": Refusal(ConfigError, "{where}: {reason} Remove one of: {keys}."),
    "DEFINITIONS_UNREADABLE": Refusal(
        ConfigError,
        "The definitions in '{path}' cannot be read: {reason} They are TOML in UTF-8. Correct the file, or the path.",
    ),
    "NAME_INVALID": Refusal(
        ConfigError,
        "The {what} name {name!r} is not allowed: names are 1 to 249 characters of A-Z a-z 0-9 . _ - and neither '.' nor "
        "'..', because they become paths and labels. Choose another name.",
    ),
    "NAME_CASE_CLASH": Refusal(
        ConfigError,
        "The {what} names {name!r} and {other!r} differ only in case, which some file systems cannot tell apart. Rename one.",
    ),
    "UNKNOWN_QUEUE": Refusal(ConfigError, "The journal has no queue '{queue}'.{nearest} `sparkq status` lists the queues."),
    "UNKNOWN_MESSAGE_TYPE": Refusal(ConfigError, "The journal has no message type '{message_type}'.{nearest}"),
    "UNKNOWN_TOPIC": Refusal(
        ConfigError,
        "No message type takes topic '{topic}'.{nearest} Add it to the `topics` of a message type and run `sparkq apply`.",
    ),
    "TOPIC_CLAIMED_TWICE": Refusal(
        ConfigError,
        "Topic '{topic}' is claimed by message types '{first}' and '{second}', so a message would have two homes. Leave it in one.",
    ),
    "TOPIC_AMBIGUOUS": Refusal(
        ConfigError,
        "Topic '{topic}' matches patterns of message types {message_types}, so its home is not clear. "
        "Narrow one of the patterns, or list the topic by name in one type.",
    ),
    "RESERVED_COLUMN": Refusal(
        ConfigError,
        "Column '{column}' of message type '{message_type}' is reserved: the journal or the reader adds a column of that "
        "name. Rename the column.",
    ),
    "MESSAGE_TYPE_CHANGED": Refusal(
        ConfigError,
        "Message type '{message_type}' cannot be changed that way: {reason} Only nullable columns may be appended; "
        "for anything else define a new message type.",
    ),
    "DEFINITION_IN_USE": Refusal(ConfigError, "{what} '{name}' cannot be dropped or changed in that way: {reason} {next_step}"),
    "STORAGE_OPTION_UNSUPPORTED": Refusal(
        ConfigError,
        "Storage option '{option}' cannot be passed on to the readers of message files, so a read would use other settings "
        "than a write. Supported: {supported}.",
    ),
    # Calls.
    "UNKNOWN_COLUMN": Refusal(CallerError, "{where} has no column '{column}'.{nearest} Columns: {columns}."),
    "COLUMN_TYPE_MISMATCH": Refusal(
        CallerError,
        "Column '{column}' of {where} is {found}, but the message type declares {expected}, and the values cannot be cast "
        "without loss: {reason} Cast the column before publishing.",
    ),
    "TOPIC_MISSING": Refusal(
        CallerError,
        "No topic for {rows} row(s): give `topic`, or a `topic` column without NULLs. Nothing was published.",
    ),
    "SEQUENCE_MISSING": Refusal(
        CallerError, "Publisher '{publisher}' needs {what} to number its rows. {reason} Nothing was published."
    ),
    "SEQUENCE_NOT_ASCENDING": Refusal(
        CallerError,
        "Publisher '{publisher}': sequence {sequence} follows {previous} in one batch, but sequences must ascend strictly, "
        "or the duplicate rule would drop rows. Sort by the sequence column. Nothing was published.",
    ),
    "SEQUENCE_BEHIND": Refusal(
        CallerError,
        "Publisher '{publisher}': the batch starts at sequence {first}, behind the persisted {persisted}, ends at {last}, "
        "and repeats no batch in the log. Its new rows might be other messages under used numbers. Continue from "
        "{persisted} + 1. Nothing was published.",
    ),
    "PUBLISHER_NAME_IN_USE": Refusal(
        CallerError,
        "Publisher name '{publisher}' was opened by another process (number {newest}, this one is {own}). One name "
        "belongs to one process at a time (R98). Open it again here, or use another name. Nothing was published.",
    ),
    "PUBLISHER_IDENTITY_UNKNOWN": Refusal(
        CallerError,
        "This stream learns no query id here and has no `sequenceColumn`, so a repeated micro-batch could not be told from "
        "a new one. Set `publisher` and `sequenceColumn`. Nothing was published.",
    ),
    "UNSUPPORTED_WRITE": Refusal(CallerError, "{what} is not possible: {reason} {next_step}"),
    "UNSUPPORTED_READ": Refusal(CallerError, "{what} is not possible: {reason} {next_step}"),
    "ACK_MODE_MISMATCH": Refusal(
        CallerError,
        "Subscription '{subscription}' of queue '{queue}' uses ackMode {ack_mode}, but {what} needs {needed}. {next_step}",
    ),
    "UNKNOWN_BOOKMARK": Refusal(
        CallerError,
        "Queue '{queue}' was told the outcome of {count} bookmark(s) that {reason}, first {bookmark}. Nothing was settled. "
        "Name only rows of the batch.",
    ),
    "OUTCOME_INVALID": Refusal(CallerError, "Outcomes of queue '{queue}': {reason} Nothing was settled. {next_step}"),
    "BATCH_SOURCE_UNKNOWN": Refusal(CallerError, "{reason} {next_step}"),
    "UNKNOWN_SUBSCRIPTION": Refusal(
        CallerError,
        "Queue '{queue}' has no subscription '{subscription}'.{nearest} It begins with the first start of its stream.",
    ),
    "MESSAGE_TOO_LARGE": Refusal(CallerError, "A message of {size} bytes is over the limit of {limit} bytes. {next_step}"),
    "RECORD_UNKNOWN": Refusal(CallerError, "{what} {value} is {reason}. The journal knows {first} to {last}."),
    "TIMESTAMP_AMBIGUOUS": Refusal(
        CallerError,
        "Timestamp '{value}' of {where} has no offset: it could be {utc} or {local}. Write the offset, as in either reading.",
    ),
    # Leases and subscriptions.
    "SUBSCRIPTION_TAKEN": Refusal(
        LeaseError,
        "Subscription '{subscription}' of queue '{queue}' was taken over by a newer reader (incarnation {newest}, this one "
        "is {own}). Each running query needs a subscription name of its own; two queries on one checkpoint and a "
        "self-join of one stream share a name. Stop one, or join inside foreachBatch.",
    ),
    "STALE_CALL": Refusal(
        LeaseError,
        "Call {call} of subscription '{subscription}' is older than call {newest}, which was heard before. A delayed "
        "message is ignored; nothing to do.",
    ),
    "STALE_RUN": Refusal(
        LeaseError,
        "A batch of subscription '{subscription}' of queue '{queue}' speaks for run {run}, but {reason}. Its outcomes were "
        "not recorded; the rows are delivered again by the newer run.",
    ),
    "CHECKPOINT_FOREIGN": Refusal(
        LeaseError,
        "The checkpoint speaks of {what}, which is not {expected}. It was copied, edited, or belongs to a journal that "
        "was restored. Nothing was acknowledged. Start with an empty checkpoint, or point the query at its own journal.",
    ),
    "LEASE_HELD": Refusal(
        LeaseError,
        "Message {bookmark} of queue '{queue}' is leased to '{holder}' until {leased_until}; with strict leasing only its "
        "holder may settle it (R38). Wait until the lease ends.",
    ),
    "LEASE_SETTLED": Refusal(
        LeaseError,
        "{count} message(s) of queue '{queue}', first {bookmark}, can no longer be given outcome '{outcome}': {reason}. "
        "Only 'acknowledge' is still accepted.",
    ),
    # The journal.
    "NOT_A_JOURNAL": Refusal(
        JournalError, "'{path}' is not a journal: {reason} Create one with `sparkq init`, or correct the path."
    ),
    "JOURNAL_EXISTS": Refusal(JournalError, "'{path}' already holds a journal. Use it, or choose another path."),
    "JOURNAL_MISMATCH": Refusal(
        JournalError,
        "This call is for journal {expected}, but '{path}' is journal {found}: it was deleted and made anew, or restored. "
        "Restart the job against the journal that it belongs to.",
    ),
    "PROTOCOL_NEWER": Refusal(
        JournalError,
        "The journal at '{path}' uses {what}, which this version of spark_queue does not know. Upgrade spark_queue.",
    ),
    "JOURNAL_DAMAGED": Refusal(
        JournalError,
        "The journal at '{path}' is damaged: {what}. {reason} Nothing was changed. Restore the file from a copy; "
        "`sparkq verify` names everything that is wrong.",
    ),
    "LOG_GAP": Refusal(
        JournalError,
        "The log of '{path}' has no entry for version {version}, though later ones exist. Order cannot be known without "
        "it, so reading stops before it. Restore that file; `sparkq verify` names everything that is wrong.",
    ),
    "JOURNAL_REWRITTEN": Refusal(
        JournalError,
        "Version {version} of '{path}' removed or rewrote message files and was not written by spark_queue ({operation}). "
        "Bookmarks would change their meaning. Restore the table to version {previous}; never run OPTIMIZE, DELETE, "
        "UPDATE, MERGE or RESTORE on a message table.",
    ),
    "JOURNAL_FOREIGN_APPEND": Refusal(
        JournalError,
        "{files} file(s) in the table of message type '{message_type}' were appended by a stranger: they have no bookmarks, enter "
        "no queue. Publish their rows through spark_queue, and write to message tables with nothing else.",
    ),
    "MESSAGE_FILE_MISSING": Refusal(
        JournalError,
        "Message file '{file}' of '{path}' cannot be read: {reason} Its messages stay in the queue. Restore the file.",
    ),
    "STORE_UNSAFE": Refusal(
        JournalError,
        "The store under '{path}' let one key be created twice, so two writers could overwrite each other. "
        "Use a local disk, or an object store with conditional puts.",
    ),
    "STORE_FAILED": Refusal(
        JournalError,
        "Storage under '{path}' failed while {doing}: {reason} Nothing half-done is visible. {next_step}",
    ),
    "PUBLISH_CONTENDED": Refusal(
        JournalError,
        "Publishing to '{path}' lost {attempts} races in a row to other writers. Nothing was published. Publish larger "
        "batches, or retry.",
    ),
    # The coordinator.
    "COORDINATOR_UNAVAILABLE": Refusal(
        CoordinatorError,
        "The coordinator of '{path}' could not be reached or started: {reason} `sparkq doctor` finds out why; its log is {log}.",
    ),
    "COORDINATOR_ELSEWHERE": Refusal(
        CoordinatorError,
        "The coordinator of '{path}' runs on another host ({host}, renewed {age_s} s ago), which only serves its own host. "
        "Run `sparkq serve` there with TLS and point jobs at it with option 'coordinator', or stop it first.",
    ),
    "COORDINATOR_RECOVERING": Refusal(CoordinatorError, "The coordinator of '{path}' is still reading its log. Try again shortly."),
    "COORDINATOR_DEPOSED": Refusal(
        CoordinatorError,
        "Coordinator epoch {epoch} of '{path}' is over: {reason}. Nothing it did not commit counts. A newer one serves.",
    ),
    "CLOCK_SKEW": Refusal(
        CoordinatorError,
        "The last record of '{path}' is {ahead_s} s ahead of this host's clock, so leases and expirations would be wrong. "
        "Set the clock, or run `sparkq serve --accept-clock`.",
    ),
    "UNAUTHENTICATED": Refusal(
        CoordinatorError,
        "The coordinator at {address} refused the token. Run as the user who runs the coordinator, or use its token file.",
    ),
    "TOKEN_FILE_UNSAFE": Refusal(
        CoordinatorError,
        "The token file '{file}' {problem}, so somebody else could speak for you or read your queues. Check who wrote it, "
        "then run `chmod 600` on it, or delete it: the next start makes a new one.",
    ),
    "FRAME_TOO_LARGE": Refusal(
        CoordinatorError, "A call of {size} bytes is over the limit of {limit} bytes. Settle fewer rows at once."
    ),
    "FRAME_MALFORMED": Refusal(
        CoordinatorError, "A call could not be understood: {reason} Use one version of spark_queue on both sides."
    ),
    "ADDRESS_UNSAFE": Refusal(
        CoordinatorError,
        "Serving on {address} would expose the queue beyond this host: {reason} Give --tls-cert, --tls-key and a token.",
    ),
    "INTERNAL": Refusal(
        CoordinatorError,
        "An invariant did not hold: {what}. Nothing was committed. Please report it with the journal's `sparkq verify`.",
    ),
}


def error(code: str, facts: Mapping[str, Any]) -> SparkQueueError:
    """Build the error of a code, as the class that the table names; an unknown code (a newer peer) stays readable."""
    kind = CATALOGUE[code].error if code in CATALOGUE else SparkQueueError
    return kind(code, **facts)


def nearest(name: str, known: Iterable[str]) -> str:
    """Give the sentence that names the nearest known name, or an empty text when nothing is near."""
    lowered = {candidate.lower(): candidate for candidate in known}
    match = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return f" Did you mean '{lowered[match[0]]}'?" if match else ""


def _text(code: str, facts: Mapping[str, Any]) -> str:
    if code not in CATALOGUE:
        return ", ".join(f"{key}={value}" for key, value in facts.items())
    return CATALOGUE[code].text.format_map(facts)
