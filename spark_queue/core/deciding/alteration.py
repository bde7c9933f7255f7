"""New definitions: the changes that they may make while messages and leases stand, and the start of their new queues."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.commands import Apply
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions, QueueDefinition
from spark_queue.core.definitions.keys import LOCAL, parse_timestamp_ms
from spark_queue.core.records import DefinitionsApplied, Ranges
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import MESSAGE_FILE_CODES, ConfigError, JournalError


def apply(state: JournalState, command: Apply) -> DefinitionsApplied:
    """Return what is recorded of new definitions: they, where queues begin, and which messages there are barriers of theirs."""
    wanted, resets = parsing.parse(command.definitions), set(command.reset)
    if command.planned_on not in (None, state.definitions.digest):
        # Whoever applied others meanwhile would find them undone, a right that was withdrawn among them, and nobody would say so.
        raise ConfigError("DEFINITIONS_CHANGED")
    goes_on = back(state, wanted)
    recovery_points = starts(state, wanted, resets, goes_on)
    check(state, wanted, resets, goes_on)
    barriers = past_barriers(state, wanted, recovery_points)
    return DefinitionsApplied(
        definitions=dict(command.definitions),
        resets=recovery_points,
        barriers=barriers,
        goes_on=tuple(goes_on),
        request=command.request,
    )


def back(state: JournalState, wanted: Definitions) -> dict[str, QueueLedger]:
    """Return the replicated queues that are put back: they go on from their state when they were left.

    Also before any peer is named for one, so that definitions may change step by step; not one that is `local` by now.
    """
    put_back = {name: queue for name, queue in wanted.queues.items() if name in state.left and name not in state.troubles}
    known = {
        name: state.left[name]
        for name, queue in put_back.items()
        if queue.ownership != LOCAL and _source(queue) == _source(state.left[name].definition)
    }
    # Letters are those of the messages that died.
    sources = {ledger.definition.dead_letter_queue: name for name, ledger in known.items()}
    return {
        name: ledger
        for name, ledger in known.items()
        if ledger.definition.underlying_topic is not None or wanted.source_of(name) == sources.get(name, "")
    }


def check(state: JournalState, wanted: Definitions, resets: Collection[str], goes_on: Mapping[str, QueueLedger]) -> None:
    """Refuse definitions that would pull the ground from under messages or leases."""
    for name, message_type in state.message_types.items():
        if name not in wanted.message_types and message_type.entered_until:
            reason = f"it holds {message_type.entered_until} messages."
            raise ConfigError(
                "DEFINITION_IN_USE", what="Message type", name=name, reason=reason, next_step="Keep it in the definitions."
            )
    for name in wanted.message_types.keys() & state.definitions.message_types.keys():
        if (wanted.message_types[name].table is None) != (state.definitions.message_types[name].table is None):
            reason = "its messages are published, or those of a table that it follows, and never both."
            raise ConfigError("MESSAGE_TYPE_CHANGED", message_type=name, reason=reason)
    for name, trouble in state.troubles.items():
        # A queue whose state is not known cannot be checked; one that goes on as it is waits for its return.
        # Also whether it is replicated: of a queue that begins to be, the owners of the messages are recorded once.
        then, now = (
            (each.queues.get(name), each.source_of(name), each.is_replicated(name)) for each in (state.definitions, wanted)
        )
        if then[0] is None and (now[0] is None or trouble.code not in MESSAGE_FILE_CODES):
            # It was dropped since; put back, it begins anew, and waits to be revived.
            continue
        if trouble.code in MESSAGE_FILE_CODES or name in resets or then != now:
            raise trouble
    known, instance = state.definitions.journal.instance, wanted.journal.instance
    if known is not None and instance != known:
        reason = f"messages are owned under this name, but the new definitions have {instance!r}."
        raise ConfigError("DEFINITION_IN_USE", what="Instance", name=known, reason=reason, next_step="Keep its name.")
    for name, ledger in {**state.queues, **goes_on}.items():
        if name in resets and (ledger.is_replicated or wanted.is_replicated(name)):
            # Removed messages would be there again on this instance alone.
            reason = "it is replicated, and other instances keep what they know of its messages."
            raise ConfigError("DEFINITION_IN_USE", what="Queue", name=name, reason=reason, next_step="Redrive or purge it instead.")
        if name in resets and ledger.definition.underlying_topic is None and ledger.depth:
            reason = f"it holds {ledger.depth} dead letters, and has no recovery point from which they would come again."
            raise ConfigError("DEFINITION_IN_USE", what="Queue", name=name, reason=reason, next_step="Settle them first.")
        _check_queue(ledger, None if name in resets else wanted.queues.get(name))
        _check_source(state, ledger, wanted)


def _check_queue(ledger: QueueLedger, wanted: QueueDefinition | None) -> None:
    """Check the changes of a queue; `wanted` is None when it goes, or begins anew."""
    known = ledger.definition
    leased = sum(len(lease.leased) for lease in ledger.leases.values())
    if leased and wanted is None:
        raise _in_use(known, f"{leased} of its messages are leased.")
    unsettled = _unsettled(ledger)
    if unsettled and wanted is not None and wanted.semantics != known.semantics:
        # A late proof by the old semantics would find messages that were given to somebody else by the new one.
        raise _in_use(known, f"{unsettled} of its messages are leased, or in a batch that is not proven.")
    # A message that an at-most-once queue has sent holds its key until the proof, or the end of its lease.
    keyed = ledger.backlogs().total()
    if keyed and wanted is not None and wanted.order_key != known.order_key:
        raise _in_use(known, f"{keyed} of its messages are leased by the old order_key, and might share a key under the new one.")
    if wanted is not None and _source(wanted) != _source(known):
        # Its bitmaps hold bookmarks of the old source; mixed with those of another they would mean other messages.
        reason = f"it holds {_source(known)}, and the new definition would add {_source(wanted)}."
        raise ConfigError("DEFINITION_IN_USE", what="Queue", name=known.name, reason=reason, next_step="Reset it with the change.")


def _check_source(state: JournalState, letters: QueueLedger, wanted: Definitions) -> None:
    """Check that a dead-letter queue keeps its source while it holds letters: they would pass for the other's."""
    name, held = letters.definition.name, sum(len(rows) for each, rows in letters.rows.items() if each is not State.REMOVED)
    left = (each for each, ledger in state.left.items() if ledger.definition.dead_letter_queue == name)
    known, source = state.definitions.source_of(name) or next(left, None), wanted.source_of(name)
    if held and source is not None and source != known:
        reason = f"it holds {held} dead letters of queue '{known}', and would take those of queue '{source}'."
        raise ConfigError(
            "DEFINITION_IN_USE", what="Dead-letter queue", name=name, reason=reason, next_step="Settle or redrive them first."
        )


