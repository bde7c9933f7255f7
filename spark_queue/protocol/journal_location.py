"""Where a journal is: a copy has the same id, the same advertisement and the same last claim, and only its place tells it apart."""

from __future__ import annotations

import os
from urllib.parse import quote, urlsplit

from spark_queue.journal.layout import Store


def location_of(store: Store) -> str:
    """Return what tells a journal from its copies, as printable ASCII; empty for a directory that is not there.

    A directory's inode number is the same by every path and mount, on every host, and after a move within its file system. An
    object store's bucket and prefix are the same by every scheme that leads there.
    """
    if store.is_local:
        try:
            return str(os.stat(store.path).st_ino)  # noqa: PTH116  # A store's path is a text.
        except OSError:
            return ""
    url = urlsplit(store.path)
    # In `https://` URLs the bucket stands in the path, and in `abfss://` ones before the account.
    bucket = "" if url.scheme in ("http", "https") else url.netloc.split("@")[0]
    return quote(f"{bucket}{url.path}".strip("/"))
