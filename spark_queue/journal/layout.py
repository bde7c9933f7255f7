"""Where a journal's parts stand, and the few object operations that it needs beside Delta (DESIGN 4).

`obstore` and `deltalake` are built on the same Rust `object_store`, so one set of storage options serves both. A local
path is a directory; anything with a scheme is an object store.
"""

from __future__ import annotations

import functools
import io
import os
import re
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError, UnknownConfigurationKeyError
from obstore.store import LocalStore, from_url

from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal import objects
from spark_queue.journal.objects import LocalSink, ObjectSink, ObjectSource, StoredObject, force, force_tree, split_options, told

CONTROL = "control"
#: Its folder is made first of all, and nothing is written where it is gone.
CONTROL_LOG = f"{CONTROL}/_delta_log"
MESSAGES = "messages"
SNAPSHOTS = "snapshots"
ADVERTISEMENT_KEY = "coordinator.json"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class TooLargeError(Exception):
    """An object is larger than its reader takes."""


@dataclass(frozen=True, slots=True)
class Store:
    """A journal's place: a local directory or an object-store prefix, and the options to reach it.

    Frozen, picklable and lazy: making one opens nothing. Keys are relative to the journal, with ``/``.

    Parameters
    ----------
    path : str
        A local path (made absolute here, because other processes have other working directories), ``file://`` URL, or the
        URL of an object-store prefix.
    storage_options : Mapping[str, str]
        As `deltalake` takes them, such as ``aws_access_key_id`` or ``aws_endpoint_url``; keys in any case.

    Raises
    ------
    JournalError
        STORE_FAILED, by every method that asks the store, but `open`.
    """

    path: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        options = {str(key).lower(): str(value) for key, value in self.storage_options.items()}
        object.__setattr__(self, "storage_options", options)
        object.__setattr__(self, "path", _normal_path(self.path))

    def __hash__(self) -> int:
        return hash((self.path, tuple(sorted(self.storage_options.items()))))

    @property
    def is_local(self) -> bool:
        """Whether the journal is a directory of this host."""
        return _SCHEME.match(self.path) is None

    def messages_uri(self, message_type: str) -> str:
        """Address of a message type's table, for Delta."""
        return self.uri(messages_key(message_type))

    def uri(self, key: str) -> str:
        """Address of a key, for Delta and for people."""
        return f"{self.path}/{key}"

    def read(self, key: str, *, most_bytes: int | None = None) -> bytes | None:
        """Return an object's bytes, or None when there is none.

        Raises
        ------
        TooLargeError
            When it has more than `most_bytes`, of which none were read.
        """
        with self.failures(f"reading {key}"):
            try:
                found = obstore.get(_object_store(self), key)
                if most_bytes is not None and found.meta["size"] > most_bytes:
                    raise TooLargeError(f"{key} has {found.meta['size']} bytes, and {most_bytes} are the most")
                return bytes(found.bytes())
            except FileNotFoundError:
                return None

    def write(self, key: str, data: bytes) -> None:
        """Write an object whole, replacing what was there; readers see the old bytes or the new ones."""
        with self.failures(f"writing {key}"):
            if self.is_local:
                self._require_log()
                objects.put_file(self.uri(key), data, replaces=True)
            else:
                obstore.put(_object_store(self), key, data)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if there is none of that key; tell whether it was this call that did."""
        with self.failures(f"creating {key}"):
            if self.is_local:
                self._require_log()
                return objects.put_file(self.uri(key), data, replaces=False)
            try:
                obstore.put(_object_store(self), key, data, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def list(self, prefix: str, *, after: str | None = None) -> list[StoredObject]:
        """Return the objects under a folder, in the order of their keys, only those after a key if one is given."""
        with self.failures(f"listing {prefix}"):
            found = obstore.list(_object_store(self), prefix, offset=after).collect()
        return sorted(map(StoredObject.of, found), key=lambda entry: entry.key)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that is already gone is no error."""
        for key in keys:
            with self.failures(f"deleting {key}"):
                try:
                    obstore.delete(_object_store(self), key)
                except FileNotFoundError:
                    continue

    def time_ms(self) -> int:
        """Ask the store what time it is, in milliseconds: the times of its objects can be compared with no other clock."""
        key = f"probe-{uuid.uuid4().hex}"
        self.write(key, b"")
        try:
            return next(entry.modified_ms for entry in self.list("", after=key[:-1]) if entry.key == key)
        finally:
            self.delete([key])

    def open(self, key: str) -> Any:
        """Return something that `pyarrow.parquet` reads an object from: its path, or a file-like reader of ranges.

        Raises
        ------
        FileNotFoundError
            When there is none.
        """
        if self.is_local:
            path = Path(self.uri(key))
            if not path.is_file():
                raise FileNotFoundError(path)
            return str(path)
        return ObjectSource(obstore.open_reader(_object_store(self), key))

    @contextmanager
    def writer(self, key: str) -> Iterator[io.RawIOBase]:
        """Yield a file-like sink for a new object of a unique key; what fails half-way leaves at most a leftover."""
        with self.failures(f"writing {key}"):
            self._require_log()
            sink = LocalSink(self.uri(key)) if self.is_local else ObjectSink(obstore.open_writer(_object_store(self), key))
            try:
                yield sink
            except BaseException:
                sink.abandon()
                raise
            sink.close()

    def sync(self, keys: Iterable[str], *, ancestors: bool = False) -> None:
        """Force objects and then the directories that name them to the disk; object stores are durable by themselves.

        Parameters
        ----------
        keys : Iterable[str]
            What to sync, in this order.
        ancestors : bool
            Also the directories above, up to the journal's parent: for objects whose directories are new.
        """
        if not self.is_local:
            return
        for key in keys:
            with self.failures(f"syncing {key}"):
                path = Path(self.uri(key))
                force(str(path))
                force(str(path.parent))
                if ancestors:
                    for directory in path.parent.parents:
                        force(str(directory))
                        if directory == Path(self.path).parent:
                            break

    def sync_all(self) -> None:
        """Force everything that stands to the disk: what others wrote who did not have to."""
        if self.is_local:
            with self.failures("syncing the journal"):
                force_tree(self.path)

    def check_put_if_absent(self) -> None:
        """Write one key twice and require that the second write is refused (DESIGN 4, power loss).

        Raises
        ------
        JournalError
            STORE_UNSAFE.
        """
        if self.storage_options.get("aws_s3_allow_unsafe_rename", "false").lower() in ("true", "1", "yes"):
            raise JournalError("STORE_UNSAFE", path=self.path)
        key = f"probe-{uuid.uuid4().hex}"
        if not self.create(key, b"first"):
            raise JournalError("STORE_UNSAFE", path=self.path)
        try:
            if self.create(key, b"second"):
                raise JournalError("STORE_UNSAFE", path=self.path)
        finally:
            self.delete([key])

    def require_log(self, doing: str) -> None:
        """Refuse to write below a directory where the control log is gone: what is written there is lost when it comes back.

        So it is where a volume is not mounted: below its mount point a second journal would begin.
        """
        with self.failures(doing):
            self._require_log()

    def make_folder(self, name: str) -> None:
        """Make a folder of the journal; object stores have none."""
        if self.is_local:
            with self.failures(f"making {name}"):
                self._require_log()
                Path(self.uri(name)).mkdir(exist_ok=True)

    def _require_log(self) -> None:
        if self.is_local and not Path(self.uri(CONTROL_LOG)).is_dir():
            raise FileNotFoundError("The journal's control log is not there")

    @contextmanager
    def failures(self, doing: str, *, next_step: str = "Check the store, then try again.") -> Iterator[None]:
        """Turn a storage failure into STORE_FAILED, without secrets."""
        try:
            yield
        except (OSError, BaseError) as reason:
            text = self.reason(reason)
            raise JournalError("STORE_FAILED", path=self.path, doing=doing, reason=text, next_step=next_step) from None

    def reason(self, failure: BaseException) -> str:
        """Return a failure's text in one line, cut in the middle where it is long, without the values of secret options."""
        return told(failure, self.storage_options)


