"""Objects below a journal: which store an address and its options mean, its objects as files, and forcing files to a disk."""

from __future__ import annotations

import errno
import io
import os
import re
import urllib.parse
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obstore.exceptions import BaseError

#: Options of the HTTP client rather than of the store; delta-rs takes them with or without the store's prefix.
_CLIENT_OPTIONS = frozenset(
    "allow_http allow_invalid_certificates connect_timeout default_content_type http1_only http2_only pool_idle_timeout "
    "pool_max_idle_per_host proxy_url timeout user_agent".split()
)

#: Options that only delta-rs knows and that say nothing about where objects are.
_DELTA_ONLY_OPTIONS = re.compile(
    r"aws_s3_locking_provider|aws_s3_allow_unsafe_rename|delta_dynamo_.*|(aws_)?dynamo.*|max_retries|retry_timeout|backoff_.*"
)

#: A line under a failure of delta-rs: an arrow, in colours, and what caused the line above.
_CAUSE = re.compile(r"\s*(?:\x1b\[\d*m)*↳(?:\x1b\[\d*m)*\s*(.*\S)")

#: How much an error repeats of both ends of a library's own words: some print whole structures, and the cause may come last.
_REASON_END = 200
_SECRET_KEY = re.compile(r"key|secret|token|sas|password|credential", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object of a listing."""

    #: Relative to the journal.
    key: str
    size_bytes: int
    #: The store's time of the last write, in milliseconds since 1970 UTC.
    modified_ms: int

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> StoredObject:
        """Read one entry of obstore's listing."""
        modified_ms = round(entry["last_modified"].timestamp() * 1000)
        return cls(key=entry["path"], size_bytes=entry["size"], modified_ms=modified_ms)


def told(failure: BaseException, options: Mapping[str, str]) -> str:
    """Return the first line of a failure's text and the causes below it, without the values of secret options."""
    first, *more = str(failure).strip().split("\n")
    causes = [cause[1] for line in more if (cause := _CAUSE.match(line))]
    text = ": ".join([first, *causes]) or type(failure).__name__
    for key, value in options.items():
        if is_secret(key) and len(value) >= 4:
            text = text.replace(value, "***").replace(urllib.parse.quote(value, safe=""), "***")
    text = text if len(text) <= 2 * _REASON_END else f"{text[:_REASON_END]} … {text[-_REASON_END:]}"
    return text if text.endswith(".") else f"{text}."


def is_secret(key: str) -> bool:
    """Return whether a storage option is a secret, by its name."""
    return _SECRET_KEY.search(key) is not None


def split_options(options: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the options of a store and those of its HTTP client, as the keyword arguments that obstore takes."""
    config: dict[str, str] = {}
    client_options: dict[str, str] = {}
    for key, value in options.items():
        bare = re.sub(r"^(aws|azure|google)_", "", key)
        if bare in _CLIENT_OPTIONS:
            client_options[bare] = value
        elif _DELTA_ONLY_OPTIONS.fullmatch(key) is None:
            config[key] = value
    return {"config": config, "client_options": client_options}


class ObjectSource(io.RawIOBase):
    """A reader of object ranges as the file object that pyarrow expects."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be read from any place."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; give it."""
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        """Return the place."""
        return int(self._reader.tell())

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes from the place on; all of them without a size.

        Raises
        ------
        OSError
            With a number, as a disk that fails would raise it: pyarrow's own, for what it cannot decode, have none.
        """
        try:
            return bytes(self._reader.read(None if size is None or size < 0 else size))
        except (BaseError, OSError) as failure:
            raise OSError(errno.EIO, str(failure)) from None


class LocalSink(io.FileIO):
    """A new local file, which goes away if it is abandoned."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "xb")
        self._path = path

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
        """Tell that it can be written."""
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
        super().close()

    def abandon(self) -> None:
        """Leave the upload unfinished: there will be no object."""
        self._upload = None
        super().close()


def put_file(path: str, data: bytes, *, replaces: bool) -> bool:
    """Write a local file whole, in place of another or only where there is none; return whether it was written.

    Its directory must be there. object_store would make it anew with all above it, in place of a journal that is away.
    """
    # object_store's listings leave out names that end like this.
    draft = Path(f"{path}#{uuid.uuid4().int}")
    try:
        with draft.open("xb") as file:
            file.write(data)
        if replaces:
            draft.replace(path)
        else:
            Path(path).hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def force(path: str) -> None:
    """Force a file's bytes, or the names in a directory, to the disk, so that they outlive a power loss (DESIGN 4)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def force_tree(folder: str) -> None:
    """Force all files below a directory, their names and its own to the disk; what is deleted meanwhile need not get there."""
    for parent, _, names in os.walk(folder):
        for path in (*(Path(parent, name) for name in names), parent):
            with suppress(FileNotFoundError):
                force(str(path))
    force(str(Path(folder).parent))
