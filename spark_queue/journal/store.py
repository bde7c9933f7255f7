"""Where a journal's parts stand, and the few object operations that it needs beside Delta (DESIGN 4).

`obstore` and `deltalake` are built on the same Rust `object_store`, so one set of storage options serves both. A local
path is a directory; anything with a scheme is an object store.

Objects below a journal: which store an address and its options mean, and forcing files to a disk.
"""

from __future__ import annotations

import functools
import io
import os
import re
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_queue import forks
from spark_queue.errors import ConfigError, JournalError, check_text
from spark_queue.journal.store_files import PUT_BYTES, LocalSink, ObjectSink, ObjectSource, count, files_below, store_failures

#: Options of the HTTP client rather than of the store; delta-rs accepts them with or without the store's prefix.
_CLIENT_OPTIONS = frozenset(
    "allow_http allow_invalid_certificates connect_timeout default_content_type http1_only http2_only pool_idle_timeout "
    "pool_max_idle_per_host proxy_url timeout user_agent".split()
)

#: Options that only delta-rs knows and that say nothing about where objects are.
_DELTA_ONLY_OPTIONS = re.compile(
    r"aws_s3_locking_provider|aws_s3_allow_unsafe_rename|delta_dynamo_.*|(aws_)?dynamo.*|max_retries|retry_timeout|backoff_.*"
)

#: A line under a failure of delta-rs: an arrow, in colours, and the cause of the line above.
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

    @classmethod
    def of_file(cls, key: str, facts: os.stat_result) -> StoredObject:
        """Return a local file by the system's facts of it."""
        return cls(key=key, size_bytes=facts.st_size, modified_ms=round(facts.st_mtime * 1000))


def redacted(failure: BaseException, options: Mapping[str, str]) -> str:
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
    """Return the options of a store and those of its HTTP client, as keyword arguments of obstore."""
    config: dict[str, str] = {}
    client_options: dict[str, str] = {}
    for key, value in options.items():
        bare = re.sub(r"^(aws|azure|google)_", "", key)
        if bare in _CLIENT_OPTIONS:
            client_options[bare] = value
        elif _DELTA_ONLY_OPTIONS.fullmatch(key) is None:
            config[key] = value
    # Options that are given, if only as none, replace those of the environment, such as AWS_ALLOW_HTTP.
    return {name: given for name, given in (("config", config), ("client_options", client_options)) if given}


def _file_bytes(path: str, most_bytes: int | None) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a Path costs more than to read a log entry.
        size_bytes = os.fstat(file.fileno()).st_size
        if most_bytes is not None and size_bytes > most_bytes:
            raise TooLargeError(f"{path} has {size_bytes} bytes, and {most_bytes} are the most")
        return file.read()


def put_file(path: str, data: bytes, *, replaces: bool) -> bool:
    """Write a local file whole, in place of another or only where there is none; return whether it was written.

    Its directory must be there. object_store would make it anew with all above it, in place of a journal that is away.
    """
    # object_store's listings leave out names that end like this.
    draft = f"{path}#{uuid.uuid4().int}"
    try:
        with open(draft, "xb") as file:  # noqa: PTH123 - a Path costs as much as to write a log entry.
            file.write(data)
        (os.replace if replaces else os.link)(draft, path)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)  # noqa: PTH108 - likewise.
    return True


