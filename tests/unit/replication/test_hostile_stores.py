"""What stands in a peer's store in place of a file, and would keep whoever opens it: refused before that (DESIGN 17.3, 17.7)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_queue.errors import JournalError
from spark_queue.journal.store import Store
from spark_queue.replication.beacon import BEACON_KEY, read_beacon
from spark_queue.replication.restored import read_definitions
from tests.unit.replication.sites import Attack


def pipe(place: Path) -> None:
    place.unlink(missing_ok=True)
    os.mkfifo(place)


def _link(place: Path) -> None:
    elsewhere = place.parents[3] / "elsewhere.parquet"
    shutil.move(place, elsewhere)
    place.symlink_to(elsewhere)


def _loop(place: Path) -> None:
    place.unlink()
    place.symlink_to(place)


def _records(attack: Attack) -> Path:
    return max((attack.peer.path / "control").glob("*.parquet"))


def _log(attack: Attack) -> Path:
    return attack.peer.path / "control" / "_delta_log"


def _entry(attack: Attack, later: int = 0) -> Path:
    newest = max(_log(attack).glob("*.json"))
    return newest.with_name(f"{int(newest.stem) + later:020d}.json")


PLACES: dict[str, tuple[Callable[[Path], None], Callable[[Attack], Path]]] = {
    "messages in a pipe": (pipe, lambda attack: attack.peer.orders()),
    "messages elsewhere": (_link, lambda attack: attack.peer.orders()),
    "messages in a loop": (_loop, lambda attack: attack.peer.orders()),
    "records in a pipe": (pipe, _records),
    "records elsewhere": (_link, _records),
    "an entry in a pipe": (pipe, _entry),
    "a next entry in a pipe": (pipe, lambda attack: _entry(attack, 1)),
    "an entry elsewhere": (_link, _entry),
    "the hint of a checkpoint in a pipe": (pipe, lambda attack: _log(attack) / "_last_checkpoint"),
}


@pytest.mark.parametrize("case", PLACES)
def test_what_is_no_file_of_a_peer_is_refused(attack: Attack, case: str) -> None:
    change, place = PLACES[case]
    change(place(attack))
    attack.pull("PEER_REFUSED", "it is no file")
    attack.heal()


def _link_to_nothing_of_ours(place: Path) -> None:
    elsewhere = place.parents[3] / "elsewhere.json"
    elsewhere.write_text("{}")
    place.symlink_to(elsewhere)


@pytest.mark.parametrize("change", [pipe, _link_to_nothing_of_ours])
def test_what_comes_later_and_is_no_file_is_refused(attack: Attack, change: Callable[[Path], None]) -> None:
    attack.pull(None)
    change(_entry(attack, 1))
    attack.pull("PEER_REFUSED", "it is no file")
    attack.heal()


def test_folders_may_lie_where_somebody_put_them(attack: Attack) -> None:
    for name in ("control", "messages/order"):
        folder = attack.peer.path / name
        elsewhere = attack.peer.path.parent / name.replace("/", "-")
        shutil.move(folder, elsewhere)
        folder.symlink_to(elsewhere)
    attack.pull(None)
    attack.heal()


def _large(place: Path, size_bytes: int) -> None:
    place.touch()
    os.truncate(place, size_bytes)


def _checkpoint(attack: Attack) -> Path:
    DeltaTable(attack.peer.path / "control").create_checkpoint()
    return max(_log(attack).glob("*.checkpoint.parquet"))


def _of_parts(attack: Attack) -> None:
    made = _checkpoint(attack)
    made.rename(made.with_name(f"{made.name[:20]}.checkpoint.0000000001.4000000000.parquet"))


def _of_sidecars(attack: Attack) -> None:
    named = _checkpoint(attack).with_name(f"{_entry(attack).stem}.checkpoint.{'0' * 8}-0000-4000-8000-{'0' * 12}.json")
    named.write_text(json.dumps({"sidecar": {"path": "file:///etc/passwd", "sizeInBytes": 1, "modificationTime": 1}}))


def _long_when_read(attack: Attack) -> None:
    """Let one long text stand in many rows: a file of some kilobytes."""
    made = _checkpoint(attack)
    found = pq.read_table(made)
    [one] = found.filter(pc.is_valid(found["add"])).slice(0, 1).to_pylist()
    one["add"]["path"] = "x" * 1_000_000
    repeated = pa.Table.from_pylist([one], schema=found.schema).take(pa.array([0] * 30))
    with pq.ParquetWriter(made, found.schema, compression="zstd") as writer:
        writer.write_table(found)
        for _ in range(10):
            writer.write_table(repeated)
    assert made.stat().st_size < 1_000_000


def _without_records(attack: Attack) -> None:
    names = [file.name for file in (attack.peer.path / "control").glob("*.parquet")]
    gone = [{"remove": {"path": name, "deletionTimestamp": 1, "dataChange": True}} for name in names]
    _entry(attack, 1).write_text("\n".join(map(json.dumps, gone)))


#: What is told by itself, and what only costs more than there may be.
FOLDERS: dict[str, tuple[Callable[[Attack], object], str]] = {
    "a checkpoint of parts": (_of_parts, "no file of a control log"),
    "a checkpoint that names further files": (_of_sidecars, "no file of a control log"),
    "a log without records": (_without_records, "it has no records"),
}
COSTLY: dict[str, Callable[[Attack], object]] = {
    "an entry of gigabytes": lambda attack: _large(_entry(attack, 1), 2**34),
    "a checkpoint of gigabytes": lambda attack: _large(_checkpoint(attack), 2**34),
    "a hint of gigabytes": lambda attack: _large(_log(attack) / "_last_checkpoint", 2**34),
    "an entry of 2^63": lambda attack: (_log(attack) / f"{2**63 - 1:020d}.json").touch(),
    "a checkpoint of 10^15": lambda attack: _checkpoint(attack).rename(_log(attack) / f"{10**15:020d}.checkpoint.parquet"),
    "a checkpoint that is long when it is read": _long_when_read,
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_log_that_would_keep_whoever_opens_it_is_refused(attack: Attack, case: str) -> None:
    change, says = FOLDERS[case]
    change(attack)
    attack.pull("PEER_REFUSED", says)
    attack.heal()


def test_a_beacon_in_a_pipe_is_none(tmp_path: Path) -> None:
    pipe(tmp_path / BEACON_KEY)
    assert read_beacon(Store(str(tmp_path))) is None


def _definitions(attack: Attack) -> Path:
    """Return the file of the definitions that hold."""
    number = attack.peer.number("definitions_applied")
    [file] = (attack.peer.path / "control").glob(f"{number:020d}-*.parquet")
    return file


def _many_definitions(attack: Attack) -> None:
    file = _definitions(attack)
    pq.write_table(pq.read_table(file).take(pa.array([0] * 100_000)), file)


def _said(change: dict[str, Any], kind: str = "definitions_applied") -> Callable[[Attack], None]:
    return lambda attack: attack.peer.rewrite(attack.peer.number(kind), lambda row: row.update(change))


#: What a journal may not say to who only compares its definitions.
DEFINITIONS: dict[str, tuple[Callable[[Attack], None], str, str]] = {
    "a pipe": (lambda attack: pipe(_definitions(attack)), "PEER_REFUSED", "it is no file, or a link"),
    "more records than its log says": (_many_definitions, "PEER_REFUSED", "it has no 1 records"),
    "definitions that are none": (_said({"detail": {"v": 1, "definitions": {"queues": 7}}}), "PEER_REFUSED", "its definitions"),
    "a record of another kind": (_said({"kind": "subscribed"}), "PEER_REFUSED", "it is not of kind definitions_applied"),
    "a journal that is none": (_said({"detail": {"v": 1, "journal": 7}}, "journal_created"), "PEER_REFUSED", "journal"),
    "newer software": (
        _said({"detail": {"v": 1, "journal": "0" * 32, "format": 2}}, "journal_created"), "PROTOCOL_NEWER", "format 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DEFINITIONS)
def test_definitions_that_no_peer_may_have_are_refused(attack: Attack, case: str) -> None:
    change, code, says = DEFINITIONS[case]
    change(attack)
    with pytest.raises(JournalError) as refusal:
        read_definitions(Store(str(attack.peer.path)), "virginia")
    assert (refusal.value.code, says in str(refusal.value)) == (code, True), refusal.value


def test_the_newest_definitions_of_an_honest_peer_are_read(attack: Attack) -> None:
    journal, found = read_definitions(Store(str(attack.peer.path)), "virginia")
    assert journal == attack.peer.rows()[0]["detail"]["journal"]
    assert (found.journal.instance, sorted(found.queues)) == ("virginia", ["FAILED", "WORK"])
