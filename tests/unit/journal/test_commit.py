"""The commit of a publish under races, lost replies, pauses and failures (DESIGN 4): once, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_queue.errors import CallerError, JournalError
from spark_queue.journal import commit, delta, log_entry
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.entry_parts import Mark, NewFile
from spark_queue.journal.publisher import Identity, commit_staged, open_name, publish
from spark_queue.journal.staging import stage_file
from spark_queue.journal.store import messages_key
from spark_queue.journal.upkeep import clean
from tests.fake_clock import FakeClock
from tests.unit.journal.journal_on_disk import Disk, orders
from tests.unit.journal.reign import Reign, publish_some

ORDER = messages_key("order")
PUT = DeltaHead.put


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "back_off", lambda attempt: None)


def at_put(monkeypatch: pytest.MonkeyPatch, *acts: Callable[..., bool]) -> None:
    """Let the next puts be these acts instead; later ones are real."""
    pending = list(acts)

    def put(*given: Any, **named: Any) -> bool:
        act = pending.pop(0) if pending else PUT
        return act(*given, **named)

    monkeypatch.setattr(DeltaHead, "put", put)


def store_failed(reason: str) -> JournalError:
    return JournalError("STORE_FAILED", path="p", doing="creating an entry", reason=reason, next_step="")


def lose_reply(*given: Any, **named: Any) -> bool:
    PUT(*given, **named)
    raise store_failed("connection reset.")


def fail(*_: Any, **__: Any) -> bool:
    raise store_failed("the store is on fire.")


def after(deed: Callable[[], object]) -> Callable[..., bool]:
    """Let something happen just before the put."""

    def put(*given: Any, **named: Any) -> bool:
        deed()
        return PUT(*given, **named)

    return put


def test_commit_whose_reply_is_lost_is_found_and_not_repeated(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    at_put(monkeypatch, lose_reply)
    assert disk.publish([1, 2]).rows == 2
    assert disk.ids() == [1, 2]


def test_commit_whose_reply_is_lost_is_found_behind_another_commit(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_reply_and_be_overtaken(*given: Any, **named: Any) -> bool:
        PUT(*given, **named)
        disk.publish([9])
        raise store_failed("connection reset.")

    at_put(monkeypatch, lose_reply_and_be_overtaken)
    assert disk.publish([1, 2]).rows == 2
    assert disk.ids() == [1, 2, 9]


@pytest.mark.parametrize("moment", ["read_on", "read_entry"])
def test_nothing_is_decided_before_a_commit_was_looked_for(disk: Disk, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """It landed, another followed, and looking fails at first: deciding again on the new head would publish it twice."""
    place = DeltaHead if moment == "read_on" else commit
    original = getattr(place, moment)

    def fail_once(*_: Any) -> None:
        monkeypatch.setattr(place, moment, original)
        raise store_failed("connection reset.")

    def be_overtaken(*given: Any, **named: Any) -> bool:
        PUT(*given, **named)
        disk.publish([9])
        monkeypatch.setattr(place, moment, fail_once)
        raise store_failed("connection reset.")

    at_put(monkeypatch, be_overtaken)
    assert disk.publish([1, 2]).rows == 2
    assert disk.ids() == [1, 2, 9]


def test_nothing_is_committed_while_the_journal_is_away(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit would stand alone in a folder that is gone when the journal comes back."""
    disk.publish([1])
    at_put(monkeypatch, after(disk.go_away))
    with pytest.raises(JournalError, match=r"STORE_FAILED.*its table is not there.*It is unknown whether the commit arrived"):
        disk.publish([2])
    disk.come_back()
    assert disk.ids() == [1]