def force(path: str) -> None:
    """Force a file's bytes, or the names in a directory, to the disk, so that they outlive a power loss (DESIGN 4)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def force_tree(folder: str) -> None:
    """Force all files below a directory, their names and its own to the disk; files deleted meanwhile need not get there."""
    for parent, _, names in os.walk(folder):
        for path in (*(Path(parent, name) for name in names), parent):
            with suppress(FileNotFoundError):
                force(str(path))
    force(str(Path(folder).parent))


CONTROL = "control"
#: Its folder is made first of all, and nothing is written where it is gone.
CONTROL_LOG = f"{CONTROL}/_delta_log"
MESSAGES = "messages"
SNAPSHOTS = "snapshots"
ADVERTISEMENT_KEY = "coordinator.json"

#: Most bytes of an object that one request reads whole: footer and columns of a file by themselves take three or more, each after
#: the other.
WHOLE_BYTES = 8 * 1024 * 1024

#: Bytes of an object that are in memory at once while it is copied.
_PART_BYTES = 8 * 1024 * 1024

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
#: How Hadoop names a place in a file system that Spark alone knows, such as ``dbfs:/shop``.
_OF_HADOOP = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
#: How Spark names a table of a catalog, such as ``default.booked``, or by its path, such as ``delta.`/tables/booked```.
_OF_CATALOG = re.compile(r"[^./]+(\.[^./]+)+|\w+\.`.*`")


class TooLargeError(Exception):
    """An object is larger than its reader accepts."""


@dataclass(frozen=True, slots=True)
class Store:
    """A journal's place: a local directory or an object-store prefix, and the options to reach it.

    Frozen, picklable and lazy: making one opens nothing. Keys are relative to the journal, with ``/``.
    """

    #: A local path (made absolute here, because other processes have other working directories), ``file://`` URL, or the URL of
    #: an object-store prefix.
    path: str
    #: Options of `deltalake`, such as ``aws_access_key_id`` or ``aws_endpoint_url``; keys in any case.
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The folder that has to be there before anything is written on a local disk.
    log_folder: str = CONTROL_LOG

    def __post_init__(self) -> None:
        options = {str(key).lower(): str(value) for key, value in self.storage_options.items()}
        object.__setattr__(self, "storage_options", options)
        object.__setattr__(self, "path", normal_path(self.path))

    def __hash__(self) -> int:
        return hash((self.path, tuple(sorted(self.storage_options.items()))))

    @property
    def is_local(self) -> bool:
        """Whether the journal is a directory of this host."""
        return _SCHEME.match(self.path) is None

    def check_options(self) -> None:
        """Refuse storage options that this kind of store does not know; a local path takes none."""
        if not self.is_local:
            _object_store(self)
        elif self.storage_options:
            option, reason = next(iter(self.storage_options)), f"'{self.path}' is a local path, which takes no options."
            raise ConfigError("STORAGE_OPTION_UNSUPPORTED", option=option, reason=reason, supported="none")

    def messages_uri(self, message_type: str) -> str:
        """Address of a message type's table, for Delta."""
        return self.uri(messages_key(message_type))

    def uri(self, key: str) -> str:
        """Address of a key, for Delta and for people."""
        return f"{self.path}/{key}"

    def _key_of(self, path: str) -> str:
        return path.removeprefix(f"{self.path}/")

    def read(self, key: str, *, most_bytes: int | None = None) -> bytes | None:
        """Return an object's bytes, or None when there is none."""
        with self.failures(f"reading {key}"):
            try:
                if self.is_local:
                    # By itself: a thread of object_store's would need five times as long, and each commit looks twice.
                    return _file_bytes(self.uri(key), most_bytes)
                found = _library().get(_asked(self, "GET"), key)
                if most_bytes is not None and found.meta["size"] > most_bytes:
                    raise TooLargeError(f"{key} has {found.meta['size']} bytes, and {most_bytes} are the most")
                return bytes(found.bytes())
            except (FileNotFoundError, IsADirectoryError):
                return None

    def has(self, key: str) -> bool:
        """Return whether there is an object of a key; a store that refuses or fails to say so is a failure."""
        with self.failures(f"looking for {key}"):
            try:
                if self.is_local:
                    os.stat(self.uri(key))  # noqa: PTH116 - as `read` does.
                else:
                    _library().head(_asked(self, "HEAD"), key)
            except FileNotFoundError:
                return False
            return True

    def write(self, key: str, data: bytes) -> None:
        """Write an object whole, replacing an earlier one; readers see the old bytes or the new ones."""
        with self.failures(f"writing {key}"):
            if self.is_local:
                self._require_log()
                put_file(self.uri(key), data, replaces=True)
            else:
                _library().put(_asked(self, "PUT"), key, data)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if there is none of that key; returns whether it was this call that did."""
        with self.failures(f"creating {key}"):
            if self.is_local:
                self._require_log()
                return put_file(self.uri(key), data, replaces=False)
            try:
                _library().put(_asked(self, "PUT"), key, data, mode="create")
            except (_library().exceptions.AlreadyExistsError, _library().exceptions.PreconditionError):
                return False
            return True

    def list(self, prefix: str, *, after: str | None = None) -> list[StoredObject]:
        """Return the objects under a folder, in the order of their keys, only those after a key if one is given."""
        with self.failures(f"listing {prefix}"):
            if self.is_local:
                # A folder may have nothing; a place that is not there was misspelt.
                os.stat(self.path)  # noqa: PTH116 - as `read` does.
                objects = [StoredObject.of_file(self._key_of(path), facts) for path, facts in files_below(self.uri(prefix))]
            else:
                found = _library().list(_asked(self, "LIST"), prefix, offset=after).collect()
                # Each request brings a thousand.
                _asked(self, "LIST", len(found) // 1_000)
                objects = list(map(StoredObject.of, found))
        # Azurite takes no notice of `offset`, and object_store asks it all the same where its address is an endpoint (tried).
        return sorted((each for each in objects if after is None or each.key > after), key=lambda each: each.key)

    def folders(self, prefix: str) -> Sequence[str]:
        """Return the folders in a folder, without looking into them."""
        with self.failures(f"listing {prefix}"):
            if self.is_local:
                with suppress(FileNotFoundError, NotADirectoryError):
                    return sorted(self._key_of(each.path) for each in os.scandir(self.uri(prefix)) if each.is_dir())
                return []
            return sorted(_library().list_with_delimiter(_asked(self, "LIST"), prefix)["common_prefixes"])

    def copy(self, key: str, there: Store) -> bool:
        """Copy an object to another place, which has none of that key, part by part; return whether there is one to copy."""
        with self.failures(f"reading {key}"):
            try:
                found = _library().get(_asked(self, "GET"), key)
            except FileNotFoundError:
                return False
            with there.writer(key) as sink:
                for part in found.stream(min_chunk_size=_PART_BYTES):
                    sink.write(part)
            return True

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that is already gone is no error."""
        for key in keys:
            with self.failures(f"deleting {key}"):
                try:
                    if self.is_local:
                        os.unlink(self.uri(key))  # noqa: PTH108 - as `read` does.
                    else:
                        _library().delete(_asked(self, "DELETE"), key)
                except FileNotFoundError:
                    continue

    def time_ms(self) -> int:
        """Return the time of the store, in milliseconds: the times of its objects can be compared with no other clock."""
        key = f"probe-{uuid.uuid4().hex}"
        self.write(key, b"")
        try:
            return next(entry.modified_ms for entry in self.list("", after=key[:-1]) if entry.key == key)
        finally:
            self.delete([key])

    def open(self, key: str) -> Any:
        """Return something that `pyarrow.parquet` reads: a path, the content of a small object, or a reader of ranges."""
        if self.is_local:
            path = Path(self.uri(key))
            if not path.is_file():
                raise FileNotFoundError(path)
            return str(path)
        found = _library().get(_asked(self, "GET"), key)
        if found.meta["size"] <= WHOLE_BYTES:
            return io.BytesIO(found.bytes())
        return ObjectSource(_library().open_reader(_asked(self, "HEAD"), key))

    @contextmanager
    def writer(self, key: str) -> Iterator[io.RawIOBase]:
        """Yield a file-like sink for a new object of a unique key; a failure half-way leaves at most a leftover."""
        with self.failures(f"writing {key}"):
            self._require_log()
            sink = LocalSink(self.uri(key)) if self.is_local else ObjectSink(self._upload(key))
            try:
                yield sink
            except BaseException:
                sink.abandon()
                raise
            sink.close()

    def _upload(self, key: str) -> Any:
        return _library().open_writer(_object_store(self), key, buffer_size=PUT_BYTES)

    def sync(self, keys: Iterable[str], *, ancestors: bool = False) -> None:
        """Force objects and then the directories that name them to the disk; object stores are durable by themselves.

        With `ancestors` also the directories above, up to the journal's parent: for objects whose directories are new.
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
        """Force everything that stands to the disk, also files of writers that did not have to."""
        if self.is_local:
            with self.failures("syncing the journal"):
                force_tree(self.path)

    def check_put_if_absent(self, folder: str = "") -> None:
        """Write one key of a folder twice and require that the second write is refused (DESIGN 4, power loss)."""
        if self.storage_options.get("aws_s3_allow_unsafe_rename", "false").lower() in ("true", "1", "yes"):
            raise JournalError("STORE_UNSAFE", path=self.path)
        key = f"{folder}probe-{uuid.uuid4().hex}"
        if not self.create(key, b"first"):
            raise JournalError("STORE_UNSAFE", path=self.path)
        try:
            if self.create(key, b"second"):
                raise JournalError("STORE_UNSAFE", path=self.path)
        finally:
            self.delete([key])

    def require_log(self, doing: str) -> None:
        """Refuse to write below a directory where the control log is gone: files written there are lost when it comes back.

        So it is where a volume is not mounted: below its mount point a second journal would begin.
        """
        with self.failures(doing):
            self._require_log()

    def make_folder(self, name: str) -> None:
        """Make a folder of the journal; object stores have none."""
        if self.is_local:
            with self.failures(f"making {name}"):
                self._require_log()
                Path(self.uri(name)).mkdir(parents=True, exist_ok=True)

    def _require_log(self) -> None:
        if self.is_local and not os.path.isdir(self.uri(self.log_folder)):  # noqa: PTH112 - a Path costs more than the look.
            raise FileNotFoundError(f"The {self.log_folder.rpartition('/')[0]} log is not there")

    @contextmanager
    def failures(self, doing: str, *, next_step: str = "Check the store, then try again.") -> Iterator[None]:
        """Turn a storage failure into STORE_FAILED, without secrets; refuse to begin in a forked child."""
        forks.check_process()
        try:
            yield
        except store_failures() as reason:
            text = self.reason(reason)
            raise JournalError("STORE_FAILED", path=self.path, doing=doing, reason=text, next_step=next_step) from None
        except BaseException as reason:
            forks.check_panic(reason)
            raise

    def reason(self, failure: BaseException) -> str:
        """Return a failure's text in one line, cut in the middle where it is long, without the values of secret options."""
        return redacted(failure, self.storage_options)


