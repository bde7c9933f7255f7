"""The Delta tables that a consumer writes: made on first use, and a row whose key is there is not written again."""

from __future__ import annotations

from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession


def create(spark: SparkSession, path: str, rows: DataFrame) -> DeltaTable:
    """Open a table, or make it with the columns of `rows`."""
    return DeltaTable.createIfNotExists(spark).location(path).addColumns(rows.schema).execute()


def insert(rows: DataFrame, table: DeltaTable, key: str) -> None:
    """Write the rows whose key is not there yet."""
    table.alias("t").merge(rows.alias("r"), f"t.{key} = r.{key}").whenNotMatchedInsertAll().execute()
