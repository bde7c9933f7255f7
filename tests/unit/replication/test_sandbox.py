"""A peer is read in a process that may have only so much: whatever its files are, this one goes on (DESIGN 17.3)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal.control_files import CONTROL_SCHEMA
from spark_queue.journal.store import Store
from spark_queue.replication import sandbox
from spark_queue.replication.sandbox import Reader, SandboxedPuller
from tests.unit.replication.sites import Attack, Home, Site
from tests.unit.replication.test_hostile_journals import bomb, rows
from tests.unit.replication.test_hostile_stores import COSTLY

MIB = 1024**2


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
def sandboxed(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandboxed]:
    """Let the process have little, and see that nothing of it is left."""
    monkeypatch.setattr(sandbox, "MEMORY_BYTES", 700 * MIB)
    monkeypatch.setattr(sandbox, "CPU_S", 4)
    made = Sandboxed(Attack(home, tmp_path))
    yield made
    made.reader.close()
    assert not psutil.Process().children()


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


def test_definitions_of_other_peers_are_told_once(sandboxed: Sandboxed, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be large, and a step comes ten times a second."""
    sent, send, own = list[object](), sandboxed.reader.send, sandboxed.here.state.definitions
    sandboxed.puller._read |= {"virginia": own, "tokyo": own}

    def spy(what: object) -> None:
        sent.append(what)
        send(what)

    monkeypatch.setattr(sandboxed.reader, "send", spy)
    for _ in range(2):
        assert sandboxed.step() is None
    assert [sorted(each.others) for each in sent if isinstance(each, sandbox._Steps)] == [["tokyo"], []]


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
    sandboxed: Sandboxed, monkeypatch: pytest.MonkeyPatch, given: signal.Signals, said: str
) -> None:
    assert sandboxed.step() is None
    pid = sandboxed.reader.pid
    assert pid is not None
    os.kill(pid, given)
    with monkeypatch.context() as soon:
        soon.setattr(sandbox, "SILENT_S", 0.2)
        refusal = str(sandboxed.step())
    assert (refusal.startswith("[PEER_REFUSED]"), said in refusal, psutil.pid_exists(pid)) == (True, True, False), refusal
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
    monkeypatch.setattr(sandbox, "FILES_MOST", 64)
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