def messages_key(message_type: str) -> str:
    """Return the folder of a message type's table, relative to the journal."""
    return f"{MESSAGES}/{message_type}"


def message_tables(store: Store) -> list[str]:
    """Return the names of the message types that have a table, also of those that were dropped."""
    return sorted({key.split("/")[1] for key in store.folders(MESSAGES)})


def log_key(table: str, version: int) -> str:
    """Return the key of one entry of a table's Delta log; `table` is the table's folder."""
    return f"{table}/_delta_log/{version:020d}.json"


def normal_path(path: str, *, key: str = "path", where: str = "the call") -> str:
    """Return a place as a journal, a table or a checkpoint is named; `key` and `where` say where it was named, for errors."""

    def refuse(expected: str, value: str = path) -> ConfigError:
        return ConfigError("BAD_VALUE", key=key, where=where, value=value, expected=expected)

    # Folders would be made there before the log says its place, which no file can hold.
    check_text(path, key=key, where=where)
    if not path:
        # As of a variable of a shell that is not set; it would be the working directory.
        raise refuse("a directory, or the URL of an object store")
    # Hadoop, and so Spark for the tables of its catalog, writes a single slash.
    if path.startswith("file:/"):
        path = urllib.parse.unquote(urllib.parse.urlsplit(path).path)
    if _OF_HADOOP.match(path) is not None:
        # It would be a directory of that name below the working directory, on one host's disk.
        directory = f"the directory of this name is './{path}'"
        raise refuse(f"a directory, or the URL of an object store such as s3://bucket/shop ({directory})")
    if _OF_CATALOG.fullmatch(path) is not None:
        # It would be a directory below the working directory, too, while the table of that name stays empty.
        directory = f"; the directory of this name is './{path}'" if "/" not in path else ""
        named = f"a table of a catalog has a location, which DESCRIBE DETAIL shows{directory}"
        raise refuse(f"a directory with a slash, or the URL of an object store ({named})")
    if _SCHEME.match(path) is None:
        # Links stay unresolved: messages show the path that the user knows.
        found = os.path.abspath(path)  # noqa: PTH100 - as said above
        if urllib.parse.unquote(found) != found or re.search(r"[\\\x00-\x1f\x7f]", found):
            # For delta-rs it is a URL, and `a%20b` another directory (tried).
            raise refuse("a directory whose path has no backslash, no control character, and no '%' before two digits", found)
        return found
    return path.rstrip("/")


