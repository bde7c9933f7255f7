"""What time it is for the store: the times of its objects can be compared with no other clock."""

from __future__ import annotations

import uuid

from spark_queue.journal.layout import Store


def store_time_ms(store: Store) -> int:
    """Ask the store for its time by writing an object, in milliseconds since 1970 UTC.

    Raises
    ------
    JournalError
        STORE_FAILED.
    """
    key = f"probe-{uuid.uuid4().hex}"
    store.write(key, b"")
    try:
        return next(entry.modified_ms for entry in store.list("", after=key[:-1]) if entry.key == key)
    finally:
        store.delete([key])
