"""A journal on an object store, which honours conditional puts (DESIGN 4, 13)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from spark_queue.core.message_files.segment import TraitRequest
from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import ConfigError, CoordinatorError, JournalError, SparkQueueError
from spark_queue.journal.creation import create_journal
from spark_queue.journal.open import open_journal
from spark_queue.journal.publisher import Identity, publish
from spark_queue.journal.store import Store
from spark_queue.journal.traits import FileTraits
from tests.contract.test_journal import segments
from tests.integration.s3_server import BUCKET, SECRET, s3_server
from tests.records import record_of
from tests.unit.journal.journal_on_disk import Disk, claim, left, orders

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with s3_server() as server:
        yield server.options


@pytest.fixture
def disk(options: dict[str, str]) -> Disk:
    return Disk(f"s3://{BUCKET}/{next(NUMBERS)}", storage_options=options)


def test_journal_is_created_published_to_and_read(disk: Disk) -> None:
    assert disk.publish([1, 2]).rows == 2
    assert disk.publish([3], identity=Identity(publisher="p"), first_sequence=1).persisted_sequence == 1
    assert disk.publish([3], identity=Identity(publisher="p"), first_sequence=1).duplicates == 1
    journal = disk.open()
    entries = list(journal.messages("order").tail(-1))
    assert [sum(added.row_count for added in entry.added) for entry in entries] == [0, 2, 1]
    assert list(journal.messages("order").tail(2)) == []
    journal.messages("order").recover(version=2, token=entries[2].token)
    assert disk.ids() == [1, 2, 3]
    with pytest.raises(JournalError, match="JOURNAL_EXISTS"):
        create_journal(disk.store)


def test_control_log_commits_and_comes_back(disk: Disk) -> None:
    control = disk.open().control
    number = claim(control)
    control.append([left(number), left(number + 1)], epoch=1)
    control.check(epoch=1)
    assert [record.record for record in disk.open().control.load().records] == list(range(number + 2))


def test_checkpoint_and_clean_up_work_there_too(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_queue.journal.upkeep.CONTROL_CHECKPOINT_COMMITS", 3)
    monkeypatch.setattr("spark_queue.journal.upkeep.CONTROL_KEPT_COMMITS", 1)
    journal = disk.open()
    number = claim(journal.control)
    for record in range(number, number + 4):
        journal.control.append([left(record)], epoch=1)
    journal.upkeep(epoch=1, state=JournalState(journal.traits), now_ms=2**50)
    journal._upkeep.finish()
    names = [entry.key.rsplit("/", 1)[1] for entry in disk.store.list("control/_delta_log")]
    assert names == [f"{5:020d}.json", f"{6:020d}.checkpoint.parquet", f"{6:020d}.json", "_last_checkpoint"]
    assert len(disk.open().control.load().records) == number + 4


def test_topic_column_is_read_from_there(disk: Disk) -> None:
    rows = orders([1, 2, 3]).append_column("topic", [["ORDERS", "QUOTES", "RETURNS"]])
    publish(disk.plan(None), disk.journal_id, disk.definitions, rows)
    (found,) = segments(list(disk.open().messages("order").tail(-1)))
    segment = replace(found, message_type="order")
    traits = FileTraits(disk.store).traits(segment, [TraitRequest(queue=queue) for queue in disk.definitions.queues.values()])
    assert list(traits["WORK"].rows) == [0, 2]


def test_two_publishers_racing_lose_and_double_nothing(disk: Disk) -> None:
    failures: list[Exception] = []

    def send(start: int) -> None:
        try:
            for number in range(start, start + 6):
                disk.publish([number])
        except SparkQueueError as failure:
            failures.append(failure)

    threads = [threading.Thread(target=send, args=(start,)) for start in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert failures == []
    assert disk.ids() == [*range(6), *range(100, 106)]
    assert disk.tail_rows() == 12


def test_two_claimers_racing_have_one_winner(disk: Disk) -> None:
    controls = [disk.open().control for _ in range(2)]
    numbers = [len(control.load().records) for control in controls]
    start = threading.Barrier(2)
    said: list[str] = []

    def race(index: int) -> None:
        record = record_of(kind=Kind.EPOCH_CLAIMED, record=numbers[index], epoch=1, detail={"host": str(index)})
        start.wait()
        try:
            controls[index].append([record], epoch=1)
            said.append("serves")
        except CoordinatorError as refused:
            said.append(refused.code)

    threads = [threading.Thread(target=race, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(said) == ["COORDINATOR_DEPOSED", "serves"]
    assert len(disk.open().control.load().records) == 3


def test_old_reign_is_deposed_by_a_newer_claim(disk: Disk) -> None:
    old, new = disk.open().control, disk.open().control
    number = claim(old)
    claim(new, 2)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        old.append([left(number)], epoch=1)


def test_store_that_overwrites_is_refused(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "create", lambda store, key, data: store.write(key, data) is None)
    with pytest.raises(JournalError, match="STORE_UNSAFE"):
        create_journal(Store(f"s3://{BUCKET}/unsafe", disk.store.storage_options))
    assert Store(f"s3://{BUCKET}/unsafe", disk.store.storage_options).list("") == []


def test_bucket_that_is_not_there_is_named_without_secrets(options: dict[str, str]) -> None:
    with pytest.raises(JournalError) as refused:
        create_journal(Store("s3://no-such-bucket/j", {**options, "max_retries": "0"}))
    assert refused.value.code == "STORE_FAILED"
    assert SECRET not in str(refused.value)


def test_place_without_a_journal_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(JournalError, match="NOT_A_JOURNAL"):
        open_journal(Store(f"s3://{BUCKET}/nothing-here", options))


def test_option_that_means_nothing_is_named(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="STORAGE_OPTION_UNSUPPORTED.*'aws_secret_acess_key'"):
        create_journal(Store(f"s3://{BUCKET}/x", {**options, "aws_secret_acess_key": "x"}))
