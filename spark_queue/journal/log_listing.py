"""Listing the versions of a Delta log."""

from __future__ import annotations

import re

import msgspec

from spark_queue.journal.store import Store, log_key

_ENTRY = re.compile(r"(?:.*/)?[0-9]{20}\.json", re.DOTALL)
_CHECKPOINT = re.compile(r"(?:.*/)?[0-9]{20}\.checkpoint\.parquet", re.DOTALL)


def is_entry(key: str) -> bool:
    """Return whether a file is a log's entry: checkpoints, temporary files, and leftovers of others share its folder."""
    return _ENTRY.fullmatch(key) is not None


def is_checkpoint(key: str) -> bool:
    """Return whether a file is a log's checkpoint."""
    return _CHECKPOINT.fullmatch(key) is not None


def version_of(key: str) -> int:
    """Return the version that a file of a Delta log is named by."""
    return int(key.rsplit("/", 1)[1][:20])


def versions_after(store: Store, table: str, version: int) -> list[int]:
    """Return the versions beyond one for which the log has an entry, ascending."""
    keys = (entry.key for entry in store.list(f"{table}/_delta_log", after=log_key(table, version)))
    return [version_of(key) for key in keys if is_entry(key)]


def first_unbroken(store: Store, table: str, version: int) -> int:
    """Return the oldest version from which the log has an entry for each up to `version`, itself not asked for.

    Versions that were cleaned away are no gap then, and one that landed where a version had gone before is none of the log.
    """
    standing = set(versions_after(store, table, -1))
    while version - 1 in standing:
        version -= 1
    return version


def missing_version(store: Store, table: str) -> int | None:
    """Return the newest version that a reader of the log needs and that it has no entry for; None when none is missing."""
    standing = versions_after(store, table, -1)
    checkpoints = [entry.key for entry in store.list(f"{table}/_delta_log") if is_checkpoint(entry.key)]
    missing = first_unbroken(store, table, standing[-1]) - 1 if standing else -1
    # Entries below a checkpoint may be gone; and listing and reading are two moments, so only a second look makes a gap.
    is_needed = missing > max(map(version_of, checkpoints), default=-1)
    return missing if is_needed and store.read(log_key(table, missing)) is None else None


class LastCheckpoint(msgspec.Struct, frozen=True):
    """Delta's hint at the newest checkpoint of a log."""

    version: int = 0
    #: How many actions it has.
    actions: int = msgspec.field(default=0, name="size")


def checkpoint_key(table: str, version: int) -> str:
    """Return the key of the checkpoint at a version."""
    return f"{table}/_delta_log/{version:020d}.checkpoint.parquet"


def hint_key(table: str) -> str:
    """Return the key of the hint at the newest checkpoint."""
    return f"{table}/_delta_log/_last_checkpoint"


def last_checkpoint(store: Store, table: str) -> LastCheckpoint:
    """Return the hint at the newest checkpoint; version 0 where there is none, or a torn one."""
    data = store.read(hint_key(table))
    try:
        return msgspec.json.decode(data, type=LastCheckpoint) if data else LastCheckpoint()
    except (ValueError, RecursionError):
        return LastCheckpoint()