def split_table(path: str, *, where: str) -> tuple[str, str]:
    """Return the store in which a table outside of the journal lies, and its folder there; `where` says where it was named."""
    parent, _, key = normal_path(path, key="table", where=where).rpartition("/")
    if not parent.strip("/") or not key or parent.endswith(":/"):
        raise ConfigError("BAD_VALUE", key="table", where=where, value=path, expected="the path or URL of a folder")
    return parent, key


def _asked(store: Store, kind: str, requests: int = 1) -> Any:
    """Return the object store for some requests, which are counted; a disk is asked for nothing."""
    if not store.is_local:
        count(kind, requests)
    return _object_store(store)


def _library() -> Any:
    """Return the library for object stores, which a process loads that asks one: many receivers run on one host."""
    import obstore.exceptions  # noqa: PLC0415 - as said above.
    import obstore.store  # noqa: PLC0415 - likewise.

    return obstore


@functools.lru_cache(maxsize=16)
def _object_store(store: Store) -> Any:
    library = _library()
    if store.is_local:
        return library.store.LocalStore(store.path, mkdir=False)
    options: dict[str, Any] = split_options(store.storage_options)
    try:
        return library.store.from_url(store.path, **options)
    except library.exceptions.UnknownConfigurationKeyError as reason:
        option = re.search(r"'([^']*)'", str(reason))
        supported = "the keys of object_store for this kind of store, as deltalake takes them"
        name = option[1] if option else store.reason(reason)
        raise ConfigError(
            "STORAGE_OPTION_UNSUPPORTED", option=name, reason="this kind of store does not know it.", supported=supported
        ) from None
    except (library.exceptions.BaseError, ValueError) as reason:
        text, next_step = store.reason(reason), "Correct the path or the storage options."
        raise JournalError("STORE_FAILED", path=store.path, doing="opening it", reason=text, next_step=next_step) from None
