"""One entry of a Delta log, `_delta_log/N.json`, as we read it ourselves: its order is the order of messages (DESIGN 4).

The control log's entries are also written here. delta-rs lists the log and replays the table before and after every commit:
measured, 2.5 ms more for each thousand entries and 1.6 ms for each thousand files. One put-if-absent costs the same for ever.

After a power loss: opening a table whose newest files did not reach the disk whole (DESIGN 4).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from deltalake import DeltaTable

from spark_queue.clock import SystemClock
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.delta import COORDINATOR_TXN, MARK_KEY, Mark, NewFile, is_checkpoint, version_of, versions_after
from spark_queue.journal.store import Store, log_key

#: Begins the transaction id that carries the highest sequence of a named publisher, in message tables.
PUBLISHER_TXN = "p:"
#: Begins the one that carries the highest of those in one topic.
TOPIC_TXN = "q:"

#: Delta's description of our commits.
_APPEND: Mapping[str, Any] = {"operation": "WRITE", "operationParameters": {"mode": "Append", "partitionBy": "[]"}}
_REWRITE: Mapping[str, Any] = {"operation": "OPTIMIZE", "operationParameters": {"predicate": "[]"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """The actions of one commit."""

    version: int
    commit_info: Mapping[str, Any]
    #: Add and remove actions as stored, in the commit's order.
    adds: Sequence[Mapping[str, Any]] = ()
    removes: Sequence[Mapping[str, Any]] = ()
    #: Delta transaction ids and versions.
    transactions: Mapping[str, int] = field(default_factory=dict)
    #: Whether it says what the table is: its columns and properties, or its protocol.
    changes_table: bool = False

    @property
    def mark(self) -> Mapping[str, Any]:
        """Our part of the commitInfo; empty for a stranger's commit."""
        mark = self.commit_info.get(MARK_KEY)
        return mark if isinstance(mark, dict) else {}

    @property
    def token(self) -> str:
        """Name of a commit of ours; empty for a stranger's."""
        return str(self.mark.get("token", ""))

    @property
    def committed_at_ms(self) -> int | None:
        """When it was made by the clock of who made it, in milliseconds; None where it does not say."""
        at_ms = self.commit_info.get("timestamp")
        return at_ms if type(at_ms) is int else None

    @property
    def operation(self) -> str:
        """Delta's name for the commit."""
        return str(self.commit_info.get("operation", "an unnamed operation"))


def topic_transaction(topic: str, publisher: str) -> str:
    """Return the transaction id that carries the highest sequence of a named publisher in one topic."""
    return f"{TOPIC_TXN}{topic}:{publisher}"


class TornEntryError(Exception):
    """The entry is empty, cut off or not JSON: a power loss came before it reached the disk."""


class OddEntryError(TornEntryError):
    """The entry is whole, and no Delta commit: no power loss made that, and nothing is set aside for it."""


class _Transaction(msgspec.Struct):
    appId: str  # noqa: N815 - Delta's name
    version: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Action(msgspec.Struct):
    """One line of an entry; only one of them is there."""

    commitInfo: dict[str, Any] | None = None  # noqa: N815 - Delta's name
    add: dict[str, Any] | None = None
    remove: dict[str, Any] | None = None
    txn: _Transaction | None = None
    metaData: dict[str, Any] | None = None  # noqa: N815 - Delta's name
    protocol: dict[str, Any] | None = None


def parse_entry(version: int, data: bytes) -> LogEntry:
    """Read an entry."""
    actions = _actions(data)
    entry = LogEntry(
        version=version,
        commit_info=next((action.commitInfo for action in actions if action.commitInfo is not None), {}),
        adds=[action.add for action in actions if action.add is not None],
        removes=[action.remove for action in actions if action.remove is not None],
        transactions={action.txn.appId: action.txn.version for action in actions if action.txn is not None},
        changes_table=any(action.metaData is not None or action.protocol is not None for action in actions),
    )
    # A file that was cut at the end of a line still reads as JSON, so our commits count their actions.
    announced = entry.mark.get("actions")
    if announced is not None and announced != len(actions) - 1:
        raise TornEntryError(f"it announces {announced} actions and holds {len(actions) - 1}")
    return entry


def read_entry(store: Store, table: str, version: int, *, most_bytes: int | None = None) -> LogEntry | None:
    """Read one version's entry; None when there is no such file."""
    data = store.read(log_key(table, version), most_bytes=most_bytes)
    return None if data is None else parse_entry(version, data)


def create_entry(
    store: Store,
    table: str,
    version: int,
    files: Sequence[NewFile],
    *,
    mark: Mark,
    epoch: int | None,
    at_ms: int,
    removed: Sequence[str] = (),
    transactions: Mapping[str, int] = MappingProxyType({}),
) -> bool:
    """Commit as `version`, in reign `epoch` if one is named, by writing its entry; tell whether there was none before this call.

    `transactions` are Delta transaction ids and their versions, beside that of the reign.
    Files whose paths are in `removed` leave the table; their rows stand in `files`, or are gone where there are none.
    """
    transactions = transactions if epoch is None else {**transactions, COORDINATOR_TXN: epoch}
    info = {
        "timestamp": at_ms,
        **(_REWRITE if removed else _APPEND),
        "engineInfo": "spark_queue",
        **mark.commit_info(len(files) + len(removed) + len(transactions), is_append=not removed),
    }
    actions: list[dict[str, Any]] = [{"commitInfo": info}, *({"add": file.entry()} for file in files)]
    actions += [{"remove": {"path": path, "deletionTimestamp": at_ms, "dataChange": not files}} for path in removed]
    actions += [{"txn": {"appId": name, "version": number, "lastUpdated": at_ms}} for name, number in transactions.items()]
    return store.create(log_key(table, version), b"".join(msgspec.json.encode(action) + b"\n" for action in actions))