def _unsettled(ledger: QueueLedger) -> int:
    """Count leased messages, and all of a batch without proof: by other semantics they would mean another thing."""
    return sum(len(lease.leased if lease.proven else lease.rows) for lease in ledger.leases.values() if ledger.is_open(lease))


def _in_use(queue: QueueDefinition, reason: str) -> ConfigError:
    next_step = "Stop its streams and receivers first, and unsubscribe those that will not return to finish their messages."
    return ConfigError("DEFINITION_IN_USE", what="Queue", name=queue.name, reason=reason, next_step=next_step)


def _source(queue: QueueDefinition) -> str:
    what = "dead letters" if queue.underlying_topic is None else "messages"
    return f"{what} of message type '{queue.message_type}'"


def starts(state: JournalState, wanted: Definitions, resets: Collection[str], goes_on: Collection[str]) -> dict[str, int]:
    """Return the bookmarks at which queues start that are new or begin anew; UNKNOWN_QUEUE for one that is not `wanted`."""
    fresh, known = {name: wanted.queue(name) for name in resets}, {*state.queues, *state.set_aside_queues(), *goes_on}
    fresh |= {name: queue for name, queue in wanted.queues.items() if name not in known}
    return {name: recovery_point(state, queue) for name, queue in fresh.items()}


def past_barriers(state: JournalState, wanted: Definitions, starts: Mapping[str, int]) -> dict[str, Ranges]:
    """Return the messages that are there already and are barriers of queues that begin, for the record that decides it once (R75).

    A queue for which a missing file would have to be read is left out: it is set aside.
    """
    found: dict[str, Ranges] = {}
    for name, start in starts.items():
        queue = wanted.queues[name]
        # The barriers of a replicated queue are recorded with its members (R129).
        is_new = queue.message_type not in state.message_types
        if queue.barrier is None or queue.underlying_topic is None or is_new or wanted.is_replicated(name):
            continue
        try:
            found[name] = tuple(to_ranges(state.past_barriers(queue, start)))
        except JournalError as trouble:
            if trouble.code not in MESSAGE_FILE_CODES:
                raise
    return found


def recovery_point(state: JournalState, queue: QueueDefinition) -> int:
    """Resolve a queue's recovery point to a bookmark, once (R90, DESIGN 8)."""
    message_type = state.message_types.get(queue.message_type)
    entered_until = 0 if message_type is None else message_type.entered_until
    if message_type is None:
        return 0
    if queue.recovery_point == "epoch":
        return message_type.kept_from
    if queue.recovery_point in ("now", "creation"):
        return entered_until
    if queue.recovery_point.isdecimal():
        return min(int(queue.recovery_point), entered_until)
    return message_type.published_by(parse_timestamp_ms(queue.recovery_point) - 1)
