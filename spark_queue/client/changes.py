"""What applying new definitions would change, for people to read before they do it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from spark_queue.client.dry_runs import try_out
from spark_queue.client.previews import Preview, has_expressions, preview
from spark_queue.client.writing_rights import check_administers
from spark_queue.core.commands import Apply
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.definitions.keys import (
    JOURNAL_KEYS,
    MESSAGE_TYPE_KEYS,
    PEER_KEYS,
    PRINCIPAL_KEYS,
    QUEUE_KEYS,
    REPLICATION_KEYS,
    Key,
)
from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import ConfigError
from spark_queue.journal.expressions import EXPRESSION_KEYS
from spark_queue.journal.open import DeltaJournal
from spark_queue.journal.schema import check_columns
from spark_queue.protocol.connection import Endpoint
from spark_queue.views import PointInTime, queue_status, state_at


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
    #: What the queue's expressions select; only of a dry run, beside the first change of a queue that touches them.
    trial: Preview | None = None

    def __str__(self) -> str:
        """Say it in a line, and a trial in another."""
        what = "" if self.key is None else f" {self.key}: {_shown(self.before)} -> {_shown(self.after)}"
        tried = "" if self.trial is None else f"\n  {self.trial}"
        return f"{self.action} {self.where}{what}{tried}"


def plan(
    journal: DeltaJournal,
    wanted: Definitions,
    *,
    reset: tuple[str, ...],
    remove: Collection[str],
    endpoint: Endpoint | None,
    dry_run: bool,
) -> list[Change]:
    """Refuse new definitions that cannot be applied to a journal as it is now, and list what they change.

    Parameters
    ----------
    journal
        The journal; nothing in it is changed.
    wanted
        The whole set of new definitions.
    reset
        Queues whose recovery point is taken again.
    remove
        Queues that may go, of those that the definitions leave out.
    dry_run
        Whether the expressions of new and changed queues are tried out on messages of the journal.
    endpoint
        Whose right to administer is asked, also where nothing changes and so no coordinator is; None for who owns the store.

    Raises
    ------
    AccessError
        ACCESS_DENIED or TOKEN_EXPIRED.
    ConfigError
        RESERVED_COLUMN, BAD_VALUE, EXPRESSION_INVALID, EXPRESSION_UNSUPPORTED, MESSAGE_TYPE_CHANGED,
        DEFINITION_IN_USE or UNKNOWN_QUEUE.
    AccessError
        ACCESS_DENIED, TOKEN_EXPIRED.
    JournalError
        JOURNAL_MISMATCH, MESSAGE_FILE_MISSING, MESSAGE_FILE_CORRUPT, STORE_FAILED.
    """
    now = state_at(journal)
    token = None if endpoint is None else partial(endpoint.token, journal.store)
    if token is not None:
        check_administers(now.state.definitions, token, now_ms=now.now_ms)
    old = now.state.definitions
    changes = changes_between(old, wanted, reset=reset)
    if not changes:
        return []
    _refuse_removals(now, wanted, remove)
    for name, message_type in wanted.message_types.items():
        check_columns(name, message_type.columns, of_instance=wanted.journal.instance is not None)
        if message_type != old.message_types.get(name):
            journal.check_message_table(name, message_type.columns)
    try_out(now, Apply(definitions=dict(wanted.stored), reset=reset), token)
    return _with_previews(changes, wanted, now.state, journal.traits) if dry_run else changes


def _refuse_removals(now: PointInTime, wanted: Definitions, remove: Collection[str]) -> None:
    """Refuse to let a queue go that new definitions leave out and nobody has named: its name may only be misspelt."""
    for name in now.state.definitions.queues:
        if name not in wanted.queues and name not in remove:
            status = queue_status(now, name)
            reason = (
                f"the definitions leave it out. {status.queue_depth:,} messages are in it, and what became of "
                f"{status.acknowledged:,} acknowledged ones and {status.dead_letters:,} dead letters would be forgotten: a queue "
                "that is added begins anew."
            )
            next_step = f"Nothing was changed. Correct the definitions, or say remove=['{name}'], or --remove {name}."
            raise ConfigError("DEFINITION_IN_USE", what="Queue", name=name, reason=reason, next_step=next_step)


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
    """List what differs, and the queues whose recovery point is taken again."""
    changes: list[Change] = []
    for kind, keys in _KINDS.items():
        before, after = _tables(old, kind), _tables(new, kind)
        changes += [Change(where=where, action="remove") for where in before if where not in after]
        for where, table in after.items():
            changes += _of_table(where, keys, before[where], table) if where in before else [Change(where=where, action="add")]
    return [*changes, *(Change(where=f"[queues.{name}]", action="reset") for name in reset)]


#: The keys that the tables of each kind have.
_KINDS: Mapping[str, tuple[Key, ...]] = {
    "journal": JOURNAL_KEYS, "message_types": MESSAGE_TYPE_KEYS, "queues": QUEUE_KEYS, "peers": PEER_KEYS,
    "replication": REPLICATION_KEYS, "principals": PRINCIPAL_KEYS,
}  # fmt: skip

#: A table as parsed, and as the user wrote it.
_Table = tuple[Any, Mapping[str, Any]]


def _tables(definitions: Definitions, kind: str) -> dict[str, _Table]:
    """Return the tables of a kind by their heads."""
    stored = definitions.stored.get(kind, {})
    if kind in ("journal", "replication"):
        return {f"[{kind}]": (getattr(definitions, kind), stored)}
    return {f"[{kind}.{name}]": (parsed, stored.get(name, {})) for name, parsed in getattr(definitions, kind).items()}


def _of_table(where: str, keys: tuple[Key, ...], before: _Table, after: _Table) -> Iterator[Change]:
    # What counts is the value in effect; what is shown is what the user wrote, or the default that stands for it.
    for key in keys:
        if getattr(before[0], key.field) != getattr(after[0], key.field):
            old, new = (side[1].get(key.name, key.default) for side in (before, after))
            yield Change(where=where, action="change", key=key.name, before=old, after=new)


def _shown(value: Any) -> str:
    return "none" if value is None else repr(value)
