"""Opening a message file wherever it stands, on executors too, and its errors: it is away, or it is damaged (DESIGN 4)."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_queue.journal.folder import Folder
from spark_queue.journal.store import WHOLE_BYTES

#: Files of an object store that are fetched at once, and bytes that they may have together if they are as large as the largest one
#: so far. `Store.open` fetches none as a whole that has more than `WHOLE_BYTES`.
AHEAD_FILES = 16
AHEAD_BYTES = 4 * WHOLE_BYTES


def opened_in_turn(files: Sequence[tuple[Folder, str]]) -> Iterator[AbstractContextManager[pq.ParquetFile]]:
    """Yield `opened` for each path in a folder. Files of an object store are fetched while the ones before them are read."""
    if all(folder.store.is_local for folder, _ in files):
        yield from (opened(folder, path, is_mapped=True) for folder, path in files)
        return
    with ThreadPoolExecutor(AHEAD_FILES) as pool:
        largest_bytes, fetched, begun = WHOLE_BYTES // AHEAD_FILES, deque[Future[Any]](), iter(files)
        most = AHEAD_BYTES // WHOLE_BYTES
        for folder, path in files:
            fetched.extend(
                pool.submit(there.store.open, there.key_of(each)) for there, each in islice(begun, max(0, most - len(fetched)))
            )
            first = fetched.popleft()
            yield opened(folder, path, source=first.result)
            largest_bytes = max(largest_bytes, _size_bytes(first))
            most = max(1, min(AHEAD_FILES, AHEAD_BYTES // largest_bytes))


def _size_bytes(fetched: Future[Any]) -> int:
    """Return how many bytes a file has in memory; 0 where it is read by ranges."""
    source = fetched.result()
    return source.getbuffer().nbytes if isinstance(source, io.BytesIO) and not source.closed else 0


@contextmanager
def opened(
    folder: Folder, path: str, *, is_mapped: bool = False, source: Callable[[], Any] | None = None
) -> Iterator[pq.ParquetFile]:
    """Open a message file, or the `source` that was made of it; raise JournalError for damage, or a store that does not answer.

    A local file that `is_mapped` is read through the memory of the host's other readers of it.
    """
    key, store = folder.key_of(path), folder.store
    # Spark writes moments in a form of 96 bits, too, of which pyarrow makes nanoseconds: years before 1678 would be others (tried).
    unit = "us" if folder.is_followed else None
    with store.failures(f"reading {key}"):
        try:
            found = store.open(key) if source is None else source()
            # Columns of a disk's file are there sooner than the threads that would read them ahead.
            with pq.ParquetFile(
                found, memory_map=is_mapped, pre_buffer=not store.is_local, coerce_int96_timestamp_unit=unit
            ) as file:
                yield file
        except (FileNotFoundError, PermissionError) as failure:
            reason = store.reason(failure) if isinstance(failure, PermissionError) else "it is not there."
            raise folder.missing(path, reason) from None
        except pa.ArrowException as failure:
            raise folder.corrupt(path, store.reason(failure)) from None
        except OSError as failure:
            # A disk or a network that fails has a number; an error of pyarrow's decoding has none.
            if failure.errno is None:
                raise folder.corrupt(path, store.reason(failure)) from None
            raise
