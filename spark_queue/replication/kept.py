"""How much is kept of a peer's log, however much it says: of all of it, where messages were first published (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Protocol

from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.records import Kind, Record
from spark_queue.replication.checking import refused

#: Most journals that one log may name.
JOURNALS_MOST = 1_000

#: Most message types that one log may define, those of before included.
TYPES_MOST = 1_000

#: Most stretches of messages of other journals, and of further names, that one log may tell: some hundred bytes each.
STRETCHES_MOST = 2**22


class Kept(Protocol):
    """What is kept of a peer's log so far."""

    instance: str
    #: Journals that the log named itself.
    journals: set[str]
    message_types: dict[str, MessageTypeState]
    stretch_count: int


def check_growth(record: Record, kept: Kept) -> None:
    """Refuse a sound record that would make more be kept than anybody's journal has.

    Raises
    ------
    JournalError
        PEER_REFUSED.
    """
    detail = record.detail
    named = [*detail.get("origin", ()), *detail.get("names", ())] if record.kind in (Kind.ENTERED, Kind.NAMED) else []
    for what, count, most in (
        ("journals", len(kept.journals) + len(journals_of(record) - kept.journals), JOURNALS_MOST),
        ("message types", len(kept.message_types) + len(_types_of(record) - kept.message_types.keys()), TYPES_MOST),
        ("stretches of messages of other journals", kept.stretch_count + len(named), STRETCHES_MOST),
    ):
        if count > most:
            raise refused(kept.instance, record, f"with it its log names {count} {what}, and {most} are the most.")


def journals_of(record: Record) -> AbstractSet[str]:
    """Return the UUIDs of journals that a sound record names, as far as they are kept."""
    detail = record.detail
    match record.kind:
        case Kind.PULLED:
            return {detail["journal"]}
        case Kind.RESTORED:
            return {detail["origin_uuid"]}
        case Kind.ENTERED | Kind.NAMED:
            return {origin for _, _, origin, _ in (*detail.get("origin", ()), *detail.get("names", ()))}
    return frozenset()


def _types_of(record: Record) -> AbstractSet[str]:
    if record.kind != Kind.DEFINITIONS_APPLIED:
        return frozenset()
    return set(record.detail["definitions"].get("message_types", {}))
