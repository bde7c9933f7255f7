"""Objects of a store as files, and how many requests a process has made to object stores."""

from __future__ import annotations

import errno
import io
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any, cast

from obstore.exceptions import BaseError

#: Most bytes of one request; a larger object goes in parts.
PUT_BYTES = 10 * 1024 * 1024

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
        except (BaseError, OSError) as failure:
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
