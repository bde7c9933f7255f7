"""Names of columns are told in any case, and kept as they were spelt, as in Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.errors import CallerError, ConfigError
from spark_queue.journal.schema import appended_columns, check_columns, schema_of, user_schema
from spark_queue.source.columns import chosen

NAMES = ColumnNames(["Item", "quantity"])


@pytest.mark.parametrize(("name", "column"), [("item", "Item"), ("ITEM", "Item"), ("Quantity", "quantity"), ("items", None)])
def test_a_column_is_found_in_any_case_and_keeps_its_spelling(name: str, column: str | None) -> None:
    assert NAMES.find(name) == column


def test_names_are_resolved_in_their_order() -> None:
    assert NAMES.resolve(["QUANTITY", "item"], where="the rows") == ["quantity", "Item"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["itm"], r"\[UNKNOWN_COLUMN\] There is no column 'itm' in the rows. Did you mean 'Item'\? Columns: Item, quantity."),
        (["item", "iTem"], r"\[COLUMN_TWICE\] Column 'Item' of the rows is given twice, as 'item' and as 'iTem'"),
        (["item", "item"], r"\[COLUMN_TWICE\] Column 'Item' of the rows is given twice"),
    ],
)
def test_a_name_that_means_nothing_or_one_column_again_is_refused(names: list[str], text: str) -> None:
    with pytest.raises(CallerError, match=text):
        NAMES.resolve(names, where="the rows")


def test_an_error_lists_no_more_names_than_somebody_reads() -> None:
    assert str(ColumnNames(f"c{number}" for number in range(3_000))).endswith(", c39 and 2,960 more")


def test_columns_to_read_are_told_in_any_case() -> None:
    schema = schema_of(pa.field("Item", pa.string()), pa.field("bookmark", pa.int64()))
    assert chosen(schema, ("BOOKMARK", "item"), where="the queue").names == ["bookmark", "Item"]
    with pytest.raises(CallerError, match="COLUMN_TWICE"):
        chosen(schema, ("item", "Item"), where="the queue")


@pytest.mark.parametrize("columns", ["a INT, A INT", "a INT, a INT", "s STRUCT<x: INT, X: INT>"])
def test_a_declaration_names_a_column_once(columns: str) -> None:
    with pytest.raises(ConfigError, match="is named twice"):
        user_schema(columns)


def test_a_reserved_name_is_reserved_in_any_case() -> None:
    with pytest.raises(ConfigError, match="RESERVED_COLUMN"):
        check_columns("t", "Bookmark BIGINT")


def test_a_stored_column_keeps_its_spelling() -> None:
    with pytest.raises(ConfigError, match=r"column 'Item' is declared as 'item', but a stored column keeps its spelling"):
        appended_columns("t", user_schema("Item STRING"), user_schema("item STRING"))
