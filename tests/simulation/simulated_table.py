"""A Delta table over a bucket, with as much of delta-rs's interface as the journal uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from deltalake import Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from spark_queue.journal.record_blocks import RecordBlock
from spark_queue.journal.record_table import CONTROL_SCHEMA
from spark_queue.journal.store import CONTROL
from tests.simulation.bucket import SimulatedStore, TableState

#: The ways of living processes to their buckets, by the name in their storage options.
STORES: dict[str, SimulatedStore] = {}


class SimulatedTable:
    """One process's handle on a table, at one version; stands in for `deltalake.DeltaTable`."""

    def __init__(self, uri: str, version: int | None = None, storage_options: Mapping[str, str] | None = None) -> None:
        self._store = STORES[(storage_options or {})["process"]]
        self._key = uri.removeprefix(f"{self._store.path}/")
        states = self._look()
        self._state = states[-1 if version is None else version]

    def _look(self) -> list[TableState]:
        self._store.hook(f"opening {self._key}", "before")
        states = self._store.bucket.tables.get(self._key)
        if states is None:
            raise TableNotFoundError(self._key)
        if not self._store.bucket.is_readable(self._key):
            raise DeltaError(f"an entry of {self._key} is gone that no checkpoint replaces")
        return states

    def update_incremental(self) -> None:
        self._state = self._look()[-1]

    def load_as_version(self, version: int) -> None:
        self._state = self._look()[version]

    def version(self) -> int:
        return self._state.version

    def transaction_version(self, name: str) -> int | None:
        return self._state.transactions.get(name)

    def metadata(self) -> Any:
        found = self._state.metadata
        return SimpleNamespace(
            id=found["id"], name=found["name"], description=found["description"], configuration=found["configuration"],
            partition_columns=found["partitionColumns"], created_time=found["createdTime"],
        )  # fmt: skip

    def protocol(self) -> Any:
        found = self._state.protocol
        return SimpleNamespace(
            min_reader_version=found["minReaderVersion"], min_writer_version=found["minWriterVersion"],
            reader_features=found.get("readerFeatures"), writer_features=found.get("writerFeatures"),
        )  # fmt: skip

    def schema(self) -> Schema:
        return _schema(self._state.metadata["schemaString"])

    def get_add_actions(self, *, flatten: bool = False) -> pa.Table:
        adds = self._state.files.values()
        return pa.table({"path": [add["path"] for add in adds], "size_bytes": [add["size"] for add in adds]})

    def create_checkpoint(self) -> None:
        self._store.hook(f"checkpointing {self._key}", "before")
        self._store.bucket.checkpoint(self._key, self._state.version, len(self._state.files) + len(self._state.transactions))
        self._store.hook(f"checkpointing {self._key}", "after")


@cache
def _schema(columns: str) -> Schema:
    return Schema.from_json(columns)


def known_files(read: Callable[..., pa.Table], known: dict[str, pa.Table]) -> Callable[..., pa.Table]:
    """Let a reader of control records decode each file only once: it takes longer than all the rest, and they never change.

    Parameters
    ----------
    known
        What was decoded, by path; every file of a world has a name of its own.
    """

    def read_once(store: SimulatedStore, block: RecordBlock, *, first: int = 0, schema: pa.Schema = CONTROL_SCHEMA) -> pa.Table:
        if not block.is_file or store.read(f"{CONTROL}/{block.path}") is None:
            return read(store, block, first=first, schema=schema)
        if block.path not in known:
            known[block.path] = read(store, block)
        return known[block.path].slice(max(0, first - block.first)).select(schema.names)

    return read_once
