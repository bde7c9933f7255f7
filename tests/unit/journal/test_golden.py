"""The journal of version 1 that is kept in git: it says what it said, it is written today as it was, and a newer one is refused."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_queue import Journal
from spark_queue.core.records import Kind, Record
from spark_queue.errors import JournalError
from spark_queue.following.follower import LogReader
from spark_queue.journal import snapshot
from spark_queue.journal.open import open_journal
from spark_queue.journal.reader import list_blocks
from spark_queue.journal.record_blocks import to_records_of
from spark_queue.journal.record_table import to_records
from spark_queue.journal.store import CONTROL, Store, messages_key
from spark_queue.replication.peer_log import PeerLog
from spark_queue.verification.of_state import of_state
from tests.golden import FOLDER, FROZEN, forms, story
from tests.golden.told import told
from tests.second_model.problems import of_records


def stored(name: str) -> dict[str, Any]:
    """Return one of the golden files."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Return a copy of the golden journal."""
    return shutil.copytree(FOLDER / "journal", tmp_path / "journal")


@pytest.fixture(scope="module")
def written_today(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the journal of the same story, as this software writes it."""
    home = tmp_path_factory.mktemp("golden")
    story.tell(home)
    return home / "frankfurt"


def test_the_journal_says_what_it_said(journal: Path) -> None:
    wanted = stored("told")
    found = told(journal, wanted)
    for name in wanted:
        assert found[name] == wanted[name], f"the journal says other {name}"


def test_the_journal_has_every_kind_of_record_and_is_sound(journal: Path) -> None:
    opened = open_journal(Store(str(journal)))
    records = opened.records()
    assert {str(record.kind) for record in records} == {
        each.removeprefix("record ") for each in stored("forms") if "record " in each
    }
    assert {str(record.kind) for record in records} <= {str(kind) for kind in Kind}
    assert [*of_state(opened.tail().fold(opened.traits)), *of_records(records)] == []


def test_all_forms_are_what_they_were() -> None:
    wanted, found = stored("forms"), forms.declared()
    for name, form in wanted.items():
        assert found.get(name) == form, FROZEN.format(what=name)
    assert [name for name in found if name not in wanted] == [], "run `python -m tests.golden`, which adds the forms that are new"


def test_each_file_that_is_written_has_the_form_that_it_had(written_today: Path) -> None:
    wanted, found = stored("seen"), forms.seen(written_today)
    for name in sorted({*wanted, *found}):
        assert found.get(name) == wanted.get(name), FROZEN.format(what=name)


def test_the_golden_files_are_those_of_the_journal(journal: Path) -> None:
    assert forms.seen(journal) == stored("seen")


def test_every_number_is_1() -> None:
    assert set(stored("forms")["numbers"].values()) == {"1"}


def entries(journal: Path, table: str = CONTROL) -> list[Path]:
    """Return the entries of a log, oldest first."""
    return sorted((journal / table / "_delta_log").glob("*.json"))


def newer(entry: Path, old: str, new: str) -> None:
    """Write a number of tomorrow into an entry, which has the old one."""
    text = entry.read_text(encoding="utf-8")
    assert old in text
    entry.write_text(text.replace(old, new), encoding="utf-8")


def rows_of(reader: LogReader) -> pa.Table:
    """Return the rows that came since, of which there are some."""
    rows = reader.new_rows()
    assert rows is not None
    return rows


def read_on(log: PeerLog) -> list[Record]:
    """Return all records that the log of a peer has by now, and that were not read before."""
    found: list[Record] = []
    while records := log.read():
        found += records
    return found


def of_tomorrow(journal: Path) -> None:
    """Let record 0 say a format of tomorrow."""
    [file] = (journal / CONTROL).glob(f"{0:020d}-*.parquet")
    table = pq.read_table(file)
    detail = str(table.column("detail")[0])
    assert '"format":1' in detail
    at = table.schema.get_field_index("detail")
    newest = pa.array([detail.replace('"format":1', '"format":2')])
    pq.write_table(table.set_column(at, table.schema.field(at), newest), file)


def detail_of_tomorrow(journal: Path) -> None:
    newer(entries(journal)[-1], r'"{\"v\":1', r'"{\"v\":2')


def mark_of_tomorrow(journal: Path) -> None:
    newer(entries(journal)[-1], '"sparkqueue":{"v":1', '"sparkqueue":{"v":2')


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (of_tomorrow, r"format 2 \(known: 1\)"),
        (detail_of_tomorrow, "record [0-9]+ of kind"),
        (mark_of_tomorrow, r"marks of version 2 \(known: 1\)"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_number_of_tomorrow_in_the_control_log_is_refused_by_name(
    journal: Path, change: Callable[[Path], None], what: str
) -> None:
    store = Store(str(journal))
    change(journal)
    refusal = rf"PROTOCOL_NEWER\] The journal at '.*' uses {what}.*Upgrade spark_queue"
    with pytest.raises(JournalError, match=refusal):
        list(open_journal(store).records())


@pytest.mark.parametrize("change", [detail_of_tomorrow, mark_of_tomorrow])
def test_a_number_of_tomorrow_that_comes_while_the_log_is_followed_is_refused_by_name(
    journal: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    newest = entries(journal)[-1]
    newest.rename(tmp_path / "later")
    store = Store(str(journal))
    reader = LogReader(store)
    reader.open()
    (tmp_path / "later").rename(newest)
    change(journal)
    with pytest.raises(JournalError, match="PROTOCOL_NEWER"):
        to_records_of(store, rows_of(reader))


@pytest.mark.parametrize("change", [detail_of_tomorrow, mark_of_tomorrow])
@pytest.mark.parametrize("comes_later", [False, True])
def test_a_peer_whose_log_has_a_number_of_tomorrow_is_refused_by_name(
    journal: Path, tmp_path: Path, change: Callable[[Path], None], *, comes_later: bool
) -> None:
    log, newest = PeerLog(Store(str(journal)), "frankfurt"), entries(journal)[-1]
    if comes_later:
        newest.rename(tmp_path / "later")
        assert read_on(log)
        (tmp_path / "later").rename(newest)
    change(journal)
    with pytest.raises(JournalError, match="PROTOCOL_NEWER"):
        read_on(log)


def test_a_mark_of_tomorrow_in_a_message_log_stops_that_type_by_name(journal: Path) -> None:
    opened = open_journal(Store(str(journal)))
    newer(entries(journal, messages_key("order"))[2], '"sparkqueue":{"v":1', '"sparkqueue":{"v":2')
    read = []
    with pytest.raises(JournalError, match=r"PROTOCOL_NEWER.*marks of version 2 \(known: 1\)"):
        read += list(opened.messages("order").tail(0))
    assert list(opened.messages("line").tail(0)) != []


def test_a_snapshot_of_tomorrow_is_not_used(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says it all, so nobody is refused."""
    store = Store(str(journal))
    blocks = list_blocks(store)
    snapshot.capture(store, blocks, open_journal(store).traits)
    key = snapshot.stored(store)[0][1]
    assert snapshot.load(store, blocks).state is not None
    data = store.read(key)
    assert data is not None
    assert data.startswith(b'{"format":1,')
    store.write(key, data.replace(b'{"format":1,', b'{"format":2,', 1))
    with caplog.at_level(logging.INFO):
        assert snapshot.load(store, blocks).state is None
    assert "is not used: it was written by other software" in caplog.text


def test_delta_readers_find_the_records_that_files_have(journal: Path) -> None:
    store = Store(str(journal))
    ours = {record.record: record for record in open_journal(store).records()}
    table = DeltaTable(str(journal / CONTROL)).to_pyarrow_table().sort_by("record")
    theirs = [record.record for record in to_records(table.cast(pq.read_schema(next((journal / CONTROL).glob("*.parquet")))))]
    assert theirs == list(range(len(theirs)))
    assert [str(ours[number].kind) for number in theirs] == table.column("kind").to_pylist()
    # The others stand in entries alone, for some seconds.
    held = [line for entry in entries(journal) for line in entry.read_text().splitlines() if '"records":' in line]
    assert 0 < len(ours) - len(theirs) <= len(held)


@pytest.mark.parametrize(("message_type", "queue"), [("line", "WORK"), ("order", "ORDER")])
def test_delta_readers_find_the_messages(journal: Path, message_type: str, queue: str) -> None:
    found = DeltaTable(str(journal / messages_key(message_type))).to_pyarrow_table()
    named = ["item", "publisher", "sequence", "published_at"]
    waiting = Journal(str(journal)).view("messages", queue=queue, columns=named).to_pylist()
    assert len(waiting) > 1
    theirs = found.select(named).to_pylist()
    assert all(row in theirs for row in waiting)
    of_strangers = 0 if message_type == "line" else pq.read_metadata(journal / messages_key("order") / "stranger.parquet").num_rows
    assert found.num_rows - of_strangers == stored("told")["message_types"][message_type]["entered"]
