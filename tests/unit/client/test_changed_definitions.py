"""A publisher that is open goes by the definitions that hold when it commits, although it reads them once (PROTOCOL 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_queue import Journal
from spark_queue.client.shared_target import shared_target
from spark_queue.core.log_tail import LogTail
from spark_queue.core.records import DefinitionsApplied, EpochClaimed, Record
from spark_queue.errors import CallerError, ConfigError, JournalError
from spark_queue.journal import control_checkpoint, control_log, delta_head, message_table, snapshot
from spark_queue.journal.commit import Published
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.entry_parts import Mark
from spark_queue.journal.log_entry import DEFINITIONS_TXN
from spark_queue.journal.publisher import open_head
from spark_queue.journal.reader import JournalReader, open_control
from spark_queue.journal.store import CONTROL, log_key, messages_key
from spark_queue.journal.upkeep import clean
from tests.unit.journal.lost_reply import unanswered

TYPES: dict[str, Any] = {
    "lines": {"columns": "amount INT", "topics": ["LINES"]},
    "bills": {"columns": "amount BIGINT", "topics": ["BILLS"]},
}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(str(tmp_path / "journal"), {"message_types": TYPES})


#: Opens a journal for publishes, which go by the definitions of then as far as it knows.
Opened = Callable[[Journal], AbstractContextManager[Any]]


@pytest.fixture(params=["publisher", "handle", "handle in a loop", "processes after a checkpoint"])
def opened(request: pytest.FixtureRequest) -> Opened:
    """Return a way to publish that knows definitions of before: an open publisher, or a handle that all of the process share.

    A process that opens the journal goes by the newest checkpoint of the control log.
    """
    if request.param == "publisher":
        return lambda journal: journal.publisher("p")
    if request.param == "processes after a checkpoint":
        return checkpointed

    @contextmanager
    def shared(journal: Journal) -> Iterator[Any]:
        shared_target(journal.store, journal.endpoint)._open()
        yield journal if request.param == "handle" else InLoop(journal)

    return shared


@contextmanager
def checkpointed(journal: Journal) -> Iterator[Any]:
    control_checkpoint.write(journal.store, open_control(journal.store).as_entry(), durable=False)
    yield InProcesses(journal)


class InProcesses:
    """A journal to which processes publish, each once."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def publish(self, *given: Any, **named: Any) -> Published:
        shared_target.cache_clear()
        return self._journal.publish(*given, **named)


class InLoop:
    """A journal to which an event loop publishes."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def publish(self, *given: Any, **named: Any) -> Published:
        return asyncio.run(self._journal.publish_async(*given, **named))


def apply(journal: Journal, types: dict[str, Any], *, epoch: int = 1) -> None:
    """Commit other definitions, as a coordinator does."""
    control = DeltaControlLog(journal.store)
    number = control.load().next_record
    wanted = {**journal.definitions().stored, "message_types": types}
    control.append([Record(body=EpochClaimed(host="h", address="a", pid=1), record=number, epoch=epoch)], epoch=epoch)
    control.append([Record(body=DefinitionsApplied(definitions=wanted, resets={}), record=number + 1, epoch=epoch)], epoch=epoch)


def ids(journal: Journal, message_type: str) -> list[Any]:
    found: list[Any] = DeltaTable(journal.store.messages_uri(message_type)).to_pyarrow_table().column("amount").to_pylist()
    return sorted(found)


def moved() -> dict[str, Any]:
    """Return the types, with topic LINES at the other one."""
    return {"lines": {**TYPES["lines"], "topics": ["NOTES"]}, "bills": {**TYPES["bills"], "topics": ["BILLS", "LINES"]}}


def test_a_topic_that_has_moved_takes_the_next_publish_along(journal: Journal, opened: Opened) -> None:
    with opened(journal) as publisher:
        publisher.publish([{"amount": 1}], topic="LINES")
        apply(journal, moved())
        publisher.publish([{"amount": 2}], topic="LINES")
    assert (ids(journal, "lines"), ids(journal, "bills")) == ([1], [2])


def test_a_repeat_goes_nowhere_but_where_its_rows_may_be(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message type knows the numbers of its own rows: in another one, a repeat would be new."""
    with journal.publisher("p") as publisher:
        with unanswered(monkeypatch):
            publisher.publish([{"amount": 1}], topic="LINES")
        apply(journal, moved())
        for _ in range(2):
            with pytest.raises(CallerError, match="REPEAT_MOVED.*publisher 'p' arrived in message type 'lines'.*'bills' by now"):
                publisher.publish([{"amount": 1}], topic="LINES", first_sequence=1)
    with publisher:
        assert publisher.last_sequence == 1
        assert publisher.publish([{"amount": 2}], topic="LINES").rows == 1
    assert (ids(journal, "lines"), ids(journal, "bills")) == ([1], [2])


