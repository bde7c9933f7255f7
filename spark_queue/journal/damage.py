"""Parts of a log that cannot be made out, and the error that says so: found without delta-rs, which names no file (DESIGN 4)."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq

from spark_queue.errors import JournalError
from spark_queue.journal.log_listing import is_checkpoint, is_entry, version_of
from spark_queue.journal.store import Store


def damaged_files(store: Store, table: str) -> list[JournalError]:
    """Return an error for each file of a log that cannot be made out, and that is needed to open its table."""
    keys = [entry.key for entry in store.list(f"{table}/_delta_log")]
    newest = max(filter(is_checkpoint, keys), key=version_of, default=None)
    faults: dict[str, str] = {}
    if newest is not None and not is_whole_checkpoint(store.read(newest)):
        faults[newest] = "It is no whole checkpoint."
    for key in filter(is_entry, keys):
        if newest is None or version_of(key) > version_of(newest):
            fault = _fault_of_entry(store.read(key))
            faults |= {} if fault is None else {key: fault}
    return [damaged(store, f"{key} is not whole", fault) for key, fault in faults.items()]


def _fault_of_entry(data: bytes | None) -> str | None:
    """Return why an entry cannot be made out; None for one that can, or that was cleaned away meanwhile."""
    lines = (data or b"").splitlines()
    if data is not None and not any(map(bytes.strip, lines)):
        return "It is empty."
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line.strip() or b"{}")
        except (ValueError, RecursionError) as reason:
            return f"Its line {number} is no JSON: {reason}."
    return None


def is_whole_checkpoint(data: bytes | None) -> bool:
    """Return whether a checkpoint can be read, as far as its rows about the table."""
    try:
        pq.ParquetFile(io.BytesIO(data or b"")).read(columns=["metaData"])
    except (pa.ArrowException, OSError, KeyError):
        return False
    return True


def damaged(store: Store, what: str, reason: str) -> JournalError:
    """Make JOURNAL_DAMAGED."""
    return JournalError("JOURNAL_DAMAGED", path=store.path, what=what, reason=reason)


def gap(
    store: Store, table: str, version: int, *, next_step: str = "`sparkq verify` names everything that is wrong."
) -> JournalError:
    """Make LOG_GAP, for a log that lacks a version, though it has later ones."""
    return JournalError("LOG_GAP", path=store.uri(table), version=version, next_step=next_step)
