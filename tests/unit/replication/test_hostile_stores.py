"""What stands in a peer's store in place of a file, or takes more than a process may have that reads a peer (DESIGN 17.3, 17.7)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal.record_table import CONTROL_SCHEMA
from spark_queue.journal.store import Store
from spark_queue.replication import peer_process
from spark_queue.replication.beacon import BEACON_KEY, read_beacon
from spark_queue.replication.peer_process import Reader
from spark_queue.replication.restored import read_definitions
from spark_queue.replication.sandbox import SandboxedPuller
from tests.unit.replication.sites import Attack, Site
from tests.unit.replication.test_hostile_journals import bomb, rows

MIB = 1024**2

#: How a reader ends is what is told of it.
pytestmark = pytest.mark.usefixtures("readers_are_started")


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


def _link_to_nothing_of_ours(place: Path) -> None:
    place.write_text("{}")
    _link(place)


@pytest.mark.parametrize("change", [pipe, _link_to_nothing_of_ours])
def test_what_comes_later_and_is_no_file_is_refused(attack: Attack, change: Callable[[Path], None]) -> None:
    attack.pull(None)
    change(_entry(attack, 1))
    attack.pull("PEER_REFUSED", _NO_FILE)
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
    for entry in attack.peer.entries()[1:]:
        entry.unlink()
    _entry(attack, 1).write_text("\n".join(map(json.dumps, gone)))


_NO_FILE = "it is no file"

#: What is done to a peer's store, and what the refusal says.
STORES: dict[str, tuple[Callable[[Attack], object], str]] = {
    "messages in a pipe": (lambda attack: pipe(attack.peer.orders()), _NO_FILE),
    "messages elsewhere": (lambda attack: _link(attack.peer.orders()), _NO_FILE),
    "messages in a loop": (lambda attack: _loop(attack.peer.orders()), _NO_FILE),
    "records in a pipe": (lambda attack: pipe(_records(attack)), _NO_FILE),
    "records elsewhere": (lambda attack: _link(_records(attack)), _NO_FILE),
    "an entry in a pipe": (lambda attack: pipe(_entry(attack)), _NO_FILE),
    "a next entry in a pipe": (lambda attack: pipe(_entry(attack, 1)), _NO_FILE),
    "an entry elsewhere": (lambda attack: _link(_entry(attack)), _NO_FILE),
    "the hint of a checkpoint in a pipe": (lambda attack: pipe(_log(attack) / "_last_checkpoint"), _NO_FILE),
    "a checkpoint of parts": (_of_parts, "no file of a control log"),
    "a checkpoint that names further files": (_of_sidecars, "no file of a control log"),
    "a log without records": (_without_records, "it has no records"),
}

#: What only costs more than there may be.
COSTLY: dict[str, Callable[[Attack], object]] = {
    "an entry of gigabytes": lambda attack: _large(_entry(attack, 1), 2**34),
    "a checkpoint of gigabytes": lambda attack: _large(_checkpoint(attack), 2**34),
    "a hint of gigabytes": lambda attack: _large(_log(attack) / "_last_checkpoint", 2**34),
    "an entry of 2^63": lambda attack: (_log(attack) / f"{2**63 - 1:020d}.json").touch(),
    "a checkpoint of 10^15": lambda attack: _checkpoint(attack).rename(_log(attack) / f"{10**15:020d}.checkpoint.parquet"),
    "a checkpoint that is long when it is read": _long_when_read,
}


@pytest.mark.parametrize("case", STORES)
def test_what_is_no_file_of_a_peer_or_would_keep_whoever_opens_it_is_refused(attack: Attack, case: str) -> None:
    change, says = STORES[case]
    change(attack)
    attack.pull("PEER_REFUSED", says)
    attack.heal()


@pytest.mark.parametrize("left_bytes", [0, 700])
def test_a_checkpoint_that_a_power_loss_has_torn_is_read_around(attack: Attack, left_bytes: int) -> None:
    """The coordinator there sets it aside when it comes back; nobody else may repair that log, and it is whole without it."""
    os.truncate(_checkpoint(attack), left_bytes)
    attack.pull(None)
    attack.go_on()
    assert attack.here.told() == attack.unharmed


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
    "definitions that are none": (
        _said({"detail": {"v": 1, "definitions": {"queues": 7}, "resets": {}}}), "PEER_REFUSED", "its definitions",
    ),
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


class Sandboxed:
    """An attack on an instance that reads its peer in a process of its own."""

    def __init__(self, attack: Attack) -> None:
        self.attack = attack
        self.here = attack.here
        self.reader = Reader("virginia")
        now = self.here.state.definitions
        self.puller = SandboxedPuller(
            self.reader, self.here.store, Store(str(attack.peer.path)), now, now.peers["virginia"],
            look=lambda: self.here._look("virginia"), hand_over=self.here.hand_over, read={}, meet=lambda: None,
        )  # fmt: skip
        self.last: Any = None
        #: The most memory that the process had, and how much more this one had.
        self.most_bytes = 0

    def step(self, *, tells_held: bool = False) -> SparkQueueError | None:
        """Take a step; returns what it was refused for."""
        watched = threading.Event()
        watching = threading.Thread(target=self._watch, args=(watched,))
        watching.start()
        before_bytes = psutil.Process().memory_info().rss
        try:
            last = self.last = self.puller.step(tells_held=tells_held)
        except SparkQueueError as refusal:
            return refusal
        else:
            return last.trouble
        finally:
            watched.set()
            watching.join()
            assert psutil.Process().memory_info().rss - before_bytes < 200 * MIB

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(0.005):
            pid = self.reader.pid
            if pid is not None:
                with suppress(psutil.NoSuchProcess):
                    self.most_bytes = max(self.most_bytes, psutil.Process(pid).memory_info().rss)


@pytest.fixture
def sandboxed(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandboxed]:
    """Let the process have little, and see that nothing of it is left."""
    monkeypatch.setattr(peer_process, "MEMORY_BYTES", 700 * MIB)
    monkeypatch.setattr(peer_process, "CPU_S", 4)
    others = psutil.Process().children()
    made = Sandboxed(attack)
    yield made
    made.reader.close()
    assert psutil.Process().children() == others


def test_what_is_read_there_is_what_is_read_here(sandboxed: Sandboxed) -> None:
    assert sandboxed.step() is None
    assert sandboxed.last.is_at_end
    assert sandboxed.here.told() != {}
    sandboxed.attack.go_on()
    assert sandboxed.here.told() == sandboxed.attack.unharmed
    pid = sandboxed.reader.pid
    assert (sandboxed.step(), sandboxed.reader.pid) == (None, pid)
    assert not sandboxed.last.held, "nobody asked for it"
    sandboxed.step(tells_held=True)
    assert {len(rows) for rows in sandboxed.last.held["order"].values()} == {4, 9}


def test_definitions_of_other_peers_are_told_once(sandboxed: Sandboxed) -> None:
    """They may be large, and a step comes ten times a second."""
    own = sandboxed.here.state.definitions
    sandboxed.puller._read |= {"virginia": own, "tokyo": own}
    with mock.patch.object(sandboxed.reader, "send", side_effect=sandboxed.reader.send) as send:
        for _ in range(2):
            assert sandboxed.step() is None
    sent = [call.args[0] for call in send.call_args_list]
    assert [sorted(each.others) for each in sent if isinstance(each, peer_process.WantsStep)] == [["tokyo"], []]


def _bomb(attack: Attack) -> None:
    number = attack.peer.number("entered", message_type="json")
    bomb(attack.peer.message_file(number), "value")
    attack.peer.rewrite(number, rows(30_000))


def _footer(attack: Attack) -> None:
    file = attack.peer.orders()
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata({"x": "y" * (200 * MIB)}), file)


def _many_ranges(attack: Attack) -> None:
    """Let each of the last records have millions of ranges."""
    file = max((attack.peer.path / "control").glob("*.parquet"))
    table = pq.read_table(file)
    count = 8_000_000
    firsts = pa.array(np.arange(count, dtype=np.int64) * 2)
    edges = pa.StructArray.from_arrays([firsts, pa.array(np.arange(count, dtype=np.int64) * 2 + 1)], ["first", "until"])
    offsets = pa.array([0] * len(table) + [count], pa.int32())
    ranges: Any = pa.ListArray.from_arrays(offsets, edges).cast(CONTROL_SCHEMA.field("ranges").type)
    pq.write_table(table.set_column(table.column_names.index("ranges"), CONTROL_SCHEMA.field("ranges"), ranges), file)


HOSTILE = {"a bomb": _bomb, "a footer": _footer, "millions of ranges": _many_ranges, **COSTLY}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("case", HOSTILE)
def test_what_takes_more_than_there_may_be_is_refused(sandboxed: Sandboxed, case: str) -> None:
    HOSTILE[case](sandboxed.attack)
    refusal = sandboxed.step()
    # Some of the log's files need not be opened to read it.
    assert refusal is not None or case in COSTLY
    assert refusal is None or refusal.code in ("PEER_REFUSED", "JOURNAL_DAMAGED", "STORE_FAILED"), refusal
    assert sandboxed.most_bytes < 900 * MIB
    sandboxed.attack.heal()


def test_what_takes_longer_than_it_may_is_refused(sandboxed: Sandboxed) -> None:
    sandboxed.reader._cpu_s, sandboxed.reader._memory_bytes = 1, 2_000 * MIB
    _many_ranges(sandboxed.attack)
    said = str(sandboxed.step())
    assert "more than 1 s of processor time" in said, said


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("given", "said"), [(signal.SIGKILL, "has ended (exit code -9"), (signal.SIGSTOP, "said nothing for")])
def test_a_process_that_dies_or_hangs_is_told_with_what_it_did_and_another_one_goes_on(
    sandboxed: Sandboxed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, given: signal.Signals, said: str
) -> None:
    assert sandboxed.step() is None
    pid = sandboxed.reader.pid
    assert pid is not None
    os.kill(pid, given)
    with monkeypatch.context() as soon:
        soon.setattr(peer_process, "QUIET_S", 0.1)
        soon.setattr(peer_process, "SILENT_S", 0.3)
        refusal = str(sandboxed.step())
    assert (refusal.startswith("[PEER_REFUSED]"), said in refusal, psutil.pid_exists(pid)) == (True, True, False), refusal
    # Of a silence it is told long before it has an end.
    assert given is signal.SIGKILL or f"its process {pid} has been silent for 0.1 s" in caplog.text
    again = Sandboxed(sandboxed.attack)
    assert again.step() is None
    again.reader.close()


def test_a_process_that_gets_no_answer_is_ended(sandboxed: Sandboxed, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take what it is told next for the answer, and go on with what it had read."""
    slow = JournalError("STORE_FAILED", doing="writing", path="/frankfurt", reason="it was slow.", next_step="Wait.")

    def fails(_: object) -> bool:
        raise slow

    monkeypatch.setattr(sandboxed.puller, "_hand_over", fails)
    assert (sandboxed.step(), sandboxed.reader.pid) == (slow, None)


def test_a_log_of_many_files_needs_few_of_them_at_once(sandboxed: Sandboxed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_process, "FILES_MOST", 64)
    there = Site(sandboxed.attack.peer.path, sandboxed.here.clock)
    for number in range(100):
        there.publish(10_000 + number)
    assert sandboxed.step() is None
    assert sandboxed.here.state.message_types["order"].entered_until > 100


def test_a_file_that_grows_while_it_is_read_is_refused_or_read(sandboxed: Sandboxed) -> None:
    file = sandboxed.attack.peer.orders()
    grown = threading.Event()

    def grow() -> None:
        with file.open("ab") as growing:
            until_s = time.monotonic() + 5
            while not grown.is_set() and time.monotonic() < until_s and growing.tell() < 500 * MIB:
                growing.write(b"x" * MIB)

    growing = threading.Thread(target=grow)
    growing.start()
    refusal = sandboxed.step()
    grown.set()
    growing.join()
    assert refusal is None or refusal.code in ("PEER_REFUSED", "STORE_FAILED")
    sandboxed.attack.heal()