def test_a_topic_that_is_gone_is_refused_and_the_publisher_goes_on(journal: Journal, opened: Opened) -> None:
    with opened(journal) as publisher:
        publisher.publish([{"amount": 1}], topic="BILLS")
        apply(journal, {**TYPES, "lines": {**TYPES["lines"], "topics": ["NOTES"]}})
        with pytest.raises(ConfigError, match="UNKNOWN_TOPIC"):
            publisher.publish([{"amount": 2}], topic="LINES")
        assert publisher.publish([{"amount": 3}], topic="NOTES").rows == 1
    assert ids(journal, "lines") == [3]


def test_a_topic_that_is_new_is_known_to_an_open_publisher(journal: Journal, opened: Opened) -> None:
    with opened(journal) as publisher:
        publisher.publish([{"amount": 1}], topic="LINES")
        apply(journal, {**TYPES, "lines": {**TYPES["lines"], "topics": ["LINES", "NOTES"]}})
        assert publisher.publish([{"amount": 2}], topic="NOTES").rows == 1


def test_a_column_that_was_appended_meanwhile_is_published(journal: Journal, opened: Opened) -> None:
    columns = "amount INT, note STRING"
    with opened(journal) as publisher:
        publisher.publish([{"amount": 1}], topic="LINES")
        message_table.create(journal.store, journal.journal_id(), "lines", columns, durable=True)
        apply(journal, {**TYPES, "lines": {**TYPES["lines"], "columns": columns}})
        publisher.publish([{"amount": 2, "note": "new"}], topic="LINES")
    assert ids(journal, "lines") == [1, 2]


def test_a_table_that_was_altered_under_an_open_publisher_is_refused(journal: Journal, opened: Opened) -> None:
    with opened(journal) as publisher:
        publisher.publish([{"amount": 1}], topic="LINES")
        apply(journal, {**TYPES, "lines": {**TYPES["lines"], "columns": "amount INT, note STRING"}})
        with pytest.raises(JournalError, match=r"JOURNAL_DAMAGED.*note"):
            publisher.publish([{"amount": 2, "note": "new"}], topic="LINES")
    assert ids(journal, "lines") == [1]


def test_rows_that_can_be_read_once_are_published_by_the_new_definitions(journal: Journal, opened: Opened) -> None:
    with opened(journal) as publisher:
        apply(journal, moved())
        publisher.publish(({"amount": number} for number in (1, 2)), topic="LINES")
    assert ids(journal, "bills") == [1, 2]


class Once:
    """Rows that can be read once, and are no iterator."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = iter(rows)

    def __iter__(self) -> Any:
        return self._rows


@pytest.mark.parametrize("kind", ["once", "reader", "table"])
def test_rows_of_any_kind_are_read_again_where_definitions_changed(journal: Journal, opened: Opened, kind: str) -> None:
    table = pa.table({"amount": pa.array([1, 2], pa.int32())})
    rows: dict[str, Any] = {"once": Once([{"amount": 1}, {"amount": 2}]), "reader": table.to_reader(), "table": table}
    with opened(journal) as publisher:
        publisher.publish([{"amount": 0}], topic="LINES")
        apply(journal, moved())
        assert publisher.publish(rows[kind], topic="LINES").rows == 2
    assert ids(journal, "bills") == [1, 2]


def test_a_type_that_is_dropped_is_told_to_who_has_it_open(journal: Journal, opened: Opened) -> None:
    with opened(journal) as publisher:
        apply(journal, {"bills": TYPES["bills"]})
        with pytest.raises(ConfigError, match="UNKNOWN_TOPIC"):
            publisher.publish([{"amount": 1}], topic="LINES")


def test_a_log_that_names_definitions_which_the_control_log_lacks_keeps_nobody_from_publishing(
    journal: Journal, opened: Opened
) -> None:
    """As in a copy whose control log was taken first."""
    with opened(journal) as publisher:
        head = open_head(journal.store, journal.journal_id(), "lines")
        assert head.put([], mark=Mark(writer="x"), transactions={DEFINITIONS_TXN: 99}, at_ms=0)
        assert publisher.publish([{"amount": 1}], topic="LINES").rows == 1
        assert publisher.publish([{"amount": 2}], topic="LINES").rows == 1


def test_a_snapshot_that_holds_new_definitions_hides_them_from_nobody(
    journal: Journal, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep may have taken it before their coordinator died."""
    load = snapshot.load

    def without_records(*given: Any) -> LogTail:
        tail = load(*given)
        return replace(tail, records=[])

    with opened(journal) as publisher:
        with monkeypatch.context() as patch:
            patch.setattr(control_log, "announce", lambda *_, **__: None)
            apply(journal, moved())
            patch.undo()
            patch.setattr(snapshot, "load", without_records)
            DeltaControlLog(journal.store).load()
        publisher.publish([{"amount": 1}], topic="LINES")
    assert (ids(journal, "lines"), ids(journal, "bills")) == ([], [1])


