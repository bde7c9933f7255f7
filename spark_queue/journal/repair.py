"""Opening a table whose newest files did not reach the disk whole, after a power loss (DESIGN 4)."""

from __future__ import annotations

import json
import logging

from deltalake import DeltaTable

from spark_queue.clock import SystemClock
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.damage import damaged, is_whole_checkpoint
from spark_queue.journal.entry_parts import Mark
from spark_queue.journal.log_entry import is_torn
from spark_queue.journal.log_listing import checkpoint_key, hint_key, is_checkpoint, version_of, versions_after
from spark_queue.journal.store import Store, log_key

_log = logging.getLogger(__name__)

#: Appended to the key of an entry that is set aside.
TORN = ".torn"


def open_repaired(store: Store, key: str) -> DeltaTable | None:
    """Open the table in folder `key` at its head, and repair entries that a power loss tore; None when there is no table."""
    try:
        table = delta.open_table(store, key)
    except JournalError as damage:
        if damage.code not in ("JOURNAL_DAMAGED", "LOG_GAP"):
            raise
        # One power loss may tear an entry and a checkpoint: they are written side by side.
        for repair in (repair_head, _set_torn_checkpoint_aside, _forget_lost_checkpoint):
            repair(store, key)
        # Also where there was nothing to repair: another may have come first. A log that is still damaged is refused again.
        table = delta.open_table(store, key)
    # A zero-length entry opens silently, as if it were a commit without actions (tried).
    if table is not None and is_torn(store, key, table.version()):
        repair_head(store, key)
        table = delta.open_table(store, key)
        # Nor does delta-rs mind one that was cut at the end of a line: where it stays as it is, only we refuse it.
        if table is not None and is_torn(store, key, table.version()):
            what = f"{log_key(key, table.version())} is not whole"
            raise damaged(store, what, "The one before it is not whole either, but a power loss damages only one commit.")
    return table


def repair_head(store: Store, key: str) -> bool:
    """Set a torn head entry aside as `.torn` and put an empty commit in its place; returns whether there was one.

    Two torn entries are more than the one commit that a power loss may tear: both are left alone, and reading fails by name.
    """
    versions = versions_after(store, key, -1)
    if not versions or not is_torn(store, key, versions[-1]):
        return False
    if len(versions) > 1 and is_torn(store, key, versions[-2]):
        return False
    entry = log_key(key, versions[-1])
    store.write(entry + TORN, store.read(entry) or b"")
    about = {"timestamp": SystemClock().wall_ms(), "operation": "REPAIR", "operationParameters": {}}
    info = {"commitInfo": {**about, **Mark(writer="repair").commit_info(0)}}
    store.write(entry, json.dumps(info).encode() + b"\n")
    store.sync([entry])
    _log.warning("Version %d of %s in '%s' was torn by a power loss and is set aside as %s", versions[-1], key, store.path, TORN)
    return True


def _set_torn_checkpoint_aside(store: Store, key: str) -> None:
    """Set a newest checkpoint that cannot be read aside, if the log still holds everything since the one before."""
    folder = f"{key}/_delta_log"
    checkpoints = [entry.key for entry in store.list(folder) if is_checkpoint(entry.key)]
    if not checkpoints or is_whole_checkpoint(store.read(checkpoints[-1])):
        return
    start = version_of(checkpoints[-2]) if len(checkpoints) > 1 else -1
    needed = range(start + 1, version_of(checkpoints[-1]) + 1)
    if not set(needed) <= set(versions_after(store, key, -1)):
        return
    store.write(checkpoints[-1] + TORN, store.read(checkpoints[-1]) or b"")
    store.delete([checkpoints[-1], hint_key(key)])
    _log.warning("Checkpoint %s in '%s' was torn by a power loss and is set aside as %s", checkpoints[-1], store.path, TORN)


def _forget_lost_checkpoint(store: Store, key: str) -> None:
    """Delete Delta's hint at a checkpoint that is not there; without the hint the log is listed."""
    hint = hint_key(key)
    try:
        lost = checkpoint_key(key, json.loads(store.read(hint) or b"")["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        # Delta ignores checkpoints that it cannot read.
        return
    if store.read(lost) is not None:
        return
    store.delete([hint])
    _log.warning("'%s' in '%s' was lost to a power loss; the log is read without it", lost, store.path)
