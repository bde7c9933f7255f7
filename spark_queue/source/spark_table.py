"""A Delta table that Spark itself writes, by append or by MERGE, for features that our append would not keep (DESIGN 19)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from spark_queue.errors import ConfigError
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.sinks.sink import Landing
from spark_queue.sinks.table import COLUMN_KEYS, SinkTable

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder
    from delta.tables import DeltaTable as MergeTarget

#: The user's function: gets the table and the rows of a batch, and returns the MERGE that is to be executed.
MergeFunction = Callable[["MergeTarget", DataFrame], "DeltaMergeBuilder"]

#: Commits the rows of a batch under a version of a transaction id.
_Commit = Callable[[tuple[str, int]], None]

#: Delta's options of a write, with which it skips a version that it has, and the session's for a MERGE, which has no options.
_OPTIONS = ("txnAppId", "txnVersion")
_SESSION_PREFIX = "spark.databricks.delta.write."

#: Where Delta commits by a look and a rename, unless a log store is configured that does not: two drivers may both succeed.
_UNSAFE_SCHEMES = frozenset({"file", "s3", "s3a", "s3n"})
_UNSAFE_LOG_STORES = ("S3SingleDriverLogStore", "LocalLogStore", "HDFSLogStore")


class SparkTable(SinkTable):
    """A table to which each batch is appended or merged by a commit of Spark's, which reaches it by its own settings.

    `single_driver` is the user's word that no other driver commits to the table, so that a look and a rename are safe.
    """

    def __init__(
        self, path: str, storage_options: Mapping[str, str], merge: MergeFunction | None = None, *, single_driver: bool = False
    ) -> None:
        super().__init__(path, storage_options)
        self._path = path
        self._merge = merge
        self._single_driver = single_driver

    def plan(
        self, columns: Sequence[Mapping[str, Any]], *, partition_by: Sequence[str] | None = None, merges_schema: bool = False
    ) -> dict[str, str]:
        """Return options of the append: beside the columns Spark makes the checks of `SinkTable.plan`, and of MERGE all."""
        if self._merge is None:
            self._fitting(columns, partition_by, merges_schema=merges_schema)
        elif self.check() is None:
            raise self._absent()
        return {"mergeSchema": str(merges_schema)}

    def stage(
        self,
        rows: DataFrame,
        plan: dict[str, str],
        session: SparkSession,
        *,
        messages: int,  # noqa: ARG002 - however many, Spark's tasks write them.
    ) -> list[_Commit]:
        """Return the commit of the rows, as a function: Spark writes its files as it commits them."""
        return [partial(self._append_rows, rows, plan) if self._merge is None else partial(self._merge_rows, rows, session)]

    def append(
        self,
        plan: dict[str, str],  # noqa: ARG002 - what is staged has it.
        files: Sequence[_Commit],
        *,
        transaction: str,
        attempt: int,
    ) -> Landing:
        """Commit as `Sink.append` does; an exception of Spark's is raised, and leaves the attempt in doubt."""
        return self._decide(transaction, attempt, 2 * attempt, files, None)

    def discard(self, files: Sequence[_Commit]) -> None:
        """Leave files to Spark, which deletes those of a failed write, and to VACUUM."""

    def _require_store(self) -> None:
        if self._single_driver:
            return
        scheme = "file" if self._store.is_local else self.name.partition("://")[0]
        conf = SparkSession.active().conf
        log_store = conf.get(f"spark.delta.logStore.{scheme}.impl", None) or conf.get("spark.delta.logStore.class", None)
        if scheme in _UNSAFE_SCHEMES and (scheme == "file" or log_store is None or log_store.endswith(_UNSAFE_LOG_STORES)):
            raise ConfigError("SINK_COMMIT_UNSAFE", table=self.name, scheme=scheme)

    def _unkept(self, table: DeltaTable) -> set[str]:
        # Its versions are a catalog's, which a path does not ask.
        return {name for name in table.protocol().writer_features or () if name.startswith("catalog")}

    def _swap(self, head: DeltaHead, files: Sequence[_Commit], txn: tuple[str, int]) -> str:
        """Let Spark commit. An error of a batch is perhaps its function's, and is raised; a fence fails where it loses its race."""
        try:
            for commit in files or [self._fence_of(head.table)]:
                commit(txn)
        except Exception as reason:
            if files:
                raise
            return str(reason).partition("\n")[0]
        return "Spark has committed, but the commit cannot be found there."

    def _append_rows(self, rows: DataFrame, options: dict[str, str], txn: tuple[str, int]) -> None:
        given = {**options, **dict(zip(_OPTIONS, map(str, txn), strict=True))}
        rows.write.format("delta").mode("append").options(**given).save(self._path)

    def _merge_rows(self, rows: DataFrame, session: SparkSession, txn: tuple[str, int]) -> None:
        # Only MERGE needs delta-spark's Python.
        from delta.tables import DeltaTable as MergeTarget

        assert self._merge is not None, "staged for it"
        merge = self._merge(MergeTarget.forPath(session, self._path), rows)
        # MERGE takes no options. The session of a query's batches is that query's alone.
        keys = [f"{_SESSION_PREFIX}{option}" for option in _OPTIONS]
        try:
            for key, value in zip(keys, txn, strict=True):
                session.conf.set(key, str(value))
            merge.execute()
        finally:
            for key in keys:
                session.conf.unset(key)

    def _fence_of(self, table: DeltaTable) -> _Commit:
        """Return a DataFrame that appends nothing: a column that Delta computes itself may not be given."""
        names = [str(field.name) for field in table.schema().fields if not COLUMN_KEYS.keys() & field.metadata.keys()]
        columns = [f"`{name.replace('`', '``')}`" for name in names]
        nothing = SparkSession.active().read.format("delta").load(self._path).limit(0).select(*columns)
        return partial(self._append_rows, nothing, {})
