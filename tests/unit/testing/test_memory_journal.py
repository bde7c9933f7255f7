"""The journal in memory fails where a test says, as storage does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import CoordinatorError, JournalError
from tests.fake_clock import FakeClock
from tests.memory_journal import LateCommitError, MemoryControlLog, MemoryJournal, MemoryStorage
from tests.records import record_of


def claim(storage: MemoryStorage, epoch: int) -> MemoryControlLog:
    control = MemoryControlLog(storage)
    number = len(control.load().records)
    control.append([record_of(kind=Kind.EPOCH_CLAIMED, record=number, epoch=epoch, detail={"host": "h"})], epoch=epoch)
    return control


def append(control: MemoryControlLog, epoch: int) -> None:
    control.append([record_of(kind=Kind.LEFT, record=len(control._storage.commits) + 1, epoch=epoch)], epoch=epoch)


def fail_at(step: str, moment: str, failure: Callable[[], OSError] = OSError) -> Callable[[str, str], None]:
    def hook(now: str, when: str) -> None:
        if (now, when) == (step, moment):
            raise failure()

    return hook


@pytest.mark.parametrize(("moment", "stored"), [("before", 0), ("after", 1)])
def test_commit_that_fails_is_stored_only_if_its_reply_was_lost(moment: str, stored: int) -> None:
    storage = MemoryStorage()
    control = claim(storage, 1)
    version = storage.version
    storage.hook = fail_at("control.append", moment)
    with pytest.raises(JournalError, match="STORE_FAILED"):
        append(control, 1)
    assert storage.version == version + stored


def test_late_commit_lands_while_its_version_is_free() -> None:
    """A commit that was on its way when its coordinator ended may still arrive; the next reign then starts after it."""
    storage = MemoryStorage()
    control = claim(storage, 1)
    storage.hook = fail_at("control.append", "before", LateCommitError)
    with pytest.raises(JournalError, match="STORE_FAILED"):
        append(control, 1)
    version = storage.version
    assert storage.late.pop().land()
    assert storage.version == version + 1


def test_late_commit_is_refused_once_its_version_is_taken() -> None:
    storage = MemoryStorage()
    control = claim(storage, 1)
    storage.hook = fail_at("control.append", "before", LateCommitError)
    with pytest.raises(JournalError, match="STORE_FAILED"):
        append(control, 1)
    storage.hook = fail_at("", "")
    claim(storage, 2)
    assert not storage.late.pop().land()


def test_newer_claim_that_lands_between_commit_and_check_deposes() -> None:
    storage = MemoryStorage()
    control = claim(storage, 1)

    def be_overtaken(step: str, moment: str) -> None:
        if (step, moment) == ("control.append", "after"):
            storage.hook = fail_at("", "")
            claim(storage, 2)

    storage.hook = be_overtaken
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        append(control, 1)


def test_hook_hears_of_every_step() -> None:
    storage = MemoryStorage()
    heard: list[tuple[str, str]] = []
    storage.hook = lambda step, moment: heard.append((step, moment))
    journal = MemoryJournal(storage)
    claim(storage, 1)
    journal.create_message_table("extra", "id BIGINT")
    journal.messages("extra").recover(version=-1, token="")
    list(journal.messages("extra").tail(-1))
    journal.upkeep(epoch=1, state=JournalState(journal.traits), now_ms=0)
    steps = ["control.load", "control.append", "messages.create", "messages.recover", "messages.tail", "upkeep"]
    assert [step for step, moment in heard if moment == "after" and step != "control.check"] == steps


def test_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(1_000)
    clock.advance(500)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_500, 500)
    clock.set_wall(10)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (10, 500)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