def test_number_that_was_drawn_while_the_journal_was_away_is_not_given(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """R98: when the journal is back, another would draw it, too."""
    at_put(monkeypatch, after(disk.go_away))
    with pytest.raises(JournalError, match="STORE_FAILED"):
        open_name(disk.store, disk.journal_id, ["order"], "p", durable=False)
    disk.come_back()
    assert open_name(disk.store, disk.journal_id, ["order"], "p", durable=False).numbers == {"order": 1}


def test_commit_that_cannot_be_looked_for_is_told_as_unknown(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_to_read(*_: Any) -> None:
        raise store_failed("connection reset.")

    at_put(monkeypatch, lose_reply)
    monkeypatch.setattr(DeltaHead, "read_on", fail_to_read)
    with pytest.raises(JournalError, match=r"STORE_FAILED.*connection reset\. .*It is unknown whether the commit arrived"):
        disk.publish([1])


def test_what_no_second_look_can_mend_is_told_as_it_is(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_damage(*_: Any) -> None:
        raise JournalError("LOG_GAP", path="p", version=1, next_step="")

    at_put(monkeypatch, lose_reply)
    monkeypatch.setattr(DeltaHead, "read_on", find_damage)
    with pytest.raises(JournalError, match="LOG_GAP"):
        disk.publish([1])


def test_lost_race_is_decided_again_on_the_new_head(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    at_put(monkeypatch, after(lambda: disk.publish([8])), PUT, after(lambda: disk.publish([9])))
    assert disk.publish([1]).rows == 1
    assert disk.ids() == [1, 8, 9]


def test_name_that_is_opened_between_check_and_commit_refuses_the_batch(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """R98 holds at the very version that the commit lands on."""
    opened = open_name(disk.store, disk.journal_id, ["order"], "p", durable=False)
    at_put(monkeypatch, after(lambda: open_name(disk.store, disk.journal_id, ["order"], "p", durable=False)))
    with pytest.raises(CallerError, match="PUBLISHER_NAME_IN_USE"):
        disk.publish([1], identity=Identity(publisher="p", exclusive=True, number=opened.numbers["order"]), first_sequence=1)
    assert disk.ids() == []


def test_same_batch_from_two_processes_at_once_is_there_once(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = Identity(publisher="p")
    at_put(monkeypatch, after(lambda: disk.publish([1, 2], identity=identity, first_sequence=1)))
    assert disk.publish([1, 2], identity=identity, first_sequence=1).duplicates == 2
    assert disk.ids() == [1, 2]


def test_failure_that_goes_by_is_retried(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    at_put(monkeypatch, fail, fail)
    assert disk.publish([1]).rows == 1
    assert disk.ids() == [1]


def test_failure_that_stays_is_told_and_leaves_nothing(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    at_put(monkeypatch, *[fail] * commit.FAILURES_LIMIT)
    with pytest.raises(JournalError, match=r"STORE_FAILED.*while publishing: the store is on fire"):
        disk.publish([1])
    assert disk.tail_rows() == 0


def test_endless_races_end(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "RACES_LIMIT", 3)
    at_put(monkeypatch, *[fail_behind_another(disk, number) for number in range(3)])
    with pytest.raises(JournalError, match=r"PUBLISH_CONTENDED.*lost 3 races"):
        disk.publish([1])
    assert disk.ids() == [0, 1, 2]


def fail_behind_another(disk: Disk, number: int) -> Callable[..., bool]:
    def put(*given: Any, **named: Any) -> bool:
        head = DeltaHead(disk.store, ORDER, DeltaTable(disk.store.messages_uri("order")))
        file = stage_file(disk.plan(), orders([number]).to_batches(), now_ms=0)
        assert file is not None
        new = NewFile(path=file.path, size_bytes=file.size_bytes, modified_ms=0, stats=file.stats())
        PUT(head, [new], mark=Mark(writer="publisher"), transactions={}, at_ms=0)
        return PUT(*given, **named)

    return put


def test_commit_of_a_paused_publisher_on_a_cleaned_version_is_made_again(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its put finds the version free, and its entry is invisible: only one behind an entry that still stands is success."""

    def pause() -> None:
        for number in range(10, 16):
            disk.publish([number])
        table = DeltaTable(disk.store.messages_uri("order"))
        table.create_checkpoint()
        clean(disk.store, ORDER, below=int(table.version()), before_ms=2**60)

    at_put(monkeypatch, after(pause))
    assert disk.publish([1]).rows == 1
    assert disk.ids() == [1, *range(10, 16)]


def test_a_paused_publisher_whose_first_look_fails_does_not_take_another_head_for_its_own(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry stands where nobody looks, and the log was opened anew before the failure."""
    read = log_entry.read_entry

    def fail_once(*given: Any) -> Any:
        monkeypatch.setattr(commit, "read_entry", read)
        raise store_failed("connection reset.")

    def pause() -> None:
        for number in range(10, 16):
            disk.publish([number])
        table = DeltaTable(disk.store.messages_uri("order"))
        table.create_checkpoint()
        clean(disk.store, ORDER, below=int(table.version()), before_ms=2**60)
        monkeypatch.setattr(commit, "read_entry", fail_once)

    at_put(monkeypatch, after(pause))
    assert disk.publish([1]).rows == 1
    assert disk.ids() == [1, *range(10, 16)]


def test_commit_that_landed_and_was_cleaned_away_before_anybody_looked_is_not_made_again(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher without sequences that sleeps for a day after its swap has nothing but its files to know the commit by."""

    def land_and_sleep(*given: Any, **named: Any) -> bool:
        is_own = PUT(*given, **named)
        for number in range(10, 13):
            disk.publish([number])
        table = DeltaTable(disk.store.messages_uri("order"))
        table.create_checkpoint()
        clean(disk.store, ORDER, below=int(table.version()), before_ms=2**60)
        return is_own

    at_put(monkeypatch, land_and_sleep)
    assert disk.publish([1]).rows == 1
    # A Delta reader counts a file once however often the log names it; bookmarks would be given out anew.
    assert list(disk.open().messages("order").tail(4)) == []
    assert disk.ids() == [1, 10, 11, 12]


@pytest.mark.parametrize("own_entry", ["stands", "was cleaned away"])
def test_commit_whose_file_was_merged_before_anybody_looked_is_not_made_again(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, own_entry: str
) -> None:
    """After a quiet day the entry before it goes soon, and then its file alone does not tell."""
    disk.publish([0])

    def land_and_be_merged(*given: Any, **named: Any) -> bool:
        is_own = PUT(*given, **named)
        publish_some(disk, 4, first=4)
        reign = Reign(disk, epoch=1)
        reign.enter()
        reign.upkeep()
        DeltaTable(disk.store.messages_uri("order")).create_checkpoint()
        clean(disk.store, ORDER, below=2 if own_entry == "stands" else 3, before_ms=2**60)
        return is_own

    at_put(monkeypatch, land_and_be_merged)
    assert disk.publish([1]).rows == 1
    assert disk.ids() == [0, 1, *range(12, 24)]


def test_files_staged_more_than_an_hour_ago_are_staged_anew(disk: Disk) -> None:
    """DESIGN 4: leftovers are deleted after a day, so a slow attempt must not rest on old files."""
    clock = FakeClock()
    plan = disk.plan()
    file = stage_file(plan, orders([1, 2]).to_batches(), now_ms=clock.wall_ms())
    assert file is not None
    clock.advance(commit.RESTAGE_MS + 1)
    commit_staged(plan, disk.journal_id, disk.definitions, [file], clock=clock)
    (entry,) = list(disk.open().messages("order").tail(0))
    assert entry.added[0].path != file.path
    assert disk.ids() == [1, 2]


def test_files_are_staged_anew_when_the_clock_was_set_back(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()

    def wait(*_: Any, **__: Any) -> bool:
        clock.advance(commit.RESTAGE_MS + 1)
        clock.set_wall(0)
        raise store_failed("slow.")

    before = clock.wall_ms()
    at_put(monkeypatch, wait)
    publish(disk.plan(), disk.journal_id, disk.definitions, orders([1]), clock=clock)
    assert clock.wall_ms() < before
    assert len(list(Path(disk.store.messages_uri("order")).glob("*.parquet"))) == 2
    assert disk.ids() == [1]


def test_durable_publish_reaches_the_disk_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 4, power loss: data file, its directory, log entry, its directory, before success, and what it follows before it."""
    disk = Disk(tmp_path / "journal", journal={"durability": "fsync"})
    synced: list[str] = []
    monkeypatch.setattr("spark_queue.journal.store.force", synced.append)
    disk.publish([1])
    (entry,) = list(disk.open().messages("order").tail(0))
    root = disk.store.messages_uri("order")
    log = disk.log_path(ORDER, 1)
    before = disk.log_path(ORDER, 0)
    data = [f"{root}/{entry.added[0].path}", root]
    assert synced[:6] == [*data, str(before), str(log.parent), str(log), str(log.parent)]
