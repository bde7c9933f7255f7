"""What the log tells of its newest reign, with a snapshot and without."""

from __future__ import annotations

from spark_queue.core import folds
from spark_queue.core.log_tail import LogTail
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.journal_state import JournalState
from tests.records import detail_of, record_of
from tests.scenario.traits import MemoryTraits


def claimed(epoch: int, record: int = 0) -> Record:
    return record_of(kind=Kind.EPOCH_CLAIMED, record=record, epoch=epoch, at_ms=epoch, detail={"address": f"a{epoch}"})


def after_snapshot(epoch: int, *records: Record) -> LogTail:
    state = JournalState(MemoryTraits())
    if epoch:
        folds.fold(state, claimed(epoch))
    return LogTail(records, state)


def test_newest_claim_is_that_of_the_records_and_else_that_of_the_snapshot() -> None:
    """The next reign is one above it, and asks at its address."""
    for tail, newest in [
        (LogTail([claimed(1), claimed(2, 1)]), 2),
        (after_snapshot(3), 3),
        (after_snapshot(3, claimed(4, 1), claimed(5, 2)), 5),
    ]:
        assert tail.claim is not None
        assert (tail.claim.epoch, detail_of(tail.claim)["address"]) == (newest, f"a{newest}")


def test_there_is_no_claim_before_the_first_reign() -> None:
    assert LogTail([]).claim is None
    assert after_snapshot(0).claim is None
