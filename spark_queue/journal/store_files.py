"""Objects of a store as files, and how many requests a process has made to object stores."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

#: Most bytes of one request; a larger object goes in parts.
PUT_BYTES = 10 * 1024 * 1024

#: The names of object_store's drafts, and of ours.
_DRAFT = re.compile(r"[^#]*#[0-9]+")

_requests = Counter({"GET": 0, "PUT": 0, "LIST": 0, "DELETE": 0, "HEAD": 0})
_counting = threading.Lock()


def requests_made() -> dict[str, int]:
    """Return how many requests this process has made to object stores, by kind; those of delta-rs for itself nobody knows."""
    with _counting:
        return dict(_requests)


def count(kind: str, requests: int = 1) -> None:
    """Note requests of a kind."""
    with _counting:
        _requests[kind] += requests


def store_failures() -> tuple[type[Exception], ...]:
    """Return the errors by which a store fails: those of the library for object stores, too, if this process has loaded it."""
    library = sys.modules.get("obstore.exceptions")
    return (OSError,) if library is None else (OSError, library.BaseError)


def files_below(folder: str, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and the facts of each file below a directory, which need not be there; drafts are left out.

    A link is what it leads to, but for one to a directory `above`, by device and inode, which would never end.
    """
    try:
        itself, entries = os.stat(folder), list(os.scandir(folder))  # noqa: PTH116 - a Path costs more than the look.
    except (FileNotFoundError, NotADirectoryError):
        return
    if (here := (itself.st_dev, itself.st_ino)) in above:
        return
    for entry in entries:
        try:
            found = entry.stat()
        except FileNotFoundError:
            # It was deleted meanwhile, or is a link to nothing.
            continue
        if stat.S_ISDIR(found.st_mode):
            yield from files_below(entry.path, above | {here})
        elif _DRAFT.fullmatch(entry.name) is None:
            yield entry.path, found


class ObjectSource(io.RawIOBase):
    """A reader of object ranges as the file object that pyarrow expects."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read from any place."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; give it."""
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        """Return the place."""
        return int(self._reader.tell())

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes from the place on; all of them without a size."""
        count("GET")
        try:
            return bytes(self._reader.read(None if size is None or size < 0 else size))
        except store_failures() as failure:
            raise OSError(errno.EIO, str(failure)) from None


class LocalSink(io.FileIO):
    """A new local file, which goes away if it is abandoned."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "xb")
        self._path = path

    def write(self, data: Any) -> int:
        """Write all bytes, or raise: a disk that is nearly full stores some of the last ones, and pyarrow does not look (tried)."""
        left = memoryview(data).cast("B")
        while left:
            left = left[cast(int, super().write(left)) :]
        return len(data)

    def abandon(self) -> None:
        """Close and remove it."""
        self.close()
        Path(self._path).unlink(missing_ok=True)


class ObjectSink(io.RawIOBase):
    """A multipart upload as the file object that pyarrow expects; abandoned, it makes no object."""

    def __init__(self, upload: Any) -> None:
        self._upload = upload
        self._size_bytes = 0

    def writable(self) -> bool:
        """Return that it can be written."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size_bytes

    def write(self, data: Any) -> int:
        """Write bytes; give their number."""
        self._upload.write(bytes(data))
        self._size_bytes += len(data)
        return len(data)

    def close(self) -> None:
        """Finish the upload: now there is an object."""
        if not self.closed and self._upload is not None:
            self._upload.close()
            parts = -(-self._size_bytes // PUT_BYTES)
            # Several parts have a beginning and an end.
            count("PUT", parts + 2 if parts > 1 else 1)
        super().close()

    def abandon(self) -> None:
        """Leave the upload unfinished: there will be no object."""
        self._upload = None
        super().close()
