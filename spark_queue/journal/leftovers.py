"""Message files that nothing names any more: never committed, merged into others, or retired (DESIGN 4)."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping

from spark_queue.journal.layout import Store, messages_key
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.journal.objects import StoredObject
from spark_queue.journal.store_time import store_time_ms

_LOG = logging.getLogger(__name__)

#: Only what is named as our own writers name files is ever deleted.
_OUR_NAME = re.compile(r"[0-9a-f]{32}\.parquet")


def unnamed_files(store: Store, message_type: str, standing: Collection[str]) -> list[StoredObject]:
    """Return the message files in the store that are not among those of the table.

    Raises
    ------
    JournalError
        STORE_FAILED.
    """
    folder = f"{messages_key(message_type)}/"
    found = [(entry, entry.key.removeprefix(folder)) for entry in store.list(folder.rstrip("/"))]
    return [entry for entry, name in found if _OUR_NAME.fullmatch(name) and name not in standing]


def delete_unnamed(work: MessageTableWork, named: Collection[str], replaced: Mapping[str, int], *, kept_ms: int) -> int:
    """Delete what nothing has named for `kept_ms`, and give the number of files.

    Parameters
    ----------
    work : MessageTableWork
        The table.
    named : Collection[str]
        Files in which messages stand, as far as the control log knows.
    replaced : Mapping[str, int]
        Files that left the table lately, and when, in milliseconds.
    kept_ms : int
        How long a file stays after it was written, and after it left the table. A publisher commits or stages anew within an hour.

    Raises
    ------
    JournalError
        STORE_FAILED.
    """
    # First the store, then the table: a file that is committed in between stands in the table.
    candidates = unnamed_files(work.store, work.message_type, named)
    # By the store's own clock too, since a host whose clock is wrong must not take files from under their publishers.
    before_ms = min(work.now_ms, store_time_ms(work.store)) - kept_ms
    work.refresh()
    standing = work.sizes().keys()
    folder = f"{work.key}/"
    gone = [
        entry.key
        for entry in candidates
        if entry.modified_ms < before_ms
        and (name := entry.key.removeprefix(folder)) not in standing
        and replaced.get(name, before_ms - 1) < before_ms
    ]
    work.store.delete(gone)
    if gone:
        _LOG.info("Deleted %d message files of type '%s' that nothing names.", len(gone), work.message_type)
    return len(gone)
