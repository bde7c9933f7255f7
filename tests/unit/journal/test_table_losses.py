"""Files that VACUUM took before anybody had copied them: what is lost, who hears of it, what a person decides (R154 to R157)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.records import Kind, Removal
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.status import queue_status
from spark_queue.errors import CallerError, JournalError
from spark_queue.journal import snapshot
from spark_queue.journal.reader import open_control
from spark_queue.journal.store import Store
from spark_queue.journal.table_upkeep import LOOK_MS, LOOK_SOON_MS
from spark_queue.verification.of_state import of_state
from spark_queue.views import state_at
from spark_queue.views.messages import read_messages
from tests.table_on_disk import DAY_MS, LEASE_MS, TableWorld
from tests.unit.journal.test_table_copies import assert_folds_alike, entered, kept


@pytest.fixture
def world(tmp_path: Path) -> TableWorld:
    """Give a queue whose filter has to read the table, with four messages of two files that the table has removed."""
    made = entered(TableWorld(tmp_path, filter="id <> 12", dead_letter_queue="FAILED", max_deliveries=1))
    made.optimize()
    made.enter()
    return made


def status(world: TableWorld, queue: str = "WORK") -> QueueStatus:
    return queue_status(world.state, queue, now_ms=world.now_ms)


def letters(world: TableWorld, reason: str = Removal.LOST) -> list[int]:
    return sorted(row for letter in world.queue.dead_letters if letter.reason == reason for row in letter.rows)


def test_what_vacuum_took_too_soon_is_lost_by_name(world: TableWorld) -> None:
    """R155: dead letters of their own reason, in no dead-letter queue, which nobody redrives; no start looks for the file."""
    world.vacuum()
    world.wait(ms=1)
    assert letters(world) == [0, 1, 3, 4]
    assert not world.state.queues["FAILED"].entered
    segments = [world.segment(0), world.segment(3)]
    assert {letter.error for letter in world.queue.dead_letters} == {
        f"version {each.version} of its table, file '{each.path}'" for each in segments
    }
    found = world.decide(commands.FindDeadLetters, queue="WORK")
    assert (found.ranges, found.skipped) == ((), 4)
    assert world.decide(commands.Redrive, queue="WORK", ranges=((0, 5),)).redriven == 0
    assert "[TABLE_ROWS_LOST] 4 messages of queue 'WORK' are lost" in str(status(world).alarm)
    assert_folds_alike(world)
    assert letters(world) == [0, 1, 3, 4]


def test_letters_with_and_without_a_body_stand_in_one_view(tmp_path: Path) -> None:
    """R155."""
    world = entered(TableWorld(tmp_path, max_deliveries=1))
    assert world.take(3) is not None
    world.wait(ms=LEASE_MS + 1)
    assert letters(world, Removal.MAX_DELIVERIES) == [0, 1, 2]
    world.optimize()
    world.enter()
    Path(world.table, world.segment(3).path).unlink()
    world.wait(ms=LOOK_MS)
    shown = read_messages(state_at(world.journal), "dead_letters", "WORK", columns=None, limit=None)
    assert shown.select(["bookmark", "id", "reason"]).to_pylist() == [
        {"bookmark": 0, "id": 10, "reason": "max_deliveries"}, {"bookmark": 1, "id": 11, "reason": "max_deliveries"},
        {"bookmark": 2, "id": 12, "reason": "max_deliveries"}, {"bookmark": 3, "id": None, "reason": "lost"},
        {"bookmark": 4, "id": None, "reason": "lost"},
    ]  # fmt: skip


def test_what_is_leased_is_lost_once_its_lease_is_over(world: TableWorld) -> None:
    """R155: its batch fails meanwhile, or has been read before: then its proof takes it back."""
    lease = world.take(3)
    assert lease is not None
    world.vacuum()
    world.wait(ms=1)
    assert (world.rows(State.LEASED), letters(world)) == ([0, 1, 3], [4])
    assert not any(segment.retired for segment in world.known.segments)
    world.now_ms += LEASE_MS
    world.tick()
    assert letters(world, Removal.MAX_DELIVERIES) == [0, 1, 3], "it was its last delivery"
    world.wait(ms=LOOK_MS)
    assert letters(world) == [0, 1, 3, 4]
    assert letters(world, Removal.MAX_DELIVERIES) == []
    assert all(segment.retired for segment in world.known.segments)
    world.prove(lease)
    assert letters(world) == [4]
    assert status(world).acknowledged == 3
    assert_folds_alike(world)


@pytest.mark.parametrize("state", [State.AVAILABLE, State.HELD, State.INACTIVE, State.DELAYED, State.DEAD])
@pytest.mark.parametrize("vacuumed", ["later", "sooner"])
def test_messages_wherever_they_wait(tmp_path: Path, state: State, vacuumed: str) -> None:
    """R152, R155: read from the copy where VACUUM comes later than `relocate_after`, lost where it comes sooner."""
    world = waiting(tmp_path, state)
    rows, standing = world.rows(state), sorted(row for each in State for row in world.rows(each) if each is not State.REMOVED)
    assert rows
    ids = world.ids(standing)
    world.optimize()
    world.enter()
    if vacuumed == "later":
        world.wait(days=3)
        world.vacuum()
        assert world.rows(state) == rows
        assert world.ids(standing) == ids
        assert not status(world).alarm
    else:
        world.vacuum()
        world.wait(ms=1)
        assert world.rows(State.DEAD) == letters(world) == standing
        assert all(segment.retired for segment in world.known.segments)
    assert_folds_alike(world)


def waiting(home: Path, state: State) -> TableWorld:
    """Make a queue that has messages in a state."""
    if state is State.INACTIVE:
        world = TableWorld(home, target_queue_depth=1_000)
        world.append(1_000, 1_000)
        return entered(world)
    keys: dict[str, Any] = {"barrier": "id = 11"} if state is State.HELD else {}
    world = entered(TableWorld(home, **keys))
    if state in (State.DELAYED, State.DEAD):
        lease = world.take(2, ack_mode="explicit")
        assert lease is not None
        outcome, retry_after_ms = ("expire", None) if state is State.DEAD else ("cancel", 30 * DAY_MS)
        given = commands.OutcomeRows(outcome=outcome, ranges=((0, 2),), lease=lease.number, retry_after_ms=retry_after_ms)
        world.decide(commands.Settle, queue="WORK", outcomes=(given,))
        world.prove(lease)
    return world


def test_a_barrier_that_was_released_and_is_lost_is_received_by_nobody(tmp_path: Path) -> None:
    world = TableWorld(tmp_path, barrier="id = 10")
    lease = world.take()
    assert lease is None
    world.append(10, 1)
    world.append(20, 2)
    world.enter()
    assert list(world.queue.subscriptions["s"].barriers) == [0]
    world.optimize()
    world.enter()
    world.append(30, 1)
    world.enter()
    Path(world.table, world.segment(0).path).unlink()
    world.wait(ms=1)
    (received,) = world.records(Kind.BARRIER_RECEIVED)
    assert (received.reason, list(received.ranges), received.subscription) == ("lost", [(0, 1)], "s")
    lease = world.take(ack_mode="auto")
    assert lease is not None
    assert list(lease.rows) == [1, 2, 3]
    assert_folds_alike(world)


def test_a_refusal_of_the_store_is_no_answer(world: TableWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """R155: 403, a failure, or a store that is away: nothing is lost."""
    world.vacuum()
    whole = Store.has
    for refusal in (PermissionError(13, "denied"), OSError(5, "input/output error")):

        def refuse(store: Store, key: str, refusal: OSError = refusal) -> bool:
            with store.failures(f"looking for {key}"):
                raise refusal

        monkeypatch.setattr(Store, "has", refuse)
        world.wait(ms=LOOK_MS)
        assert letters(world) == []
    monkeypatch.setattr(Store, "has", whole)
    Path(world.table).rename(Path(world.table).with_name("away"))
    world.wait(days=3)
    assert letters(world) == [], "the table itself is not to be seen"
    Path(world.table).with_name("away").rename(world.table)
    world.wait(ms=LOOK_MS)
    assert letters(world) == [0, 1, 3, 4]


def test_a_missing_file_that_the_table_has_is_damage_of_the_table(tmp_path: Path) -> None:
    """R155: as today, and nothing is lost by itself."""
    world = entered(TableWorld(tmp_path))
    Path(world.table, world.segment(0).path).unlink()
    world.wait(days=9)
    assert world.rows(State.AVAILABLE) == [0, 1, 2, 3, 4]
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        world.ids([0])


def test_a_fold_that_meets_a_missing_file_sets_the_queue_aside_until_it_is_given_up(world: TableWorld) -> None:
    """R155."""
    world.vacuum()
    world.begin()
    assert world.state.troubles["WORK"].code == "MESSAGE_FILE_MISSING"
    world.wait(ms=LOOK_MS)
    assert world.records(Kind.RETIRED) == [], "it might come back, and the queue might need everything"
    world.decide(commands.GiveUpFiles, message_type="orders")
    world.begin()
    assert not world.state.troubles
    assert world.rows(State.AVAILABLE) == []
    world.append(40, 1)
    world.enter()
    assert world.rows(State.AVAILABLE) == [5]
    with pytest.raises(CallerError, match="UNSUPPORTED_WRITE.*none of its files is missing"):
        world.decide(commands.GiveUpFiles, message_type="orders")
    assert_folds_alike(world)


def test_a_snapshot_without_a_queue_is_of_no_use_once_its_file_is_given_up(world: TableWorld) -> None:
    """R155: the queue is folded from before it was set aside, without that file."""
    world.vacuum()
    world.begin()
    control, traits = world.journal.control, world.journal.traits
    snapshot.capture(world.store, open_control(world.store).blocks, traits)
    assert list(control.load().fold(traits).troubles) == ["WORK"], "the newest snapshot is one without it"
    world.decide(commands.GiveUpFiles, message_type="orders")
    assert not control.load().fold(traits).troubles


def test_a_message_that_came_back_is_lost_as_a_reign_begins_without_its_file(tmp_path: Path) -> None:
    """R155: nobody is granted it, or counts it, before the first round."""
    world = entered(TableWorld(tmp_path, filter="id <> 12"))
    world.optimize()
    world.enter()
    lease = world.take(1, ack_mode="explicit")
    assert lease is not None
    returned = commands.OutcomeRows(outcome="cancel", ranges=((0, 1),), lease=lease.number)
    world.decide(commands.Settle, queue="WORK", outcomes=(returned,))
    world.prove(lease)
    assert world.rows(State.AVAILABLE) == [0, 1, 3, 4]
    world.vacuum()
    world.begin()
    world.decide(commands.GiveUpFiles, message_type="orders")
    world.begin()
    assert (world.rows(State.AVAILABLE), letters(world)) == ([], [0])


def test_a_file_that_a_consumer_did_not_find_is_looked_for_soon(tmp_path: Path) -> None:
    """R155: though not at each failure, and not those of others."""
    world = entered(TableWorld(tmp_path))
    world.optimize()
    world.enter()
    world.wait(ms=1)
    Path(world.table, world.segment(0).path).unlink()
    world.wait(ms=LOOK_SOON_MS)
    assert letters(world) == []
    world.journal.look_for_files("WORK", BitMap64([4]))
    world.wait(ms=1)
    assert letters(world) == [], "another file is there"
    world.journal.look_for_files("WORK", BitMap64([1]))
    world.wait(ms=LOOK_SOON_MS)
    assert letters(world) == [0, 1, 2]
    Path(world.table, world.segment(3).path).unlink()
    world.journal.look_for_files("WORK", BitMap64([3]))
    world.wait(ms=LOOK_SOON_MS - 1)
    assert letters(world) == [0, 1, 2]
    world.wait(ms=1)
    assert letters(world) == [0, 1, 2, 3, 4]


def test_a_file_that_is_missed_is_looked_for_once_nobody_has_its_messages_in_hand(tmp_path: Path) -> None:
    """R155: sooner nothing would come of it, and the next look by itself is minutes away."""
    world = entered(TableWorld(tmp_path))
    world.optimize()
    world.enter()
    world.wait(ms=1)
    assert world.take(2) is not None
    Path(world.table, world.segment(0).path).unlink()
    world.journal.look_for_files("WORK", BitMap64([0, 1]))
    world.wait(ms=LOOK_SOON_MS)
    assert (letters(world), world.rows(State.LEASED)) == ([], [0, 1])
    world.wait(ms=LEASE_MS)
    assert letters(world) == [0, 1, 2]


def test_what_is_leased_as_its_file_is_given_up_is_lost_after_the_lease(tmp_path: Path) -> None:
    """R155: also where the table itself is gone."""
    world = entered(TableWorld(tmp_path))
    lease = world.take(1)
    assert lease is not None
    world.drop()
    world.decide(commands.GiveUpFiles, message_type="orders")
    assert (letters(world), world.rows(State.LEASED)) == ([1, 2, 3, 4], [0])
    world.begin()
    assert world.rows(State.LEASED) == [0]
    world.wait(days=1)
    assert letters(world) == [0, 1, 2, 3, 4]
    assert_folds_alike(world)
    assert letters(world) == [0, 1, 2, 3, 4]


def test_the_alarm_of_lost_messages_ends_by_a_word(world: TableWorld) -> None:
    """R155: not with time, since nobody might have seen it."""
    world.vacuum()
    world.wait(ms=1)
    world.apply(WORK={**world.definitions["queues"]["WORK"], "dead_letter_retention": "1d"})
    world.wait(days=30)
    assert "TABLE_ROWS_LOST" in str(status(world).alarm)
    world.decide(commands.ForgetLost, message_type="orders")
    assert status(world).alarm is None
    assert world.rows(State.DEAD) == []
    assert_folds_alike(world)


def test_files_that_nobody_copies_are_an_alarm_at_two_thirds(world: TableWorld) -> None:
    """R157: a coordinator that runs copies before; views tell where none does."""
    world.now_ms += int(4.6 * DAY_MS)
    assert status(world).alarm is None
    world.now_ms += int(0.1 * DAY_MS)
    assert "[TABLE_FILES_DUE] 4 messages of queue 'WORK' stand in 2 files" in str(status(world).alarm)
    world.wait(ms=1)
    assert status(world).alarm is None


def test_where_a_type_goes_on_it_is_noted_what_its_table_has_no_more(tmp_path: Path) -> None:
    """R154: of the versions that are skipped, from their entries, or from the table where those are gone."""
    world = entered(TableWorld(tmp_path, type_keys={"on_change": "stop"}, filter="id <> 12"))
    world.delete("id = 10")
    world.delete("id = 20")
    assert world.enter() is not None
    world.decide(commands.Follow, message_type="orders", first=5)
    known = world.known.followed
    assert known is not None
    assert set(known.removed) == {world.segment(0).path, world.segment(3).path}
    assert all(abs(at_ms - world.now_ms) < 3_600_000 for at_ms in known.removed.values())
    world.wait(days=3)
    world.vacuum()
    assert world.ids(world.rows(State.AVAILABLE)) == [10, 11, 20, 21]
    assert_folds_alike(world)


def test_where_a_type_goes_on_behind_a_gap_removed_files_are_due_at_once(tmp_path: Path) -> None:
    """R154: nobody knows when they were removed."""
    world = entered(TableWorld(tmp_path, filter="id <> 12"))
    world.delete("id = 10")
    world.append(30, 1)
    DeltaTable(world.table).create_checkpoint()
    Path(world.table, "_delta_log", f"{3:020d}.json").unlink()
    trouble = world.enter()
    assert trouble is not None
    assert trouble.code == "LOG_GAP"
    assert "`sparkq follow JOURNAL orders --from 4`" in str(trouble)
    world.decide(commands.Follow, message_type="orders", first=5)
    known = world.known.followed
    assert known is not None
    assert known.removed == {world.segment(0).path: 0}
    world.wait(ms=1)
    assert kept(world) == [((0, 2),)]


def test_of_another_table_no_file_is_there(tmp_path: Path) -> None:
    """R154: also where it goes on with that one."""
    world = entered(TableWorld(tmp_path))
    world.drop()
    for number in range(4):
        world.append(100 + number, 1)
    assert world.enter() is not None
    world.decide(commands.Follow, message_type="orders")
    world.wait(ms=1)
    assert letters(world) == [0, 1, 2, 3, 4]
    world.append(200, 1)
    assert world.enter() is None
    assert world.ids(world.rows(State.AVAILABLE)) == [200]


def test_a_table_made_anew_and_followed_from_its_start_breaks_no_invariant(tmp_path: Path) -> None:
    """R148: its versions begin anew, so they are lower than those that entered before."""
    world = entered(TableWorld(tmp_path))
    world.drop()
    for number in range(4):
        world.append(100 + number, 1)
    assert world.enter() is not None
    world.decide(commands.Follow, message_type="orders", first=0)
    assert world.enter() is None
    assert [segment.version for segment in world.known.segments] == [1, 2, 0, 1, 2, 3]
    assert of_state(world.state) == []
