"""Publishing: names, sequences, streams, duplicates (R91 to R99, DESIGN 15.3 to 15.5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_queue.errors import CallerError, ConfigError, JournalError, SparkQueueError
from spark_queue.journal.commit import OFFSETS_TXN, ROWS_TXN, STREAM_TXN, USER_TXN, Transaction, transaction_name
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.fingerprint import fingerprint
from spark_queue.journal.publisher import Identity, Published, commit_staged, open_name, publish
from spark_queue.journal.staging import stage_file
from spark_queue.journal.store import messages_key
from spark_queue.journal.stored_rows import Sequences
from tests.fake_clock import FakeClock
from tests.unit.journal.journal_on_disk import Disk, orders

ORDER = messages_key("order")


def named(disk: Disk, ids: range, *, publisher: str = "p", **identity: Any) -> Published:
    """Publish rows whose ids are their sequences."""
    return disk.publish(list(ids), identity=Identity(publisher=publisher, **identity), first_sequence=ids.start)


def mark(disk: Disk, version: int) -> dict[str, Any]:
    info: dict[str, Any] = json.loads(disk.log_path(ORDER, version).read_text().splitlines()[0])["commitInfo"]["sparkqueue"]
    return info


def test_publish_stores_the_envelope(disk: Disk) -> None:
    """DESIGN 15.3; R99: unnamed publishers number themselves."""
    clock = FakeClock(1_700_000_000_000)
    assert publish(disk.plan(expires_after_ms=5_000), disk.journal_id, disk.definitions, orders([7, 8]), clock=clock) == Published(
        rows=2
    )
    first, second = disk.stored().to_pylist()
    assert (first["topic"], first["sequence"], second["sequence"]) == ("ORDERS", 1, 2)
    assert first["publisher"].startswith("~")
    assert first["publisher"] == second["publisher"]
    assert first["published_at"].timestamp() == 1_700_000_000
    assert first["expires_at"].timestamp() == 1_700_000_005


def test_publish_to_a_queue_goes_to_its_default_target(disk: Disk) -> None:
    """R62."""
    disk.publish([1], topic="WORK")
    rows = pa.table({"id": [2, 3], "topic": ["WORK", "RETURNS"]})
    publish(disk.plan(None), disk.journal_id, disk.definitions, rows)
    stored = {row["id"]: row["topic"] for row in disk.stored().to_pylist()}
    assert stored == {1: "ORDERS", 2: "ORDERS", 3: "RETURNS"}


def test_publish_of_no_rows_commits_nothing(disk: Disk) -> None:
    assert disk.publish([]) == Published(rows=0)
    assert not disk.log_path(ORDER, 1).exists()


@pytest.mark.parametrize(
    ("topic", "code"),
    [("NOWHERE", "UNKNOWN_TOPIC"), ("../x", "NAME_INVALID"), ("EVENTS", "TOPIC_OF_OTHER_TYPE"), (None, "TOPIC_MISSING")],
)
def test_publish_refuses_a_topic_before_anything_is_written(disk: Disk, topic: str | None, code: str) -> None:
    before = sorted(Path(disk.store.path).rglob("*"))
    with pytest.raises(SparkQueueError) as refused:
        publish(disk.plan(topic), disk.journal_id, disk.definitions, orders([1]))
    assert refused.value.code == code
    assert sorted(Path(disk.store.path).rglob("*")) == before


def test_publish_refuses_another_journal_at_the_same_place(disk: Disk) -> None:
    with pytest.raises(JournalError, match="JOURNAL_MISMATCH"):
        publish(disk.plan(), "another-journal", disk.definitions, orders([1]))


def test_publish_while_the_store_is_moved_is_no_fault_of_the_publisher(disk: Disk) -> None:
    """The definitions name the message type, so its table is only away, or was deleted."""
    log = disk.log_path(ORDER, 0).parent
    log.rename(log.with_name("away"))
    with pytest.raises(JournalError, match=r"STORE_FAILED.*opening messages/order: its table is not there") as failure:
        disk.publish([1])
    assert "try again once it is back" in str(failure.value)
    log.with_name("away").rename(log)
    assert disk.publish([1]).rows == 1


def test_staged_rows_are_invisible_until_they_are_committed(disk: Disk) -> None:
    """A crash between staging and commit leaves nothing visible."""
    file = stage_file(disk.plan(), orders([1, 2]).to_batches(), now_ms=0)
    assert file is not None
    assert (Path(disk.store.messages_uri("order")) / file.path).exists()
    assert (disk.tail_rows(), disk.stored().num_rows) == (0, 0)


def test_repeat_of_a_named_batch_is_dropped_and_counted(disk: Disk) -> None:
    """R95."""
    assert named(disk, range(1, 11)) == Published(rows=10, persisted_sequence=10)
    assert named(disk, range(1, 11)) == Published(rows=0, duplicates=10, persisted_sequence=10)
    assert named(disk, range(4, 8)) == Published(rows=0, duplicates=4, persisted_sequence=10)
    assert disk.ids() == list(range(1, 11))


def test_grown_repeat_publishes_its_new_rows_only(disk: Disk) -> None:
    """DESIGN 15.5: it starts where a commit of this publisher started."""
    named(disk, range(1, 6))
    assert named(disk, range(1, 9)) == Published(rows=3, duplicates=5, persisted_sequence=8)
    assert disk.ids() == list(range(1, 9))
    assert mark(disk, 2)["first_sequence"] == 1
    assert mark(disk, 2)["last_sequence"] == 8


def test_batch_that_starts_behind_and_repeats_none_is_refused(disk: Disk) -> None:
    named(disk, range(1, 6))
    named(disk, range(3, 9), publisher="another")
    with pytest.raises(CallerError, match=r"SEQUENCE_BEHIND.*starts at sequence 3, behind the persisted 5, ends at 8"):
        named(disk, range(3, 9))
    assert disk.stored().num_rows == 11


def test_straddling_batch_of_several_files_keeps_its_order(disk: Disk) -> None:
    plan = disk.plan()
    identity = Identity(publisher="p")

    def staged(*parts: range) -> list[Any]:
        sequences = Sequences(publisher="p", column="id")
        return [stage_file(plan, orders(part).to_batches(), now_ms=FakeClock().wall_ms(), sequences=sequences) for part in parts]

    clock = FakeClock()
    commit_staged(plan, disk.journal_id, disk.definitions, staged(range(1, 4), range(4, 7)), identity=identity, clock=clock)
    again = staged(range(1, 3), range(3, 9), range(9, 12))
    found = commit_staged(plan, disk.journal_id, disk.definitions, again, identity=identity, clock=clock)
    assert found == Published(rows=5, duplicates=6, persisted_sequence=11)
    assert disk.ids() == list(range(1, 12))
    last = next(disk.open().messages("order").tail(1))
    assert [added.row_count for added in last.added] == [2, 3]


def test_sequences_of_two_publishers_are_apart(disk: Disk) -> None:
    named(disk, range(1, 6))
    assert named(disk, range(1, 6), publisher="q").rows == 5


@pytest.mark.parametrize(("column", "first"), [([1, 2, 2], 1), ([3, 1, 4], 1)])
def test_sequences_must_ascend(disk: Disk, column: list[int], first: int) -> None:
    identity = Identity(publisher="p")
    with pytest.raises(CallerError, match="SEQUENCE_NOT_ASCENDING"):
        publish(disk.plan(), disk.journal_id, disk.definitions, orders(column), identity=identity, sequence_column="id")
    assert disk.tail_rows() == 0


def test_sequences_must_ascend_across_files(disk: Disk) -> None:
    plan = disk.plan()
    files = [
        stage_file(plan, orders(ids).to_batches(), now_ms=0, sequences=Sequences(publisher="p", column="id"))
        for ids in ([5, 6], [6, 7])
    ]
    with pytest.raises(CallerError, match=r"SEQUENCE_NOT_ASCENDING.*sequence 6 follows 6"):
        commit_staged(
            plan, disk.journal_id, disk.definitions, [file for file in files if file is not None], identity=Identity(publisher="p")
        )


@pytest.mark.parametrize("options", [{}, {"sequence_column": "nope"}, {"sequence_column": "id"}])
def test_named_publisher_needs_numbers(disk: Disk, options: dict[str, Any]) -> None:
    rows = pa.table({"id": pa.array([1, None]), "item": ["a", "b"]})
    with pytest.raises(CallerError, match="SEQUENCE_MISSING"):
        publish(disk.plan(), disk.journal_id, disk.definitions, rows, identity=Identity(publisher="p"), **options)


@pytest.mark.parametrize("name", ["", "a/b", "~x", "."])
def test_publisher_name_follows_the_topic_grammar(disk: Disk, name: str) -> None:
    with pytest.raises(ConfigError, match="NAME_INVALID"):
        named(disk, range(1, 2), publisher=name)
    with pytest.raises(ConfigError, match="NAME_INVALID"):
        open_name(disk.store, disk.journal_id, ["order"], name, durable=False)
    assert not disk.log_path(ORDER, 1).exists(), "no opening was committed"


def test_rows_without_a_topic_are_counted_and_refused(disk: Disk) -> None:
    rows = pa.table({"id": [1, 2, 3], "item": ["a", "b", "c"], "topic": ["ORDERS", None, None]})
    with pytest.raises(CallerError, match="TOPIC_MISSING.*2"):
        publish(disk.plan(None), disk.journal_id, disk.definitions, rows)
    with pytest.raises(CallerError, match="TOPIC_MISSING.*3"):
        publish(disk.plan(None), disk.journal_id, disk.definitions, rows.drop_columns("topic"))


def test_newer_opening_of_a_name_refuses_the_older_one(disk: Disk) -> None:
    """R98."""
    first = open_name(disk.store, disk.journal_id, ["order", "json"], "p", durable=False)
    assert (first.numbers, first.last_sequence) == ({"order": 1, "json": 1}, None)
    named(disk, range(1, 4), exclusive=True, number=first.numbers["order"])
    second = open_name(disk.store, disk.journal_id, ["order", "json"], "p", durable=False)
    assert (second.numbers, second.last_sequence) == ({"order": 2, "json": 2}, 3)
    with pytest.raises(CallerError, match=r"PUBLISHER_NAME_IN_USE.*number 2, this one is 1"):
        named(disk, range(4, 6), exclusive=True, number=first.numbers["order"])
    assert named(disk, range(4, 6), exclusive=True, number=second.numbers["order"]).rows == 2


def test_a_name_is_open_where_one_type_cannot_be_published_to(disk: Disk) -> None:
    """PROTOCOL 2: a fault of one type's table keeps nobody from the others."""
    DeltaTable(disk.store.messages_uri("json")).alter.set_table_description("somebody else's")
    opened = open_name(disk.store, disk.journal_id, ["json", "order"], "p", durable=False)
    assert named(disk, range(1, 4), exclusive=True, number=opened.number("order")).rows == 3
    with pytest.raises(JournalError, match="JOURNAL_MISMATCH"):
        opened.number("json")