def messages_key(message_type: str) -> str:
    """Return the folder of a message type's table, relative to the journal."""
    return f"{MESSAGES}/{message_type}"


def log_key(table: str, version: int) -> str:
    """Return the key of one entry of a table's Delta log; `table` is the table's folder."""
    return f"{table}/_delta_log/{version:020d}.json"


def _normal_path(path: str) -> str:
    # Hadoop, and so Spark for the tables of its catalog, writes a single slash.
    if path.startswith("file:/"):
        path = urllib.parse.unquote(urllib.parse.urlsplit(path).path)
    if _SCHEME.match(path) is None:
        # Links stay unresolved: messages show the path that the user knows.
        return os.path.abspath(path)  # noqa: PTH100 - as said above
    return path.rstrip("/")


@functools.lru_cache(maxsize=16)
def _object_store(store: Store) -> Any:
    if store.is_local:
        return LocalStore(store.path, mkdir=False)
    options: dict[str, Any] = split_options(store.storage_options)
    try:
        return from_url(store.path, **options)
    except UnknownConfigurationKeyError as reason:
        option = re.search(r"'([^']*)'", str(reason))
        supported = "the keys of object_store for this kind of store, as deltalake takes them"
        name = option[1] if option else store.reason(reason)
        raise ConfigError(
            "STORAGE_OPTION_UNSUPPORTED", option=name, reason="this kind of store does not know it.", supported=supported
        ) from None
    except (BaseError, ValueError) as reason:
        text, next_step = store.reason(reason), "Correct the path or the storage options."
        raise JournalError("STORE_FAILED", path=store.path, doing="opening it", reason=text, next_step=next_step) from None