def is_torn(store: Store, table: str, version: int) -> bool:
    """Return whether a version's entry exists and is not whole."""
    try:
        read_entry(store, table, version)
    except OddEntryError:
        return False
    except TornEntryError:
        return True
    return False


def _actions(data: bytes) -> list[_Action]:
    lines = [line for line in data.splitlines() if line.strip()]
    if not lines or not all(line.lstrip().startswith(b"{") for line in lines):
        raise TornEntryError("it holds no actions")
    try:
        return [msgspec.json.decode(line, type=_Action) for line in lines]
    except msgspec.ValidationError as reason:
        raise OddEntryError(str(reason)) from None
    except RecursionError:
        raise OddEntryError("it nests too deeply") from None
    except ValueError as reason:
        raise TornEntryError(str(reason)) from None


_log = logging.getLogger(__name__)

#: Appended to the key of what is set aside.
TORN = ".torn"


def open_repaired(store: Store, key: str) -> DeltaTable | None:
    """Open the table in folder `key` at its head, and repair what a power loss tore; None when there is no table."""
    try:
        table = delta.open_table(store, key)
    except JournalError as damage:
        if damage.code not in ("JOURNAL_DAMAGED", "LOG_GAP"):
            raise
        # One power loss may tear an entry and a checkpoint: they are written side by side.
        for repair in (repair_head, _set_torn_checkpoint_aside, _forget_lost_checkpoint):
            repair(store, key)
        # Also where there was nothing to repair: another may have come first. What is still damaged is refused again.
        table = delta.open_table(store, key)
    # A zero-length entry opens silently, as if it were a commit without actions (tried).
    if table is not None and is_torn(store, key, table.version()):
        repair_head(store, key)
        table = delta.open_table(store, key)
        # Nor does delta-rs mind one that was cut at the end of a line: where it stays as it is, only we refuse it.
        if table is not None and is_torn(store, key, table.version()):
            what = f"{log_key(key, table.version())} is not whole"
            raise delta.damaged(store, what, "Nor is the one before it, and a power loss takes one commit.")
    return table


def repair_head(store: Store, key: str) -> bool:
    """Set a torn head entry aside as `.torn` and put an empty commit in its place; tell whether there was one.

    Two torn entries are more than the one commit that a power loss may take: both are left alone, and reading fails by name.
    """
    versions = versions_after(store, key, -1)
    if not versions or not is_torn(store, key, versions[-1]):
        return False
    if len(versions) > 1 and is_torn(store, key, versions[-2]):
        return False
    entry = log_key(key, versions[-1])
    store.write(entry + TORN, store.read(entry) or b"")
    about = {"timestamp": SystemClock().wall_ms(), "operation": "REPAIR", "operationParameters": {}}
    info = {"commitInfo": {**about, **delta.Mark(writer="repair").commit_info(0)}}
    store.write(entry, json.dumps(info).encode() + b"\n")
    store.sync([entry])
    _log.warning("Version %d of %s in '%s' was torn by a power loss and is set aside as %s", versions[-1], key, store.path, TORN)
    return True


def _set_torn_checkpoint_aside(store: Store, key: str) -> None:
    """Set a newest checkpoint that cannot be read aside, if the log still holds everything since the one before."""
    folder = f"{key}/_delta_log"
    checkpoints = [entry.key for entry in store.list(folder) if is_checkpoint(entry.key)]
    if not checkpoints or delta.is_whole_checkpoint(store.read(checkpoints[-1])):
        return
    start = version_of(checkpoints[-2]) if len(checkpoints) > 1 else -1
    needed = range(start + 1, version_of(checkpoints[-1]) + 1)
    if not set(needed) <= set(versions_after(store, key, -1)):
        return
    store.write(checkpoints[-1] + TORN, store.read(checkpoints[-1]) or b"")
    store.delete([checkpoints[-1], f"{folder}/_last_checkpoint"])
    _log.warning("Checkpoint %s in '%s' was torn by a power loss and is set aside as %s", checkpoints[-1], store.path, TORN)


def _forget_lost_checkpoint(store: Store, key: str) -> None:
    """Delete Delta's hint at a checkpoint that is not there; without the hint the log is listed."""
    hint = f"{key}/_delta_log/_last_checkpoint"
    try:
        lost = f"{key}/_delta_log/{json.loads(store.read(hint) or b'')['version']:020d}.checkpoint.parquet"
    except (ValueError, KeyError, TypeError, RecursionError):
        # Delta ignores what it cannot read.
        return
    if store.read(lost) is not None:
        return
    store.delete([hint])
    _log.warning("'%s' in '%s' was lost to a power loss; the log is read without it", lost, store.path)
