"""The changes that new definitions would make, for people to read before they do it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from spark_queue.client.dry_runs import try_out
from spark_queue.client.previews import Preview, has_expressions, preview
from spark_queue.client.rights import check_administers
from spark_queue.core.commands import Apply
from spark_queue.core.deciding.alteration import recovery_point
from spark_queue.core.definitions.definition import TABLES, UNNAMED_TABLES, Definitions, QueueDefinition
from spark_queue.core.definitions.keys import Key, keys_of
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import ConfigError, SparkQueueError, counted
from spark_queue.journal.expressions import EXPRESSION_KEYS
from spark_queue.journal.open import DeltaJournal
from spark_queue.journal.schema import check_columns
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.replication.peer_stores import peer_store
from spark_queue.replication.restored import read_definitions
from spark_queue.replication.validation import agree, columns_of
from spark_queue.settings.shown import shown
from spark_queue.views import JournalView, queue_status, state_at

#: The key of a token's hash, and the text that is shown instead.
TOKEN_KEY, NOT_SHOWN = "token_hash", "not shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between the definitions that hold and new ones."""

    #: Such as ``[queues.ORDER_WORK]``.
    where: str
    action: Literal["add", "remove", "change", "reset"]
    #: The key that changes; None when the whole table does.
    key: str | None = None
    before: Any = None
    after: Any = None
    #: The selection by the queue's expressions; only of a dry run, beside the first change of a queue that touches them.
    trial: Preview | None = None
    #: A warning to read before it is done.
    warning: str | None = None

    def __str__(self) -> str:
        """Return the change as a line, with a warning and a dry run's selection in others."""
        what = "" if self.key is None else f" {self.key}: {_shown(self.before)} -> {_shown(self.after)}"
        tried = "" if self.trial is None else f"\n  {self.trial}"
        warned = "" if self.warning is None else f"\n  Warning: {self.warning}"
        return f"{self.action} {self.where}{what}{warned}{tried}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes that new definitions make."""

    changes: list[Change]
    #: The digest of the definitions that they change.
    planned_on: str


def plan(
    journal: DeltaJournal,
    wanted: Definitions,
    *,
    reset: tuple[str, ...],
    remove: Collection[str],
    leave: Collection[str],
    endpoint: Endpoint | None,
    dry_run: bool,
) -> Plan:
    """Refuse new definitions that cannot be applied to a journal as it is now, and list their changes.

    The caller behind `endpoint` must have the right to administer, also where nothing changes and no coordinator would be asked;
    without `endpoint` it is the owner of the store.
    """
    now = state_at(journal)
    token = None if endpoint is None else partial(endpoint.token, journal.store)
    if token is not None:
        check_administers(now.state.definitions, token, now_ms=now.now_ms)
    old = now.state.definitions
    changes = changes_between(old, wanted, reset=reset)
    if not changes:
        return Plan([], old.digest)
    _refuse_removals(now, wanted, remove, leave)
    changes = _with_missed(_with_warning(_with_running(changes, now.state, wanted), now, wanted), now.state, wanted)
    for name, message_type in wanted.message_types.items():
        check_columns(name, message_type.columns, rename=message_type.rename, of_instance=wanted.journal.instance is not None)
        before = old.message_types.get(name)
        if message_type.table is not None and message_type != before:
            known = now.state.message_types.get(name)
            journal.look_at_table(message_type, None if known is None else known.followed, before)
        elif message_type != before:
            journal.check_message_table(name, message_type.columns, is_unused=now.state.is_unused(name))
    _refuse_other_columns(journal.store, old, wanted)
    # The caller's right was checked above.
    try_out(now, Apply(definitions=dict(wanted.stored), reset=reset))
    return Plan(_with_previews(changes, wanted, now.state, journal.traits) if dry_run else changes, old.digest)


