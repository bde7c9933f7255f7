"""Opening a message file wherever it stands, on executors too, and its errors: it is away, or it is damaged (DESIGN 4)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import NotFoundError

from spark_queue.errors import JournalError
from spark_queue.journal.store import Store, messages_key

#: The path of a message file: a name in its table's folder, as all of ours are. A path that leads out of it may be another
#: type's, or the host's.
PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")


@contextmanager
def opened(store: Store, message_type: str, path: str, *, is_mapped: bool = False) -> Iterator[pq.ParquetFile]:
    """Open a message file; raise JournalError for damage of it, or for a store that does not answer.

    A local file that `is_mapped` is read through the memory of the host's other readers of it.
    """
    key = key_of(store, message_type, path)
    with store.failures(f"reading {key}"):
        try:
            with pq.ParquetFile(store.open(key), memory_map=is_mapped) as file:
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
