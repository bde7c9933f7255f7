"""The queue stream's side towards Spark, over a planner that only notes what it is asked."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest

from spark_queue.client.coordinator_client import RowRanges
from spark_queue.core import folds
from spark_queue.core.creation import first_records
from spark_queue.core.definitions.parsing import parse
from spark_queue.core.replies import Granted
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.status import queue_status
from spark_queue.errors import LeaseError
from spark_queue.journal.store import Store
from spark_queue.journal.traits import FileTraits
from spark_queue.settings.types import QueueStreamOptions
from spark_queue.source import planner
from spark_queue.source.offsets import QueueOffset
from spark_queue.source.partitions import MessagePartition, MessageReader
from spark_queue.source.spark_versions import EarlierStreamReader, ReadAllAvailable, ReadMaxRows
from spark_queue.source.stream_reader import LONG_POLL_MS, QueueStreamReader
from tests.unit.source.test_partitions import pieces_of

READER = MessageReader(store=Store("/journal"), message_type="json", schema=pa.schema([("value", pa.string())]))


def idle_state() -> JournalState:
    """Give a journal with one queue and no messages."""
    state = JournalState(FileTraits(Store("/nowhere")))
    for record in first_records(
        "j",
        parse({"message_types": {"json": {"topics": ["T"]}}, "queues": {"WORK": {"underlying_topic": "T"}}}),
        FileTraits(Store("/nowhere")),
        now_ms=0,
    ):
        folds.fold(state, record)
    return state


STATUS = queue_status(idle_state(), "WORK", now_ms=0)


class FakePlanner:
    """Grants lease after lease while told that there is something."""

    def __init__(self, *, available_now: bool) -> None:
        self.available_now = available_now
        self.asked: list[tuple[Any, ...]] = []
        #: Of each call for a lease, whether its caller asks again where nothing is there.
        self.ask_again: list[bool] = []
        self.has_more = True
        #: How many more answers say that something waits for others.
        self.withheld = 0
        self.left = 0

    def next(self, *, finished: int, limit: int, wait_ms: int, asks_again: bool = False) -> Granted:
        self.asked.append(("next", finished, limit, wait_ms))
        self.ask_again.append(asks_again)
        if self.withheld:
            self.withheld -= 1
            return Granted(lease=finished, lease_period_ms=60_000, status=STATUS, withheld=True)
        return Granted(lease=finished + self.has_more, messages=2, leased_until_ms=5_000, lease_period_ms=60_000, status=STATUS)

    def rows(self, lease: int) -> RowRanges:
        self.asked.append(("rows", lease))
        return RowRanges(message_type="json", lease=lease, leased_until_ms=5_000, pieces=pieces_of(("a.parquet", 0, 4, 10, 1)))

    def leave(self) -> None:
        self.left += 1


class Seats:
    """Counts the planners that were made."""

    def __init__(self) -> None:
        self.taken: list[FakePlanner] = []

    def __call__(self, options: QueueStreamOptions, journal_id: str, *, columns: str | None, available_now: bool) -> FakePlanner:
        assert (options.queue, journal_id, columns) == ("WORK", "j", "value STRING")
        self.taken.append(FakePlanner(available_now=available_now))
        return self.taken[-1]


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def seats(monkeypatch: pytest.MonkeyPatch) -> Seats:
    made = Seats()
    monkeypatch.setattr(planner, "QueuePlanner", made)
    return made


@pytest.fixture
def reader(seats: Seats) -> QueueStreamReader:
    start = QueueOffset(journal="j", queue="WORK", subscription="s")
    options = QueueStreamOptions(
        journal="/journal", storage={}, coordinator=None, queue="WORK", subscription="s", ack_mode="auto", max_backlog=100,
        filter=None, columns=None, min_partitions=2,
    )  # fmt: skip
    return QueueStreamReader(options, first_offset=start, reader=READER, columns="value STRING")


def offset(lease: int, **change: Any) -> dict[str, Any]:
    return {"v": 1, "journal": "j", "queue": "WORK", "subscription": "s", "lease": lease, **change}


def test_reader_takes_no_seat_before_the_first_call(reader: QueueStreamReader, seats: Seats) -> None:
    """DESIGN 15.6: Spark makes a second reader that never plans."""
    assert seats.taken == []
    assert reader.getDefaultReadLimit() == ReadMaxRows(100)
    reader.initialOffset()
    assert [seat.available_now for seat in seats.taken] == [False]


def test_reader_asks_for_what_is_there_now_when_the_trigger_is_available_now(reader: QueueStreamReader, seats: Seats) -> None:
    reader.prepareForTriggerAvailableNow()
    reader.latestOffset(offset(0), ReadMaxRows(100))
    assert [seat.available_now for seat in seats.taken] == [True]
    assert seats.taken[0].asked == [("next", 0, 100, 0)]


def test_a_run_of_what_is_there_now_waits_for_what_others_may_not_take(reader: QueueStreamReader, seats: Seats) -> None:
    """DESIGN 8: it ends when nothing is left that it may get, not when others have a share of it."""
    reader.prepareForTriggerAvailableNow()
    seats.taken[0].withheld = 2
    assert reader.latestOffset(offset(0), ReadMaxRows(100)) == offset(1)
    assert seats.taken[0].asked == [("next", 0, 100, 0), ("next", 0, 100, LONG_POLL_MS), ("next", 0, 100, LONG_POLL_MS)]
    assert not any(seats.taken[0].ask_again), "it ends by the answer (P7)"


def test_a_run_without_end_asks_again_when_spark_does(reader: QueueStreamReader, seats: Seats) -> None:
    reader.initialOffset()
    seats.taken[0].withheld = 1
    assert reader.latestOffset(offset(0), ReadMaxRows(100)) == offset(0)
    assert len(seats.taken[0].asked) == 1


def test_latest_offset_proves_its_start_and_names_the_next_lease(reader: QueueStreamReader, seats: Seats) -> None:
    assert reader.latestOffset(offset(6), ReadMaxRows(100)) == offset(7)
    assert seats.taken[0].asked == [("next", 6, 100, LONG_POLL_MS)]
    assert seats.taken[0].ask_again == [True]


def test_latest_offset_gives_its_start_back_untouched_when_nothing_is_there(reader: QueueStreamReader, seats: Seats) -> None:
    reader.initialOffset()
    seats.taken[0].has_more = False
    start = offset(6)
    assert reader.latestOffset(start, ReadMaxRows(100)) is start


def test_latest_offset_keeps_to_the_backlog_when_spark_wants_everything_at_once(reader: QueueStreamReader, seats: Seats) -> None:
    reader.latestOffset(offset(0), ReadAllAvailable())
    assert seats.taken[0].asked == [("next", 0, 100, 0)]


def test_latest_offset_of_another_queue_asks_nobody(reader: QueueStreamReader, seats: Seats) -> None:
    with pytest.raises(LeaseError, match="CHECKPOINT_FOREIGN"):
        reader.latestOffset(offset(3, queue="OTHER"), ReadMaxRows(100))
    assert seats.taken == []


def test_report_latest_offset_tells_how_full_the_queue_is(reader: QueueStreamReader) -> None:
    assert reader.reportLatestOffset() is None
    reader.latestOffset(offset(0), ReadMaxRows(100))
    assert reader.reportLatestOffset() == asdict(STATUS)


def test_partitions_of_no_range_ask_nobody(reader: QueueStreamReader, seats: Seats) -> None:
    assert reader.partitions(offset(0), offset(0)) == []
    assert seats.taken == []


def test_partitions_cut_the_lease_of_the_end_also_as_first_call(reader: QueueStreamReader, seats: Seats) -> None:
    parts = reader.partitions(offset(3), offset(4))
    assert seats.taken[0].asked == [("rows", 4)]
    assert len(parts) == 2
    assert all(isinstance(part, MessagePartition) and (part.lease, part.leased_until_ms) == (4, 5_000) for part in parts)


@pytest.mark.parametrize(("start", "end"), [(offset(3, journal="k"), offset(4)), (offset(3), offset(4, journal="k"))])
def test_partitions_of_another_journal_are_refused(reader: QueueStreamReader, start: dict[str, Any], end: dict[str, Any]) -> None:
    with pytest.raises(LeaseError, match="CHECKPOINT_FOREIGN"):
        reader.partitions(start, end)


def test_stop_leaves_once(reader: QueueStreamReader, seats: Seats) -> None:
    reader.initialOffset()
    reader.stop()
    reader.stop()
    assert seats.taken[0].left == 1


def test_stop_of_a_reader_that_never_planned_leaves_nothing(reader: QueueStreamReader, seats: Seats) -> None:
    reader.stop()
    assert seats.taken == []


def test_sigterm_becomes_an_ordinary_exit_because_spark_ends_planners_with_it(reader: QueueStreamReader) -> None:
    """DESIGN 7: only on the way out of its loop does the planner process call stop."""
    reader.initialOffset()
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 0


def test_a_sigterm_does_not_cut_the_leave_short(seats: Seats, reader: QueueStreamReader) -> None:
    """Spark closes the connection and sends SIGTERM at once."""

    class Slow(FakePlanner):
        def leave(self) -> None:
            signal.raise_signal(signal.SIGTERM)
            super().leave()

    reader.initialOffset()
    seats.taken[0].__class__ = Slow
    reader.stop()
    assert seats.taken[0].left == 1


def test_a_planner_in_another_thread_leaves_signals_alone(seats: Seats, reader: QueueStreamReader) -> None:
    """Only the main thread may set them."""
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(reader.initialOffset).result() == offset(0)
        thread.submit(reader.stop).result()
    assert seats.taken[0].left == 1


@pytest.mark.parametrize("call", ["getDefaultReadLimit", "initialOffset", "prepareForTriggerAvailableNow"])
def test_whatever_spark_calls_first_takes_the_seat(seats: Seats, reader: QueueStreamReader, call: str) -> None:
    """DESIGN 15.6: its place in the order of starts is drawn as early as can be."""
    getattr(reader, call)()
    assert len(seats.taken) == 1


def test_reader_ships_as_what_executors_need_and_nothing_else(reader: QueueStreamReader) -> None:
    reader.initialOffset()
    assert pickle.loads(pickle.dumps(reader)) == READER


#: What Spark 4.0 and 4.1 call until they ask for a next offset for the last time, and what they have committed then.
TRACES: dict[str, tuple[list[tuple[Any, ...]], int]] = {
    "a first start": ([("initialOffset",), ("latestOffset",)], 0),
    "its second batch": ([("latestOffset",), ("initialOffset",), ("partitions", 0, 1), ("latestOffset",)], 1),
    "a first batch of nothing": ([("initialOffset",), ("partitions", 0, 0), ("latestOffset",)], 0),
    "an offset that it has not planned": ([("latestOffset",), ("latestOffset",)], 0),
    "a restart": ([("partitions", 4, 4), ("latestOffset",)], 4),
    "a restart with a batch that is not committed": ([("partitions", 4, 4), ("partitions", 3, 4), ("latestOffset",)], 4),
    "a restart with the first batch": ([("partitions", 1, 1), ("initialOffset",), ("partitions", 0, 1), ("latestOffset",)], 1),
    "a batch that is planned twice": ([("partitions", 4, 4), ("partitions", 4, 5), ("partitions", 4, 5), ("latestOffset",)], 5),
}


@pytest.mark.parametrize(("calls", "committed"), TRACES.values(), ids=TRACES.keys())
def test_an_earlier_spark_tells_by_its_calls_what_it_has_committed(
    reader: QueueStreamReader, seats: Seats, calls: list[tuple[Any, ...]], committed: int
) -> None:
    earlier = EarlierStreamReader(reader)
    answers = [getattr(earlier, name)(*map(offset, leases)) for name, *leases in calls]
    assert answers[-1] == offset(committed + 1)
    assert [asked for asked in seats.taken[0].asked if asked[0] == "next"][-1] == ("next", committed, 100, LONG_POLL_MS)


def test_an_earlier_spark_is_given_the_very_offset_back_when_nothing_is_there(reader: QueueStreamReader, seats: Seats) -> None:
    """DESIGN 7: Spark compares offsets as text."""
    earlier, newest = EarlierStreamReader(reader), offset(6)
    earlier.partitions(newest, newest)
    earlier.initialOffset()
    seats.taken[0].has_more = False
    assert earlier.latestOffset() is newest


def test_stream_of_an_earlier_spark_ships_alike_and_leaves_once(reader: QueueStreamReader, seats: Seats) -> None:
    earlier = EarlierStreamReader(reader)
    earlier.initialOffset()
    assert pickle.loads(pickle.dumps(earlier)) == READER
    earlier.stop()
    assert seats.taken[0].left == 1
