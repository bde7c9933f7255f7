"""The invariants hold of a real life, and each one notices what it is there for (DESIGN 13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from spark_queue.core.records import Kind, Outcome, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.ports import MessageLogEntry
from spark_queue.verification.of_log import of_message_log
from spark_queue.verification.of_state import of_state
from tests.records import record_of, replaced
from tests.second_model.problems import of_records, problems
from tests.unit.views.views_world import START_MS, ViewsWorld


@pytest.fixture
def world(tmp_path: Path) -> ViewsWorld:
    """A life with everything in it: a proof, a dead letter, a delay, an expired lease, a second delivery, an open lease."""
    world = ViewsWorld(tmp_path)
    world.publish(*range(10))
    world.publish(*range(10))
    world.attach()
    world.next(4)
    world.settle(Outcome.EXPIRE, 0, error="no price")
    world.next(3)
    world.engine.tick(now_ms=START_MS + 61_000)
    lease = world.next(3, now_ms=START_MS + 62_000)
    assert lease is not None
    world.settle(Outcome.CANCEL, lease.rows.min(), now_ms=START_MS + 63_000, due_at_ms=START_MS + 90_000)
    return world


def recorded(world: ViewsWorld) -> list[Record]:
    world.commit()
    return world.records


def test_a_life_with_every_kind_of_end_breaks_nothing(world: ViewsWorld) -> None:
    moment = world.moment()
    assert {"granted", "returned", "removed", "dead_lettered", "proven"} <= {record.kind for record in world.records}
    logs = {"line": list(world.opened.messages("line").tail(-1))}
    assert problems(moment.state, world.records, logs) == []


def lose(state: JournalState) -> None:
    state.ledger("WORK").rows[State.AVAILABLE].discard(19)


def double(state: JournalState) -> None:
    state.ledger("WORK").rows[State.REMOVED].add(19)


def invent(state: JournalState) -> None:
    state.ledger("WORK").entered.add(20)
    state.ledger("WORK").rows[State.AVAILABLE].add(20)


def forget_delay(state: JournalState) -> None:
    state.ledger("WORK").delayed.clear()


def steal_lease(state: JournalState) -> None:
    next(iter(state.ledger("WORK").leases.values())).leased.clear()


def widen_lease(state: JournalState) -> None:
    lease = next(iter(state.ledger("WORK").leases.values()))
    lease.rows = BitMap64()


def reuse_lease_number(state: JournalState) -> None:
    state.ledger("WORK").next_lease = 1


def drop_subscription(state: JournalState) -> None:
    state.ledger("WORK").subscriptions.clear()


def skip_file(state: JournalState) -> None:
    state.message_types["line"].segments.pop(0)


STATE_DAMAGE: list[tuple[Callable[[JournalState], None], str]] = [
    (lose, "entered and are in no state"),
    (double, "are in two states at once"),
    (invent, "only 20 messages have entered"),
    (forget_delay, "do not match their list of moments"),
    (steal_lease, "not exactly what the leases hold"),
    (widen_lease, "holds or claims messages that it does not cover"),
    (reuse_lease_number, "is not below the next number 1"),
    (drop_subscription, "which is gone"),
    (skip_file, "but 0 is next"),
]


@pytest.mark.parametrize(("damage", "text"), STATE_DAMAGE, ids=lambda value: getattr(value, "__name__", ""))
def test_a_damaged_state_is_noticed(world: ViewsWorld, damage: Callable[[JournalState], None], text: str) -> None:
    state = world.moment().state
    damage(state)
    assert text in "\n".join(of_state(state))


def of_kind(records: Sequence[Record], kind: Kind) -> int:
    return next(index for index, record in enumerate(records) if record.kind == kind)


def repeated(records: list[Record], kind: Kind) -> list[Record]:
    """Append the first record of a kind once more, numbered as the log would."""
    again = replace(records[of_kind(records, kind)], record=len(records), epoch=records[-1].epoch, at_ms=records[-1].at_ms)
    return [*records, again]


RECORD_DAMAGE: list[tuple[Callable[[list[Record]], list[Record]], str]] = [
    (lambda records: records[1:], "does not begin with journal_created"),
    (lambda records: [*records[:5], *records[6:]], "record 5 is missing"),
    (lambda records: [*records[:-1], replace(records[-1], epoch=0)], "epoch 0 follows epoch 1"),
    (lambda records: [*records[:-1], replace(records[-1], at_ms=0)], "its time lies"),
    (lambda records: repeated(records, Kind.EPOCH_CLAIMED), "epoch 1 is claimed after epoch 1"),
    (lambda records: repeated(records, Kind.ENTERED), "bookmarks begin at 0, but 20 is next"),
    (lambda records: repeated(records, Kind.GRANTED), "lease 1 follows lease"),
    (lambda records: repeated(records, Kind.REMOVED), "had already left the queue"),
    (lambda records: repeated(records, Kind.PROVEN), "was proven before"),
]


#: A life in which attempt 1 of lease 1 is prepared and lands; what would be wrong behind it, or before it lands.
_PREPARED = {"attempt": 1, "table": "t", "table_id": "i", "exceptions": []}
SINK_DAMAGE: list[tuple[dict[str, Any], dict[str, Any] | None, str]] = [
    ({"kind": Kind.RETURNED, "reason": "lease_expired"}, None, "message 0 is in doubt, by attempt 1 of 's'"),
    ({"kind": Kind.GRANTED, "lease": 2}, None, "message 0 is in doubt"),
    ({"kind": Kind.REMOVED, "reason": "acknowledged"}, None, "message 0 is in doubt"),
    ({"kind": Kind.UNSUBSCRIBED}, None, "attempt 1 of 's' is in doubt"),
    ({"kind": Kind.PREPARED, "detail": {**_PREPARED, "attempt": 2}}, None, "begins before an earlier one is over"),
    ({"kind": Kind.FENCED, "detail": {"attempt": 2, "table": "t"}}, None, "attempt 2 of 's' is not in doubt"),
    ({"kind": Kind.PREPARED, "detail": _PREPARED}, {"attempt": 1, "table": "t"}, "or has its number"),
    ({"kind": Kind.RETURNED, "reason": "lease_expired"}, {"attempt": 1, "table": "t"}, "message 0 stands in a sink"),
    ({"kind": Kind.REMOVED, "reason": "purged"}, {"attempt": 1, "table": "t"}, "message 0 stands in a sink"),
]


@pytest.mark.parametrize(("wrong", "landed", "text"), SINK_DAMAGE)
def test_a_log_that_moves_what_may_stand_in_a_sink_is_noticed(
    world: ViewsWorld, wrong: dict[str, Any], landed: dict[str, Any] | None, text: str
) -> None:
    """R123, R124, R126."""
    records = list(recorded(world))
    first = records[of_kind(records, Kind.GRANTED)]
    fresh: dict[str, Any] = {"queue": first.queue, "subscription": "s", "lease": 1, "ranges": ((0, 1),)}
    log = [*records[: first.record], replace(first, subscription="s"), record_of(kind=Kind.PREPARED, detail=_PREPARED, **fresh)]
    log += [] if landed is None else [record_of(kind=Kind.LANDED, detail=landed, **fresh)]
    log.append(record_of(**{"detail": {}, **fresh, **wrong}))
    numbered = [replace(each, record=number, epoch=1, at_ms=first.at_ms) for number, each in enumerate(log)]
    assert text in "\n".join(of_records(numbered))
    assert of_records(numbered[:-1]) == []


@pytest.mark.parametrize(("damage", "text"), RECORD_DAMAGE, ids=[text for _, text in RECORD_DAMAGE])
def test_a_damaged_control_log_is_noticed(world: ViewsWorld, damage: Callable[[list[Record]], list[Record]], text: str) -> None:
    records = list(recorded(world))
    assert text in "\n".join(of_records(damage(records)))


def test_a_bookmark_granted_to_two_at_once_is_noticed(world: ViewsWorld) -> None:
    records = list(recorded(world))
    last = max(record.lease or 0 for record in records)
    granted = next(record for record in reversed(records) if record.kind == Kind.GRANTED)
    twice = replace(granted, record=len(records), lease=last + 1)
    assert "is granted while it is leased" in "\n".join(of_records([*records, twice]))


def test_a_removed_bookmark_that_never_entered_is_noticed(world: ViewsWorld) -> None:
    records = list(recorded(world))
    removed = replaced(records[-1], kind=Kind.REMOVED, detail={}, number=len(records), ranges=((900, 901),), reason="acknowledged")
    assert "message 900 never entered" in "\n".join(of_records([*records, removed]))


LOG_DAMAGE: list[tuple[Callable[[MessageLogEntry], MessageLogEntry], str]] = [
    (lambda entry: replace(entry, token="other"), "is another commit than the one that entered"),
    (lambda entry: replace(entry, added=()), "names other files, rows or origins"),
    (lambda entry: replace(entry, version=999), "its log does not have it"),
]


@pytest.mark.parametrize(("damage", "text"), LOG_DAMAGE, ids=[text for _, text in LOG_DAMAGE])
def test_a_message_log_that_is_not_the_one_that_entered_is_noticed(
    world: ViewsWorld, damage: Callable[[MessageLogEntry], MessageLogEntry], text: str
) -> None:
    *earlier, last = world.opened.messages("line").tail(-1)
    assert text in "\n".join(of_message_log(recorded(world), "line", [*earlier, damage(last)]))


def test_a_commit_that_lands_late_where_a_version_had_gone_is_no_damage(world: ViewsWorld) -> None:
    """A publisher that was held up for a day puts its entry right before the oldest one; no reader looks there, nor does it."""
    created, gone, oldest = world.opened.messages("line").tail(-1)
    records, late = recorded(world), replace(gone, token="late")
    assert of_message_log(records, "line", [late, oldest]) == []
    assert "is another commit" in "\n".join(of_message_log(records, "line", [created, late, oldest])), "nothing has gone"
    assert "is another commit" in "\n".join(of_message_log(records, "line", [late])), "nothing tells where the log begins"


def test_cleaned_versions_are_no_damage(world: ViewsWorld) -> None:
    """DESIGN 15.10: what entered may be cleaned away; only what is still there can be compared."""
    *_, last = world.opened.messages("line").tail(-1)
    assert of_message_log(recorded(world), "line", [last]) == []
