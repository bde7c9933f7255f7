"""What the planning side of a write makes of its options, and what it refuses, without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_queue import Journal
from spark_queue.errors import AccessError, SparkQueueError
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.protocol.tokens import token_hash
from spark_queue.protocol.user_files import TOKEN_VARIABLE
from spark_queue.source.write_job import WriteJob
from spark_queue.source.writing import plan_write
from tests.unit.journal.journal_on_disk import Disk


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "journal")


def planned(disk: Disk, *columns: str, overwrite: bool = False, streaming: bool = False, **options: str) -> WriteJob:
    schema = StructType([
        StructField(name, LongType() if name == "id" else StringType()) for name in columns or ("id", "item")
    ])  # fmt: skip
    return plan_write({"path": disk.store.path, **options}, schema, overwrite=overwrite, streaming=streaming)


def test_a_write_knows_what_its_options_say(disk: Disk, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("ann")
    job = planned(
        disk, topic="ORDERS", publisher="p", sequenceColumn="id", expiresAfter="1h", deliverAfter="5m",
        txnAppId="a", txnVersion="7", coordinator="there:1", tokenFile=str(token),
    )  # fmt: skip
    assert (job.journal_id, job.message_type) == (disk.journal_id, "order")
    assert job.endpoint == Endpoint("there:1", str(token))
    assert (job.publisher, job.sequence_column, job.txn_app_id, job.txn_version) == ("p", "id", "a", 7)
    plans = {name: (plan.shape.expires_after_ms, plan.deliver_after_ms) for name, plan in job.plans.items()}
    assert plans == {"order": (3_600_000, 300_000)}


def test_rows_that_name_their_topics_may_go_to_every_message_type(disk: Disk) -> None:
    job = planned(disk, "id", "topic")
    assert (job.message_type, set(job.plans)) == (None, {"order", "json", "binary"})
    assert set(job.definitions["queues"]) == {"WORK"}


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ((), {"topic": "ORDERS", "overwrite": True}, "UNSUPPORTED_WRITE.*only be appended"),
        ((), {"topic": "ORDERS", "__partition_columns": "id"}, "UNSUPPORTED_WRITE.*publish order"),
        (("id", "itm"), {"topic": "ORDERS"}, "UNKNOWN_COLUMN.*Did you mean 'item'"),
        ((), {}, "TOPIC_MISSING"),
        ((), {"topic": "ORDRES"}, "UNKNOWN_TOPIC.*Did you mean 'ORDERS'"),
        ((), {"topic": "ORDERS", "publisher": "p"}, "SEQUENCE_MISSING.*option sequenceColumn"),
        ((), {"topic": "ORDERS", "publisher": "p", "sequenceColumn": "at"}, "SEQUENCE_MISSING.*no column 'at'"),
        ((), {"topic": "ORDERS", "storage.aws_region": "eu-1"}, "STORAGE_OPTION_UNSUPPORTED.*aws_region"),
        ((), {"topic": "ORDERS", "coordinator": "queue-a:7337,"}, "BAD_VALUE.*'coordinator'.*HOST:PORT,HOST:PORT"),
        ((), {"topic": "ORDERS", "coordinator": "queue-a:7337,b c"}, "BAD_VALUE.*'coordinator'.*b c"),
        ((), {"topic": "ORDERS", "coordinator": "grpc://there:1"}, "BAD_VALUE.*'coordinator'.*without TLS"),
        ((), {"topic": "ORDERS", "tokenFile": "/nowhere/token"}, "BAD_VALUE.*/nowhere/token"),
    ],
)
def test_a_wrong_write_is_refused_before_anything_is_staged(
    disk: Disk, columns: tuple[str, ...], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SparkQueueError, match=reason):
        planned(disk, *columns, **options)


def test_a_write_to_a_name_without_the_right_is_refused_before_spark_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: the right is one on the name; where it goes by default is no right on that."""
    rights = {"admin": ["administer"], "ann": ["write"]}
    principals = {
        name: {"token_hash": token_hash(name), "rights": [{"rights": each} | ({} if name == "admin" else {"queues": "WORK"})]}
        for name, each in rights.items()
    }
    queues = {"WORK": {"underlying_topic": "ORDERS"}}
    made = Journal.create(
        str(tmp_path / "j"), {"message_types": {"json": {"topics": ["ORDERS"]}}, "queues": queues, "principals": principals}
    )
    schema = StructType([StructField("value", StringType())])

    def plan(topic: str) -> WriteJob:
        return plan_write({"path": made.path, "topic": topic}, schema, overwrite=False, streaming=False)

    monkeypatch.setenv(TOKEN_VARIABLE, "ann")
    assert plan("WORK").message_type == "json"
    with pytest.raises(AccessError, match="ACCESS_DENIED.*'ann' has no right 'write' on 'ORDERS'"):
        plan("ORDERS")