def test_what_an_older_opening_commits_last_counts_for_the_newer_one(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """R95, R98: rows that are numbered on after it would be dropped as repeats."""
    first = open_name(disk.store, disk.journal_id, ["order"], "p", durable=False)
    put = DeltaHead.put

    def overtaken(*given: Any, **options: Any) -> bool:
        monkeypatch.setattr(DeltaHead, "put", put)
        named(disk, range(1, 4), exclusive=True, number=first.numbers["order"])
        return put(*given, **options)

    monkeypatch.setattr(DeltaHead, "put", overtaken)
    second = open_name(disk.store, disk.journal_id, ["order"], "p", durable=False)
    assert second.last_sequence == 3
    assert disk.ids() == [1, 2, 3]


def test_publish_that_opens_its_name_does_both_in_one_commit(disk: Disk) -> None:
    opened = open_name(disk.store, disk.journal_id, ["order"], "p", durable=False)
    named(disk, range(1, 4), exclusive=True)
    lines = [json.loads(line) for line in disk.log_path(ORDER, 2).read_text().splitlines()]
    told = {line["txn"]["appId"]: line["txn"]["version"] for line in lines if "txn" in line}
    assert told == {"n:p": 2, "p:p": 3, "q:ORDERS:p": 3}
    with pytest.raises(CallerError, match="PUBLISHER_NAME_IN_USE"):
        named(disk, range(4, 6), exclusive=True, number=opened.numbers["order"])


def planned(batch: int, plan: str | None = None, *, query: str = "query", topic: str = "ORDERS") -> Identity:
    """Return the identity of a query's batch, as Spark planned it."""
    name = transaction_name(STREAM_TXN, query, target=topic)
    told = {f"{OFFSETS_TXN}{name}": fingerprint(f"{batch} {plan or batch}".encode())}
    return Identity(transaction=Transaction(name=name, number=batch, fingerprints=told))


def numbered(version: int, *, by: str | None = None, app: str = "job", topic: str = "ORDERS") -> Identity:
    """Return the identity of a user's write, told from others by something or by its number alone."""
    name = transaction_name(USER_TXN, app, target=topic)
    told = {} if by is None else {f"{ROWS_TXN}{name}": fingerprint(f"{version} {by}".encode())}
    return Identity(transaction=Transaction(name=name, number=version, fingerprints=told))


def test_repeated_micro_batch_is_a_counted_no_op(disk: Disk) -> None:
    """R94; also one that an older driver repeats while a newer one has gone on."""
    for batch, expected in ((0, 2), (0, 0), (1, 2), (0, 0), (1, 0)):
        found = disk.publish([1, 2], identity=planned(batch))
        assert (found.rows, found.duplicates) == (expected, 2 - expected)
    assert disk.stored().num_rows == 4
    assert mark(disk, 1)["writer"] == "stream"


def test_another_batch_under_a_used_number_is_refused(disk: Disk) -> None:
    """R94: its query's checkpoint has gone back, so some of its rows may be there and others not."""
    disk.publish([1], identity=planned(0))
    disk.publish([2], identity=planned(1))
    for batch in (0, 1):
        with pytest.raises(
            CallerError, match=rf"CHECKPOINT_BEHIND.*Query query .*batch {batch} to topic 'ORDERS'.*last published batch, 1"
        ):
            disk.publish([2, 3], identity=planned(batch, "planned anew"))
    assert disk.ids() == [1, 2]
    assert disk.publish([3], identity=planned(2)).rows == 1
    assert disk.publish([2, 3], identity=planned(1, "planned anew", query="another")).rows == 2


def test_what_tells_a_batch_from_another_outlives_the_log(disk: Disk) -> None:
    """A driver that died after its commit may come back long after that entry was cleaned away."""
    disk.publish([1], identity=planned(0))
    disk.publish([2], identity=planned(1))
    table = DeltaTable(disk.store.messages_uri("order"))
    table.create_checkpoint()
    for version in range(table.version()):
        disk.log_path(ORDER, version).unlink()
    disk.publish([9], topic="RETURNS")
    DeltaTable(disk.store.messages_uri("order")).create_checkpoint()
    disk.log_path(ORDER, table.version()).unlink()
    assert disk.publish([2], identity=planned(1)) == Published(rows=0, duplicates=1)
    with pytest.raises(CallerError, match="CHECKPOINT_BEHIND"):
        disk.publish([2], identity=planned(1, "planned anew"))
    with pytest.raises(CallerError, match="CHECKPOINT_BEHIND"):
        disk.publish([1], identity=planned(0))
    assert disk.publish([3], identity=planned(2)).rows == 1


def test_each_topic_has_its_own_transactions(disk: Disk) -> None:
    """R94: one number, several topics of one message type."""
    for topic, expected in (("ORDERS", 1), ("RETURNS", 1), ("ORDERS", 0), ("RETURNS", 0)):
        assert disk.publish([1], topic=topic, identity=numbered(5, by="rows", topic=topic)).rows == expected
        assert disk.publish([1], topic=topic, identity=planned(0, topic=topic)).rows == expected


def test_stream_with_sequences_survives_a_deleted_checkpoint(disk: Disk) -> None:
    """A new query id starts at batch 0 again, and one that has gone back plans others; sequences tell what is new."""

    def batch(query: str, number: int, ids: range) -> Published:
        identity = Identity(publisher="p", transaction=planned(number, query=query).transaction)
        return disk.publish(list(ids), identity=identity, sequence_column="id")

    assert batch("old", 0, range(1, 4)).rows == 3
    assert batch("old", 1, range(4, 7)).rows == 3
    assert batch("new", 0, range(1, 4)) == Published(rows=0, duplicates=3, persisted_sequence=6)
    assert batch("new", 1, range(7, 9)).rows == 2
    assert batch("old", 1, range(4, 12)) == Published(rows=3, duplicates=5, persisted_sequence=11)
    assert disk.ids() == list(range(1, 12))


def test_write_of_a_user_is_published_once(disk: Disk) -> None:
    """R94."""
    assert disk.publish([1], identity=numbered(5, by="rows")).rows == 1
    assert disk.publish([1], identity=numbered(5, by="rows")) == Published(rows=0, duplicates=1)
    with pytest.raises(
        CallerError, match=r"TRANSACTION_USED.*txnVersion 5 of txnAppId 'job'.*topic 'ORDERS' before, with other rows"
    ):
        disk.publish([2], identity=numbered(5, by="other rows"))
    assert disk.publish([2], identity=numbered(5)) == Published(rows=0, duplicates=1), "the user says that it is the same"
    assert disk.publish([2], identity=planned(5, query="job")).rows == 1, "namespaces never mix"


def test_number_behind_the_newest_is_no_repeat_but_of_what_the_log_tells(disk: Disk) -> None:
    """R94: an older data interval that runs after a newer one."""
    disk.publish([2], identity=numbered(2, by="day 2"))
    disk.publish([4], identity=numbered(4, by="day 4"))
    assert disk.publish([2], identity=numbered(2, by="day 2")) == Published(rows=0, duplicates=1)
    for version, rows in ((1, "day 1"), (2, "other rows")):
        with pytest.raises(CallerError, match=rf"TRANSACTION_USED.*txnVersion {version} "):
            disk.publish([version], identity=numbered(version, by=rows))
    assert disk.publish([1], identity=numbered(1, by="day 1", app="job of day 1")).rows == 1
    assert disk.ids() == [1, 2, 4]


def test_numbers_of_a_publisher_in_another_topic_are_no_repeat(disk: Disk) -> None:
    """R95: its numbers count in all topics of a message type, so these rows would be dropped though they are not there."""
    for first in (1, 4):
        named(disk, range(first, first + 3))
    with pytest.raises(CallerError, match=r"SEQUENCE_ELSEWHERE.*its numbers up to 6, but not for topic 'RETURNS'.*from 6 \+ 1\."):
        disk.publish(list(range(1, 7)), topic="RETURNS", identity=Identity(publisher="p"), first_sequence=1)
    assert disk.publish([7, 8], topic="RETURNS", identity=Identity(publisher="p"), first_sequence=7).rows == 2
    assert named(disk, range(4, 7)) == Published(rows=0, duplicates=3, persisted_sequence=8)
    assert disk.publish([7, 8], topic="RETURNS", identity=Identity(publisher="p"), first_sequence=7).duplicates == 2
    with pytest.raises(CallerError, match=r"SEQUENCE_ELSEWHERE.*not for topic 'ORDERS'"):
        named(disk, range(4, 12))
    assert disk.ids() == list(range(1, 9))


def test_rows_that_name_their_topics_repeat_in_those(disk: Disk) -> None:
    """R95."""

    def batch(*topics: str) -> Published:
        rows = pa.table({"id": pa.array(range(1, len(topics) + 1), pa.int64()), "topic": list(topics)})
        return publish(disk.plan(None), disk.journal_id, disk.definitions, rows, identity=Identity(publisher="p"), first_sequence=1)

    assert batch("ORDERS", "RETURNS").rows == 2
    assert batch("ORDERS", "RETURNS") == Published(rows=0, duplicates=2, persisted_sequence=2)
    assert batch("ORDERS", "RETURNS", "QUOTES") == Published(rows=1, duplicates=2, persisted_sequence=3)
    assert batch("ORDERS", "RETURNS", "QUOTES") == Published(rows=0, duplicates=3, persisted_sequence=3)
    for others in (("ORDERS", "ORDERS", "ORDERS"), ("ORDERS", "RETURNS", "RETURNS", "QUOTES")):
        with pytest.raises(CallerError, match="SEQUENCE_ELSEWHERE.*its numbers up to 3, but not for topic"):
            batch(*others)
