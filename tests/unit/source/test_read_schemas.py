"""A schema that the user names is a choice of a read's columns, or is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_queue import Journal
from spark_queue.errors import SparkQueueError
from tests.unit.source.reading import source


@pytest.mark.parametrize(
    ("options", "column", "reason"),
    [
        ({"topic": "LINES"}, StructField("itm", StringType()), "UNKNOWN_COLUMN.*'itm'.*Did you mean 'item'"),
        ({"topic": "LINES"}, StructField("ID", LongType()), "BAD_VALUE.*'ID' in the schema.*'ID bigint'.*'id bigint'"),
        ({"topic": "LINES"}, StructField("item", LongType()), "BAD_VALUE.*'item' in the schema.*'item string'"),
        ({"topic": "LINES", "columns": "id"}, StructField("item", StringType()), "UNKNOWN_COLUMN.*'item'"),
        ({"queue": "WORK"}, StructField("itm", StringType()), "UNKNOWN_COLUMN.*'itm'"),
    ],
)
def test_a_schema_of_other_columns_is_refused_before_anything_is_read(
    tmp_path: Path, options: dict[str, str], column: StructField, reason: str
) -> None:
    definitions = {
        "message_types": {"line": {"columns": "id BIGINT, item STRING", "topics": ["LINES"]}},
        "queues": {"WORK": {"underlying_topic": "LINES"}},
    }
    journal = Journal.create(str(tmp_path / "journal"), definitions)
    with pytest.raises(SparkQueueError, match=reason):
        source(journal, **options).reader(StructType([column]))