def test_a_publisher_that_was_idle_goes_on_although_the_log_was_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.create(str(tmp_path / "durable"), {"message_types": TYPES, "journal": {"durability": "fsync"}})
    with journal.publisher("p") as publisher:
        publisher.publish([{"amount": 1}], topic="LINES")
        for number in (2, 3, 4):
            journal.publish([{"amount": number}], topic="LINES")
        table = DeltaTable(journal.store.messages_uri("lines"))
        table.create_checkpoint()
        clean(journal.store, messages_key("lines"), below=int(table.version()), before_ms=2**60)
        monkeypatch.setattr(delta_head, "_OLD_MS", -1)
        assert publisher.publish([{"amount": 5}], topic="LINES").rows == 1
    assert ids(journal, "lines") == [1, 2, 3, 4, 5]


def test_an_older_opening_is_refused_also_where_it_repeats_what_is_there(journal: Journal) -> None:
    """R98."""
    with journal.publisher("p") as older:
        older.publish([{"amount": 1}], topic="LINES")
        with journal.publisher("p") as newer:
            newer.publish([{"amount": 2}], topic="LINES")
            with pytest.raises(CallerError, match="PUBLISHER_NAME_IN_USE"):
                older.publish([{"amount": 1}], topic="LINES", first_sequence=1)


def test_definitions_that_change_while_a_publish_is_on_its_way_count(
    journal: Journal, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come between its decision and its put, which the put-if-absent shows."""
    put = DeltaHead.put

    def overtaken(*given: Any, **named: Any) -> bool:
        monkeypatch.setattr(DeltaHead, "put", put)
        apply(journal, moved())
        return put(*given, **named)

    with opened(journal) as publisher:
        monkeypatch.setattr(DeltaHead, "put", overtaken)
        publisher.publish([{"amount": 1}], topic="LINES")
    assert (ids(journal, "lines"), ids(journal, "bills")) == ([], [1])


def test_an_open_publisher_reads_definitions_once(journal: Journal, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(journal) as publisher:
        publisher.publish([{"amount": 1}], topic="LINES")
        monkeypatch.setattr(JournalReader, "numbered_definitions", lambda _: pytest.fail("they are read again"))
        for number in (2, 3):
            publisher.publish([{"amount": number}], topic="LINES")
    assert ids(journal, "lines") == [1, 2, 3]


def test_a_process_does_not_go_by_a_checkpoint_whose_commit_is_away(journal: Journal) -> None:
    apply(journal, moved())
    with checkpointed(journal) as processes:
        (Path(journal.path) / log_key(CONTROL, open_control(journal.store).version)).unlink()
        with pytest.raises(JournalError, match="JOURNAL_DAMAGED"):
            processes.publish([{"amount": 1}], topic="LINES")
    assert (ids(journal, "lines"), ids(journal, "bills")) == ([], [])


def test_each_message_log_names_the_newest_definitions(journal: Journal) -> None:
    apply(journal, moved())
    newest, _ = JournalReader(journal.store, journal.journal_id()).numbered_definitions()
    tables = [DeltaTable(journal.store.messages_uri(name)) for name in ("lines", "bills", "json", "binary")]
    assert {table.transaction_version(DEFINITIONS_TXN) for table in tables} == {newest}
    versions = [table.version() for table in tables]
    DeltaControlLog(journal.store).load()
    assert [DeltaTable(table.table_uri).version() for table in tables] == versions, "nothing is left to be said"


def test_who_loads_the_log_tells_of_definitions_whose_coordinator_died(
    journal: Journal, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died between their commit and the last of the message logs."""

    def die(*_: Any, **__: Any) -> None:
        raise JournalError("STORE_FAILED", path="p", doing="committing", reason="it is away.", next_step="")

    with opened(journal) as publisher:
        with monkeypatch.context() as patch:
            patch.setattr(control_log, "announce", die)
            with pytest.raises(JournalError, match="STORE_FAILED"):
                apply(journal, moved())
        DeltaControlLog(journal.store).load()
        publisher.publish([{"amount": 1}], topic="LINES")
    assert (ids(journal, "lines"), ids(journal, "bills")) == ([], [1])


def test_a_table_that_is_damaged_keeps_no_other_from_the_news(journal: Journal) -> None:
    DeltaTable(journal.store.messages_uri("bills")).alter.set_table_description("somebody else's")
    (Path(journal.store.messages_uri("bills")) / "_delta_log" / f"{0:020d}.json").write_text("{")
    (Path(journal.store.messages_uri("bills")) / "_delta_log" / f"{1:020d}.json").write_text("{")
    apply(journal, moved())
    assert DeltaTable(journal.store.messages_uri("lines")).transaction_version(DEFINITIONS_TXN) is not None
