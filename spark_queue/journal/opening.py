"""Opening a message file wherever it stands, on executors too, and its errors: it is away, or it is damaged (DESIGN 4)."""

from __future__ import annotations

import io
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import NotFoundError

from spark_queue.errors import JournalError
from spark_queue.journal.store import WHOLE_BYTES, Store, messages_key

#: The path of a message file: a name in its table's folder, as all of ours are. A path that leads out of it may be another
#: type's, or the host's.
PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")


#: Files of an object store that are fetched at once, and bytes that they may have together if they are as large as the largest one
#: so far. `Store.open` fetches none as a whole that has more than `WHOLE_BYTES`.
AHEAD_FILES = 16
AHEAD_BYTES = 4 * WHOLE_BYTES


def opened_in_turn(store: Store, message_type: str, paths: Sequence[str]) -> Iterator[AbstractContextManager[pq.ParquetFile]]:
    """Yield `opened` for each file. Those of an object store are fetched while the ones before them are read."""
    if store.is_local:
        yield from (opened(store, message_type, path, is_mapped=True) for path in paths)
        return
    with ThreadPoolExecutor(AHEAD_FILES) as pool:
        largest_bytes, fetched, begun = WHOLE_BYTES // AHEAD_FILES, deque[Future[Any]](), iter(paths)
        most = AHEAD_BYTES // WHOLE_BYTES
        for path in paths:
            fetched.extend(
                pool.submit(store.open, key_of(store, message_type, each)) for each in islice(begun, max(0, most - len(fetched)))
            )
            first = fetched.popleft()
            yield opened(store, message_type, path, source=first.result)
            largest_bytes = max(largest_bytes, _size_bytes(first))
            most = max(1, min(AHEAD_FILES, AHEAD_BYTES // largest_bytes))


def _size_bytes(fetched: Future[Any]) -> int:
    """Return how many bytes a file has in memory; 0 where it is read by ranges."""
    source = fetched.result()
    return source.getbuffer().nbytes if isinstance(source, io.BytesIO) and not source.closed else 0


@contextmanager
def opened(
    store: Store, message_type: str, path: str, *, is_mapped: bool = False, source: Callable[[], Any] | None = None
) -> Iterator[pq.ParquetFile]:
    """Open a message file, or the `source` that was made of it; raise JournalError for damage, or a store that does not answer.

    A local file that `is_mapped` is read through the memory of the host's other readers of it.
    """
    key = key_of(store, message_type, path)
    with store.failures(f"reading {key}"):
        try:
            with pq.ParquetFile(store.open(key) if source is None else source(), memory_map=is_mapped) as file:
                yield file
        except (FileNotFoundError, PermissionError, NotFoundError) as failure:
            reason = store.reason(failure) if isinstance(failure, PermissionError) else "it is not there."
            table = store.messages_uri(message_type)
            raise JournalError("MESSAGE_FILE_MISSING", file=path, path=table, reason=reason) from None
        except pa.ArrowException as failure:
            raise corrupt(store, message_type, path, store.reason(failure)) from None
        except OSError as failure:
            # A disk or a network that fails has a number; an error of pyarrow's decoding has none.
            if failure.errno is None:
                raise corrupt(store, message_type, path, store.reason(failure)) from None
            raise


def key_of(store: Store, message_type: str, path: str) -> str:
    """Return the key of a message file: a name in its table's folder, whichever log names it."""
    key = f"{messages_key(message_type)}/{path}"
    if PATH.fullmatch(path) is None or not is_in_place(store, key):
        raise corrupt(store, message_type, path, "it is no file in the folder of its message type, or a link to one elsewhere.")
    return key


def is_in_place(store: Store, key: str) -> bool:
    """Return whether a key leads to a file of its folder, and no link to one elsewhere; also where there is nothing."""
    path = Path(store.uri(key))
    if not store.is_local or not os.path.lexists(path):
        return True
    # Where folders lie is up to the user who set the journal up.
    found, folder = os.path.realpath(path), os.path.realpath(path.parent)
    return os.path.isfile(found) and os.path.dirname(found) == folder  # noqa: PTH113, PTH120 - loops of links raise nothing.


def corrupt(store: Store, message_type: str, path: str, reason: str) -> JournalError:
    """Make MESSAGE_FILE_CORRUPT."""
    return JournalError("MESSAGE_FILE_CORRUPT", file=path, path=store.messages_uri(message_type), reason=reason)
