"""One entry of a Delta log, `_delta_log/N.json`, as we read it ourselves: its order is the order of messages (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from spark_queue.errors import JournalError
from spark_queue.journal.entry_parts import MARK_KEY, MARK_VERSION
from spark_queue.journal.store import Store, log_key

#: Begins the transaction id that carries the highest sequence of a named publisher, in message tables.
PUBLISHER_TXN = "p:"
#: Begins the one that carries the highest of those in one topic.
TOPIC_TXN = "q:"
#: Carries the number of the record of the newest definitions, in message tables.
DEFINITIONS_TXN = "d:definitions"


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
    #: What defines the table: its columns and properties, and its protocol; None where the commit says nothing of it.
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None

    @property
    def changes_table(self) -> bool:
        """Whether it defines the table."""
        return self.metadata is not None or self.protocol is not None

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
        """When it was made by the clock of its writer, in milliseconds; None where it does not say."""
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
        metadata=next((action.metaData for action in actions if action.metaData is not None), None),
        protocol=next((action.protocol for action in actions if action.protocol is not None), None),
    )
    # A file that was cut at the end of a line still reads as JSON, so our commits count their actions.
    announced = entry.mark.get("actions")
    if announced is not None and announced != len(actions) - 1:
        raise TornEntryError(f"it announces {announced} actions and holds {len(actions) - 1}")
    return entry


def check_mark(entry: LogEntry, *, path: str) -> None:
    """Refuse an entry of the journal at `path` whose mark has a version that is not known here."""
    version = entry.mark.get("v", MARK_VERSION)
    if not isinstance(version, int) or version > MARK_VERSION:
        raise JournalError("PROTOCOL_NEWER", path=path, what=f"marks of version {version!r:.50} (known: {MARK_VERSION})")


def read_entry(store: Store, table: str, version: int, *, most_bytes: int | None = None) -> LogEntry | None:
    """Read one version's entry; None when there is no such file."""
    data = store.read(log_key(table, version), most_bytes=most_bytes)
    return None if data is None else parse_entry(version, data)


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