def _refuse_other_columns(store: Store, old: Definitions, wanted: Definitions) -> None:
    """Refuse to append columns that a peer has with other types, as far as it can be read: neither could be altered ever after."""
    appended = dict[str, Mapping[str, Any]]()
    for name in wanted.message_types.keys() & old.message_types.keys():
        if columns := _appended(old.message_types[name].columns, wanted.message_types[name].columns):
            appended[name] = columns
    for peer in wanted.peers.values() if appended else ():
        try:
            _, theirs = read_definitions(peer_store(store, peer), peer.name)
        except SparkQueueError:
            continue
        for name in appended.keys() & theirs.message_types.keys():
            text = theirs.message_types[name].columns
            is_pulled, there = any(map(peer.pulls, wanted.message_types[name].topics)), columns_of(text)
            # Columns that only newer software knows cannot be compared.
            if is_pulled and not isinstance(there, str) and not agree(appended[name], there):
                reason = f"a new column has another type, or spelling, on peer '{peer.name}', which has '{text}'."
                raise ConfigError("MESSAGE_TYPE_CHANGED", message_type=name, reason=reason)


def _refuse_removals(now: JournalView, wanted: Definitions, remove: Collection[str], leave: Collection[str]) -> None:
    """Refuse definitions that leave out a queue which the caller has not named: its name may only be misspelt."""
    known = now.state.definitions
    left_out = [name for name in known.queues if name not in wanted.queues]
    unnamed = {
        "leave": [name for name in left_out if known.is_replicated(name) and name not in leave],
        "remove": [name for name in left_out if not known.is_replicated(name) and name not in remove],
    }
    for word, names in unnamed.items():
        if not names:
            continue
        name = names[0]
        status = queue_status(now, name)
        if word == "leave":
            first = "hand them over with `sparkq peers drain`, and "
            reason = (
                f"the definitions leave it out, and it is shared with other instances. {status.owned:,} message(s) belong to this "
                "instance and would not be delivered until it joins again."
            )
        else:
            first = ""
            reason = (
                f"the definitions leave it out. {status.queue_depth:,} message(s) are in it, and the outcomes of "
                f"{status.acknowledged:,} acknowledged ones and {status.dead_letters:,} dead letter(s) would be forgotten: a queue "
                "that is added again begins anew."
            )
        options = " ".join(f"--{word} {each}" for each in names)
        next_step = f"Nothing was changed. Correct the definitions, or {first}pass {word}={names}, or {options}."
        raise ConfigError("DEFINITION_IN_USE", what="Queue", name=name, reason=reason, next_step=next_step)


def _with_warning(changes: list[Change], now: JournalView, wanted: Definitions) -> list[Change]:
    """Warn beside the last peer that goes where none is left: this instance hears nothing any more, and others count on it."""
    state, removed = now.state, [change for change in changes if change.action == "remove" and change.where.startswith("[peers.")]
    if wanted.peers or not removed:
        return changes
    owned = {name: ledger.depth for name, ledger in state.queues.items() if ledger.is_replicated and ledger.depth}
    holds = ", ".join(f"{count:,} of queue '{name}'" for name, count in owned.items())
    warning = (
        f"no peer is left, so '{state.definitions.journal.instance}' no longer learns the outcomes of shared messages elsewhere. "
        f"It still shows the others that it runs, and delivers what it owns{f' ({holds})' if holds else ''}. If it leaves for "
        "good, hand that over first (`sparkq peers drain`), then stop its coordinator, and run `sparkq peers forget` at the others."
    )
    return [replace(change, warning=warning) if change is removed[-1] else change for change in changes]


def _with_running(changes: Iterable[Change], state: JournalState, wanted: Definitions) -> list[Change]:
    """Warn beside columns that are appended of the queries that were loaded without them, and end."""
    told = []
    for change in changes:
        name = change.where.removeprefix("[message_types.").removesuffix("]")
        before = state.definitions.message_types.get(name) if change.key == "columns" else None
        appended = {} if before is None else _appended(before.columns, wanted.message_types[name].columns)
        queues = _with_queries(state, name) if appended else []
        if queues:
            warning = (
                f"queries of {', '.join(map(repr, queues))} that run now were loaded without {', '.join(map(repr, appended))}, and "
                "end with COLUMNS_APPENDED, unless their columns were chosen; so do streams of topics. Load and start them anew."
            )
            change = replace(change, warning=warning)
        told.append(change)
    return told


def _with_queries(state: JournalState, message_type: str) -> list[str]:
    """Return the queues of a message type that running streams consume; receivers take appended columns as they come."""
    of_type = [ledger for ledger in state.queues.values() if ledger.definition.message_type == message_type]
    return [
        ledger.definition.name for ledger in of_type
        if any(not (each.left or each.receives) for each in ledger.subscriptions.values())
    ]  # fmt: skip


