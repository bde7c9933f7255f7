"""Publishing and claiming by real processes at once: nothing lost, nothing doubled, nothing half done (DESIGN 4)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import ROOT
from tests.unit.journal.journal_on_disk import Disk, claim

DEADLINE_S = 120

PRELUDE = """
import json, os, resource, signal, sys
import pyarrow as pa
from spark_queue.core.definitions import parsing
from spark_queue.errors import SparkQueueError
from spark_queue.journal.store import Store
from spark_queue.journal.open import open_journal
from spark_queue.journal.publisher import Identity, make_plan, open_name, publish

store = Store(sys.argv[1])
definitions = open_journal(store).definitions()
journal_id = open_journal(store).journal_id

def send(ids, **options):
    plan = make_plan(store, definitions, message_type="order", topic="ORDERS", expires_after_ms=None)
    return publish(plan, journal_id, definitions, pa.table({"id": pa.array(ids, pa.int64())}), **options)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "journal")


def start(disk: Disk, code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + code, disk.store.path, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], text: str | None = None) -> str:
    out, err = process.communicate(text, timeout=DEADLINE_S)
    assert process.returncode == 0, err
    return out


def start_together(processes: list[subprocess.Popen[str]]) -> None:
    """Let processes that announced themselves go at the same moment."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def test_four_processes_publishing_at_once_lose_and_double_nothing(disk: Disk) -> None:
    """R92, R97: what is acknowledged is in the log, and names keep publishers apart."""
    code = """
print("ready", flush=True); sys.stdin.readline()
start = int(sys.argv[2])
for batch in range(25):
    send([start + 2 * batch, start + 2 * batch + 1])
"""
    processes = [start(disk, code, str(1000 * number)) for number in range(4)]
    start_together(processes)
    for process in processes:
        finish(process)
    expected = sorted(1000 * number + place for number in range(4) for place in range(50))
    assert disk.ids() == expected
    entries = list(disk.open().messages("order").tail(-1))
    assert [entry.version for entry in entries] == list(range(101))
    paths = [added.path for entry in entries for added in entry.added]
    assert len(paths) == len(set(paths)) == 100


def test_one_publisher_name_in_two_processes_has_one_survivor(disk: Disk) -> None:
    """R98: the newer opening wins, the older hears it at its next batch; no sequence is there twice."""
    # Both have opened before either sends, or the first might be done before the second begins.
    code = """
opened = open_name(store, journal_id, ["order"], "p", durable=False)
print("ready", flush=True); sys.stdin.readline()
sent, sequence = 0, (opened.last_sequence or 0)
try:
    for batch in range(15):
        identity = Identity(publisher="p", exclusive=True, number=opened.numbers["order"])
        send([sequence + 1], identity=identity, first_sequence=sequence + 1)
        sequence += 1
        sent += 1
    print(json.dumps({"sent": sent, "refused": None}))
except SparkQueueError as refused:
    print(json.dumps({"sent": sent, "refused": refused.code}))
"""
    processes = [start(disk, code) for _ in range(2)]
    start_together(processes)
    said = [json.loads(finish(process)) for process in processes]
    assert sorted(answer["refused"] or "" for answer in said) == ["", "PUBLISHER_NAME_IN_USE"]
    assert disk.ids() == list(range(1, sum(answer["sent"] for answer in said) + 1))


def test_process_that_dies_between_staging_and_commit_leaves_nothing_visible(disk: Disk) -> None:
    code = """
from spark_queue.journal.delta_head import DeltaHead
DeltaHead.put = lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL)
send([1, 2, 3])
"""
    process = start(disk, code)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == -9
    assert len(list(Path(disk.store.messages_uri("order")).glob("*.parquet"))) == 1
    assert (disk.tail_rows(), disk.ids()) == (0, [])


def test_full_disk_refuses_a_publish_and_leaves_nothing(disk: Disk) -> None:
    """A file-size limit fails writes as a full disk does."""
    code = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    send(list(range(100_000)))
except SparkQueueError as refused:
    print(refused.code)
print(send([1, 2]).rows)
"""
    assert finish(start(disk, code)).split() == ["STORE_FAILED", "2"]
    assert disk.ids() == [1, 2]
    assert len(list(Path(disk.store.messages_uri("order")).glob("*.parquet"))) == 1


def test_full_disk_ends_a_reign_and_leaves_nothing_half_done(disk: Disk) -> None:
    code = """
from spark_queue.core.records import EpochClaimed, Record, SetAside
control = open_journal(store).control
number = len(control.load().records)
control.append([Record(body=EpochClaimed(host="h", address="a", pid=1), record=number, epoch=1)], epoch=1)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    control.append([Record(body=SetAside(error=os.urandom(50_000).hex()), record=number + 1, epoch=1)], epoch=1)
except SparkQueueError as refused:
    print(refused.code)
"""
    assert finish(start(disk, code)).split() == ["STORE_FAILED"]
    assert claim(disk.open().control, 2) == 4


@pytest.fixture
def world_readable() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def test_read_only_journal_is_read_and_refuses_to_be_written(world_readable: Path) -> None:
    # A journal is its user's alone, unless its directory was there before.
    (world_readable / "journal").mkdir(mode=0o755)
    disk = Disk(world_readable / "journal")
    disk.publish([1])
    if os.geteuid() != 0:
        for path in [world_readable, *world_readable.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
    code = """
from spark_queue.core.records import EpochClaimed, Record, SetAside
if os.geteuid() == 0:
    os.setuid(65534)
journal = open_journal(store)
entered = sum(added.row_count for entry in journal.messages("order").tail(-1) for added in entry.added)
print(len(journal.control.load().records), entered)
claim = Record(body=EpochClaimed(host="h", address="a", pid=1), record=2, epoch=1)
for deed in (lambda: send([2]), lambda: journal.control.append([claim], epoch=1), store.check_put_if_absent):
    try:
        deed()
    except SparkQueueError as refused:
        print(refused.code)
"""
    assert finish(start(disk, code)).split() == ["2", "1", "STORE_FAILED", "STORE_FAILED", "STORE_FAILED"]
    if os.geteuid() != 0:
        for path in [world_readable, *world_readable.rglob("*")]:
            path.chmod(0o755)
    assert disk.ids() == [1]


def test_two_claimers_at_once_have_one_winner(disk: Disk) -> None:
    code = """
from spark_queue.core.records import EpochClaimed, Record, SetAside
control = open_journal(store).control
number = len(control.load().records)
print("ready", flush=True); sys.stdin.readline()
try:
    control.append([Record(body=EpochClaimed(host=str(os.getpid()), address="a", pid=1), record=number, epoch=1)], epoch=1)
    control.check(epoch=1)
    print("serves")
except SparkQueueError as refused:
    print(refused.code)
"""
    processes = [start(disk, code) for _ in range(4)]
    start_together(processes)
    said = sorted(finish(process).strip() for process in processes)
    assert said == ["COORDINATOR_DEPOSED"] * 3 + ["serves"]
    assert [record.kind for record in disk.open().control.load().records][2:] == ["epoch_claimed"]
