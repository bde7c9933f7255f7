"""Spark DDL to Arrow (DESIGN 4, 15.3)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from spark_queue.core.definitions.column_names import RESERVED_COLUMNS
from spark_queue.errors import ConfigError
from spark_queue.journal.schema import ENVELOPE, appended_columns, check_columns, shown_names, stored_schema, user_schema

INSTANT = pa.timestamp("us", tz="UTC")


def nested(opening: str, depth: int) -> str:
    """Return a column with an INT so many levels below it."""
    return f"a {opening * depth}INT{'>' * depth}"


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("a BOOLEAN", pa.bool_()),
        ("a tinyint", pa.int8()),
        ("a SHORT", pa.int16()),
        ("a INT", pa.int32()),
        ("a Long", pa.int64()),
        ("a REAL", pa.float32()),
        ("a DOUBLE", pa.float64()),
        ("a DECIMAL", pa.decimal128(10, 0)),
        ("a dec(7)", pa.decimal128(7, 0)),
        ("a NUMERIC(38, 18)", pa.decimal128(38, 18)),
        ("a STRING", pa.string()),
        ("a BINARY", pa.binary()),
        ("a DATE", pa.date32()),
        ("a TIMESTAMP", INSTANT),
        ("a TIMESTAMP_LTZ", INSTANT),
        ("a TIMESTAMP_NTZ", pa.timestamp("us")),
        ("a ARRAY<INT>", pa.list_(pa.field("element", pa.int32()))),
        ("a MAP<STRING, ARRAY<DATE>>", pa.map_(pa.string(), pa.list_(pa.field("element", pa.date32())))),
        ("a STRUCT<x: INT, y STRING NOT NULL>", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string(), nullable=False)])),
    ],
)
def test_user_schema_gives_the_type_that_delta_stores(ddl: str, expected: pa.DataType) -> None:
    schema = user_schema(ddl)
    assert schema.field("a").type == expected
    assert Schema.from_arrow(schema) is not None


def test_user_schema_reads_not_null_comments_and_quoted_names() -> None:
    schema = user_schema("id BIGINT NOT NULL COMMENT 'it''s, the key', `two words``` STRING comment \"x\"")
    assert schema.names == ["id", "two words`"]
    assert [field.nullable for field in schema] == [False, True]


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("", "a column name is missing"),
        ("a", "'nothing' is not a supported type"),
        ("a INTERVAL DAY", "'INTERVAL' is not a supported type"),
        ("a VARIANT", "'VARIANT' is not a supported type"),
        ("a INT,", "a column name is missing"),
        ("a INT b INT", "'b' is not expected there"),
        ("a INT, A STRING", "column 'A' is named twice"),
        ("a DECIMAL(39,2)", "DECIMAL(39,2) is impossible"),
        ("a DECIMAL(4,5)", "DECIMAL(4,5) is impossible"),
        ("a DECIMAL(x)", "a number is expected instead of 'x'"),
        ("a ARRAY<INT", "'>' is expected instead of 'the end'"),
        ("a MAP<STRING>", "',' is expected instead of '>'"),
        ("a INT NOT", "'NULL' is expected instead of 'the end'"),
        ("a INT; DROP", "';' cannot be read"),
        ("a DECIMAL(²,0)", "a number is expected instead of '²'"),
        ("a\ud800 INT", "'\\' cannot be read"),
        (nested("STRUCT<x ", 24), "types may nest 24 levels deep at most"),
        (nested("ARRAY<", 5_000), "types may nest 24 levels deep at most"),
    ],
)
def test_user_schema_says_what_is_wrong_with_the_ddl(ddl: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        user_schema(ddl)
    assert refused.value.code == "BAD_VALUE"
    assert reason in str(refused.value)


@pytest.mark.parametrize("opening", ["STRUCT<x ", "ARRAY<", "MAP<INT, "])
def test_what_is_accepted_a_table_can_be_made_of_and_altered_to(opening: str, tmp_path: Path) -> None:
    schema = user_schema(nested(opening, 23))
    table = DeltaTable.create(str(tmp_path), Schema.from_arrow(user_schema("b INT")))
    table.alter.add_columns(list(Schema.from_arrow(schema).fields))
    assert [field.name for field in table.schema().fields] == ["b", "a"]


def test_stored_schema_has_the_envelope_after_the_users_columns() -> None:
    schema = stored_schema("id BIGINT")
    assert schema.names == ["id", "topic", "publisher", "sequence", "published_at", "expires_at"]
    assert [field.name for field in ENVELOPE if field.nullable] == ["expires_at"]


@pytest.mark.parametrize("name", ["bookmark", "Topic", "is_barrier", "lease"])
def test_check_columns_refuses_a_reserved_name_and_lists_them(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"RESERVED_COLUMN.*'{name}'") as refused:
        check_columns("order", f"id BIGINT, {name} STRING")
    assert f'rename = {{{name} = "message_{name}"}}' in str(refused.value)
    assert all(each in str(refused.value) for each in RESERVED_COLUMNS)


def test_only_what_stands_in_a_delivered_row_is_reserved() -> None:
    names = "state status reason error outcome retry_after priority owner subscription due_at removed_at origin"
    check_columns("order", ", ".join(f"{name} STRING" for name in names.split()))
    with pytest.raises(ConfigError, match="RESERVED_COLUMN"):
        check_columns("order", "origin STRING", of_instance=True)
    check_columns("order", "owner STRING", of_instance=True)


@pytest.mark.parametrize(
    ("rename", "reason"),
    [
        ({"topic": "subjekt"}, "column 'subjekt', which 'topic' is to be, is not declared. Did you mean 'subject'"),
        ({"ID": "subject"}, "'ID' is a column already"),
        ({"topic": "subject", "Topic": "id"}, "'Topic' is renamed twice"),
        ({"topic": "publisher"}, "column 'publisher', which 'topic' is to be, is not declared"),
    ],
)
def test_a_name_of_incoming_rows_means_one_declared_column(rename: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match="CONTRADICTORY_SETTINGS") as refused:
        check_columns("order", "id BIGINT, subject STRING", rename=tuple(rename.items()))
    assert reason in str(refused.value)


def test_a_column_keeps_its_name_beside_facts_whatever_is_appended_later() -> None:
    facts = ("state", "reason")
    assert shown_names("id INT, State INT", facts) == {"id": "id", "State": "message_State"}
    ddl = "message_state INT, state INT, message_message_state INT"
    found = shown_names(ddl, facts)
    assert list(found.values()) == ["message_state", "message_message_state", "message_message_message_state"]
    assert [shown_names(", ".join(ddl.split(", ")[:count]), facts) for count in (1, 2)] == [
        dict(list(found.items())[:count]) for count in (1, 2)
    ]


def test_appended_columns_gives_new_nullable_columns_only() -> None:
    stored, declared = stored_schema("id BIGINT"), stored_schema("id BIGINT, note STRING, qty INT")
    assert [field.name for field in appended_columns("order", stored, declared)] == ["note", "qty"]
    assert appended_columns("order", declared, declared) == []


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ("id INT", "column 'id' is stored as BIGINT, but declared as INT"),
        ("id BIGINT NOT NULL", "declared as BIGINT NOT NULL"),
        ("id BIGINT, note STRING NOT NULL", "new column 'note' is NOT NULL"),
    ],
)
def test_appended_columns_refuses_any_other_change(declared: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="MESSAGE_TYPE_CHANGED") as refused:
        appended_columns("order", stored_schema("id BIGINT"), stored_schema(declared))
    assert reason in str(refused.value)