def _appended(before: str, after: str) -> Mapping[str, Any]:
    """Return the columns that one declaration has beside those of another; none where only newer software knows their types."""
    known, wanted = columns_of(before), columns_of(after)
    if isinstance(known, str) or isinstance(wanted, str):
        return {}
    return {column: kind for column, kind in wanted.items() if column not in known}


def _with_missed(changes: Iterable[Change], state: JournalState, wanted: Definitions) -> list[Change]:
    """Warn beside each queue that begins of the messages of a followed table that it would have and that are retired (R151)."""
    told = []
    for change in changes:
        name = change.where.removeprefix("[queues.").removesuffix("]")
        # A reset may name a queue that there is not, which is refused later.
        begins = change.action in ("add", "reset") and name in wanted.queues
        known = state.message_types.get(wanted.queues[name].message_type) if begins else None
        count = 0 if known is None or known.followed is None else _missed(state, wanted.queues[name], known)
        if count:
            text = (
                f"{count:,} message(s) will not be in it that it would have from there on: no queue needed them when their table "
                "removed their file, so they were let go."
            )
            change = replace(change, warning=counted(text))
        told.append(change)
    return told


def _missed(state: JournalState, queue: QueueDefinition, known: MessageTypeState) -> int:
    """Return how many messages behind the recovery point of a queue are retired."""
    # From the beginning means from the first that is not retired.
    start = 0 if queue.recovery_point == "epoch" else recovery_point(state, queue)
    return sum(segment.until - max(segment.first, start) for segment in known.segments if segment.retired and segment.until > start)


def _with_previews(changes: Iterable[Change], wanted: Definitions, state: JournalState, traits: TraitSource) -> list[Change]:
    """Try the expressions of new and changed queues out on messages of the journal."""
    touched = {f"[queues.{queue.name}]": queue for queue in wanted.queues.values() if has_expressions(queue)}
    tried = []
    for change in changes:
        queue = touched.pop(change.where, None) if change.key is None or change.key in EXPRESSION_KEYS else None
        if queue is not None:
            segments = reversed(state.message_types[queue.message_type].segments)
            change = replace(change, trial=preview(traits, segments, queue))
        tried.append(change)
    return tried


def changes_between(old: Definitions, new: Definitions, *, reset: Iterable[str] = ()) -> list[Change]:
    """List the differences, and the queues whose recovery point is set anew."""
    changes: list[Change] = []
    for kind, definition in TABLES.items():
        before, after = _tables(old, kind), _tables(new, kind)
        changes += [Change(where=where, action="remove") for where in before if where not in after]
        for where, table in after.items():
            changes += (
                _of_table(where, keys_of(definition), before[where], table)
                if where in before
                else [Change(where=where, action="add")]
            )
    return [*changes, *(Change(where=f"[queues.{name}]", action="reset") for name in reset)]


#: A table as parsed, and as the user wrote it.
_Table = tuple[Any, Mapping[str, Any]]


def _tables(definitions: Definitions, kind: str) -> dict[str, _Table]:
    """Return the tables of a kind by their heads."""
    stored = definitions.stored.get(kind, {})
    if kind in UNNAMED_TABLES:
        return {f"[{kind}]": (getattr(definitions, kind), stored)}
    return {f"[{kind}.{name}]": (parsed, stored.get(name, {})) for name, parsed in getattr(definitions, kind).items()}


def _of_table(where: str, keys: tuple[Key, ...], before: _Table, after: _Table) -> Iterator[Change]:
    for key in keys:
        if getattr(before[0], key.field) != getattr(after[0], key.field):
            yield Change(where=where, action="change", key=key.name, before=_said(key, before), after=_said(key, after))


def _said(key: Key, table: _Table) -> Any:
    """Return the user's value, or the default that stands for it; where neither counts, the value that follows from other keys."""
    parsed, stored = table
    value = getattr(parsed, key.field)
    if key.name in stored or value == key.value:
        return stored.get(key.name, key.default)
    return f"{value}ms" if key.field.endswith("_ms") else value


def _shown(value: Any) -> str:
    return "none" if value is None else f"'{value}'" if isinstance(value, str) else shown(value)
