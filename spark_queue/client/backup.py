"""Copying a journal while it is in use (docs/operations/copies.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal.log_listing import is_checkpoint, is_entry, version_of
from spark_queue.journal.open import open_journal
from spark_queue.journal.read_ahead import read_together
from spark_queue.journal.reader import open_control, open_reader, open_with_definitions, read_setup
from spark_queue.journal.store import CONTROL, MESSAGES, SNAPSHOTS, Store, log_key, message_tables, messages_key
from spark_queue.views import state_at

#: Objects that are copied at once: they wait for the stores, not for a processor.
_COPIERS = 16

#: Tries to read the control log to its end: while it is read it may be cleaned, once there is another checkpoint.
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedUp:
    """One copy of a journal.

    Attributes
    ----------
    journal : str
        The UUID of the journal, and so of the copy.
    records : int
        How many records its control log has.
    objects : int
        How many objects were copied.
    tables : tuple of str
        The tables that message types follow, which were not copied (R141): the messages of these stand there.
    """

    journal: str
    records: int
    objects: int
    tables: tuple[str, ...] = ()


def back_up(store: Store, destination: Store) -> BackedUp:
    """Copy a journal to an empty place, as it is at one moment, while it is in use.

    The records of the copy are settled first, and its messages after that: so it has all that they name. The control log is written
    last, in its order: a copy that ends half-way leaves no journal, or one of an earlier moment.
    """
    journal = open_reader(store).journal_id
    _check_place(store, destination)
    # Older than the records that are copied: one that knew of more would pass for the state.
    snapshots = [entry.key for entry in store.list(SNAPSHOTS)]
    control, logs = _read_logs(store, destination)
    # Listed once every file that the logs name is there, so none is left out.
    data = [entry.key for folder in (CONTROL, MESSAGES) for entry in store.list(folder) if "/_delta_log/" not in entry.key]
    keys = [*logs, *snapshots, *data]
    with destination.failures("making the copy's directory"):
        if destination.is_local:
            # As a new journal: nobody else may look into it.
            Path(destination.path).mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in {key.rpartition("/")[0] for key in (*keys, *control)} if destination.is_local else ():
            Path(destination.uri(folder)).mkdir(parents=True, exist_ok=True)
    copied = list(read_together(partial(store.copy, there=destination), keys, at_once=_COPIERS))
    for key, content in control.items():
        destination.create(key, content)
    destination.sync_all()
    _check_whole(store, destination, {key for key, is_there in zip(keys, copied, strict=True) if is_there})
    records, (_, (_, definitions)) = open_control(destination).blocks[-1].last + 1, open_with_definitions(destination)
    tables = tuple(sorted({each.table for each in definitions.message_types.values() if each.table is not None}))
    return BackedUp(journal=journal, records=records, objects=len(keys) + len(control), tables=tables)


def _read_logs(store: Store, destination: Store) -> tuple[dict[str, bytes], list[str]]:
    """Return the control log as it is, and what message logs have after that: between the two no definitions are applied.

    A message log names the record of the newest ones. The copy would have another record at that number: in it, definitions
    with a lower one are news to no publisher.
    """
    # People apply definitions, and listing takes no longer than seconds: a second turn is rare, and a third one more so.
    while True:
        applied = read_setup(store)[-1].record
        control = _read_control(store, destination)
        logs = [key for table in _tables(store) for key in _log_of(store, table)]
        if read_setup(store)[-1].record == applied:
            return control, logs


def _read_control(store: Store, destination: Store) -> dict[str, bytes]:
    """Return the control log since its newest checkpoint: held in memory, as the coordinator cleans it away within minutes."""
    lost = ""
    for _ in range(_ATTEMPTS):
        found = {key: store.read(key) for key in _log_of(store, CONTROL, needed_only=True)}
        lost = next((key for key, content in found.items() if content is None), "")
        if not lost:
            return {key: content for key, content in found.items() if content is not None}
    raise JournalError("BACKUP_OVERTAKEN", path=store.path, file=lost, copy=destination.path)


def _log_of(store: Store, table: str, *, needed_only: bool = False) -> list[str]:
    """Return the newest checkpoint of a table's log, and its entries up to the newest; only those since the checkpoint, or all."""
    keys = [entry.key for entry in store.list(f"{table}/_delta_log")]
    standing, checkpoints = [version_of(key) for key in keys if is_entry(key)], [key for key in keys if is_checkpoint(key)][-1:]
    first = version_of(checkpoints[0]) if checkpoints and needed_only else min(standing, default=0)
    # A listing may leave out an entry that is written meanwhile, and have one that comes after it.
    return [*checkpoints, *(log_key(table, version) for version in range(first, max(standing, default=-1) + 1))]


def _check_place(store: Store, destination: Store) -> None:
    if f"{destination.path}/".startswith(f"{store.path}/"):
        expected = "a place outside the journal"
        raise ConfigError("BAD_VALUE", key="DESTINATION", where="the arguments", value=destination.path, expected=expected)
    if destination.is_local:
        place = Path(destination.path)
        is_taken = place.exists() and (not place.is_dir() or any(place.iterdir()))
    else:
        is_taken = bool(destination.list(""))
    if is_taken:
        raise JournalError("BACKUP_TARGET_TAKEN", path=destination.path)


def _tables(store: Store) -> list[str]:
    """Return the folders of all message types, also of those that were dropped: records may still name their files."""
    return [messages_key(name) for name in message_tables(store)]


def _check_whole(store: Store, copy: Store, copied: Collection[str]) -> None:
    """Refuse a copy that lacks a file which it needs, be it that no listing had it; most files that go meanwhile are not needed."""
    for key in _needed(copy):
        if key not in copied:
            raise JournalError("BACKUP_OVERTAKEN", path=store.path, file=key, copy=copy.path)


def _needed(copy: Store) -> Iterator[str]:
    # Entries of before a checkpoint are not needed.
    yield from (key for table in _tables(copy) for key in _log_of(copy, table, needed_only=True))
    yield from (f"{CONTROL}/{path}" for path in open_control(copy).files)
    for name, known in state_at(open_journal(copy)).state.message_types.items():
        own = (segment for segment in known.segments if segment.table is None and not segment.retired)
        yield from (f"{MESSAGES}/{name}/{segment.path}" for segment in own)
