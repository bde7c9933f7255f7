"""The files that a Delta table has at a version, with all that its log says of them.

delta-rs tells neither the vector of a file nor a partition value as it is written, so checkpoint and entries are read here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_queue.journal.damage import gap
from spark_queue.journal.folder import Folder
from spark_queue.journal.log_entry import TornEntryError, read_entry
from spark_queue.journal.log_listing import version_of, versions_after

_CHECKPOINT = re.compile(r".*/[0-9]{20}\.checkpoint(\.[0-9]{10}\.[0-9]{10}|\.[0-9a-fA-F-]{36})?\.(parquet|json)", re.DOTALL)


def adds_at(folder: Folder, version: int) -> list[Mapping[str, Any]]:
    """Return the `add` actions of the files that a table has at a version, in no order.

    Raises
    ------
    JournalError
        LOG_GAP where an entry is missing that is needed for it.
    """
    checkpoint, keys = _newest_checkpoint(folder, version)
    standing: dict[str, Mapping[str, Any]] = {}
    for key in keys:
        standing.update((str(add["path"]), add) for add in _adds_of(folder, key))
    for number in range(checkpoint + 1, version + 1):
        entry = read_entry(folder.store, folder.key, number)
        if entry is None:
            raise gap(folder.store, folder.key, number, next_step="Nothing else tells which files the table had.")
        for remove in entry.removes:
            standing.pop(str(remove["path"]), None)
        standing.update((str(add["path"]), add) for add in entry.adds)
    return list(standing.values())


def protocol_at(folder: Folder, version: int | None) -> Mapping[str, Any]:
    """Return the protocol that a table has at a version, or at its head; empty where no entry and no checkpoint has one."""
    versions = versions_after(folder.store, folder.key, -1)
    head = max(versions, default=0) if version is None else version
    for number in reversed([each for each in versions if each <= head]):
        with suppress(TornEntryError):
            entry = read_entry(folder.store, folder.key, number)
            if entry is not None and entry.protocol is not None:
                return entry.protocol
    _, keys = _newest_checkpoint(folder, head)
    found = [protocol for key in keys for protocol in _of_checkpoint(folder, key, "protocol")]
    return found[-1] if found else {}


def _newest_checkpoint(folder: Folder, version: int) -> tuple[int, list[str]]:
    """Return the newest version up to one that has a whole checkpoint, -1 for none, and the files of that."""
    found: dict[int, list[str]] = {}
    for entry in folder.store.list(f"{folder.key}/_delta_log"):
        if _CHECKPOINT.fullmatch(entry.key) and version_of(entry.key) <= version:
            found.setdefault(version_of(entry.key), []).append(entry.key)
    for number in sorted(found, reverse=True):
        whole = next(_whole(found[number]), None)
        if whole is not None:
            return number, whole
    return -1, []


def _whole(keys: list[str]) -> Iterator[list[str]]:
    """Yield each whole checkpoint among the files of one version: one file, or all of its parts."""
    parts: dict[str, list[str]] = {}
    for key in keys:
        part = re.search(r"\.checkpoint\.[0-9]{10}\.([0-9]{10})\.parquet$", key)
        if part is None:
            yield [key]
        else:
            parts.setdefault(part[1], []).append(key)
    yield from (files for count, files in parts.items() if len(files) == int(count))


def _adds_of(folder: Folder, key: str) -> Iterator[Mapping[str, Any]]:
    """Yield the `add` actions of a checkpoint's file, and of the files beside the log that it names."""
    yield from _of_checkpoint(folder, key, "add")
    for sidecar in _of_checkpoint(folder, key, "sidecar"):
        # A name in the folder beside the log, whatever was written before it.
        name = str(sidecar["path"]).rpartition("/")[2]
        yield from _actions(folder, f"{folder.key}/_delta_log/_sidecars/{name}", "add")


def _of_checkpoint(folder: Folder, key: str, name: str) -> list[Mapping[str, Any]]:
    """Return the actions of a name that a checkpoint's file has itself; it is of Parquet or of JSON."""
    if key.endswith(".json"):
        actions = [json.loads(line) for line in (folder.store.read(key) or b"").splitlines() if line.strip()]
        return [action[name] for action in actions if action.get(name)]
    with folder.store.failures(f"reading {key}"):
        return _actions(folder, key, name)


def _actions(folder: Folder, key: str, name: str) -> list[Mapping[str, Any]]:
    with pq.ParquetFile(folder.store.open(key)) as file:
        if name not in file.schema_arrow.names:
            return []
        column: Any = file.read(columns=[name]).column(name)
        found: list[Any] = pa.chunked_array(column).drop_null().to_pylist()
    return [{**action, **dict(_maps(action))} for action in found]


def _maps(action: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the maps of an action as such: Arrow has lists of pairs."""
    for name in ("partitionValues", "tags"):
        if isinstance(action.get(name), list):
            yield name, dict(action[name])
