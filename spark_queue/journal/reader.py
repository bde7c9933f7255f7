"""A journal for publishers and for looking only: its definitions and its control log. Loads nothing that decides or folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_queue.core.records import FORMAT, DefinitionsApplied, JournalCreated, Kind, Record
from spark_queue.errors import JournalError
from spark_queue.journal import control_table
from spark_queue.journal.control_table import ControlTable, OddLogError
from spark_queue.journal.damage import damaged
from spark_queue.journal.record_blocks import ControlRows, RecordBlock, read_known, read_records, to_records_of
from spark_queue.journal.record_table import SEPARATE_KINDS
from spark_queue.journal.store import CONTROL, Store

if TYPE_CHECKING:
    from spark_queue.core.definitions.definition import Definitions

    #: Definitions, behind the number of their record.
    NumberedDefinitions = tuple[int, Definitions]


class JournalReader:
    """A journal as publishers see it; made by `open_reader`."""

    def __init__(self, store: Store, journal_id: str) -> None:
        self.store = store
        self.path = store.path
        self.journal_id = journal_id

    def definitions(self) -> Definitions:
        """Read the definitions that hold now; starts nothing and reads nothing else."""
        return self.numbered_definitions()[1]

    def numbered_definitions(self) -> NumberedDefinitions:
        """Read the definitions that hold now, with the number of their record."""
        created, applied = read_setup(self.store)
        if created.body_as(JournalCreated).journal != self.journal_id:
            found = created.body_as(JournalCreated).journal
            raise JournalError("JOURNAL_MISMATCH", expected=self.journal_id, path=self.path, found=found)
        return numbered(self.store, applied)

    def records(self) -> Sequence[Record]:
        """Return every record of the control log, for looking only."""
        return read_records(self.store, list_blocks(self.store))

    def record_rows(self) -> ControlRows:
        """Return the rows of the control log, for a look at a few of them."""
        return ControlRows(self.store, list_blocks(self.store))


class NewestDefinitions:
    """Reads again and again which definitions hold, from where its `table` of the control log was read to."""

    def __init__(self, store: Store, table: ControlTable) -> None:
        self._store = store
        self._table = table
        self._known: NumberedDefinitions | None = None

    def look(self, *, reads_on: bool = True) -> NumberedDefinitions:
        """Return the definitions that hold, behind the number of their record; where it reads nothing, as they were."""
        if reads_on:
            self._read_on()
        newest = [block for block in self._table.blocks if block.holds_only(Kind.DEFINITIONS_APPLIED)][-1]
        if self._known is None or self._known[0] != newest.last:
            self._known = numbered(self._store, to_records_of(self._store, read_known(self._store, newest))[-1])
        return self._known

    def _read_on(self) -> None:
        try:
            if control_table.read_on(self._store, self._table):
                return
        except OddLogError:
            # Whoever reads the whole log names what is wrong with it, or mends it.
            pass
        self._table = open_control(self._store)


def open_reader(store: Store) -> JournalReader:
    """Open a journal for publishing, or for looking only: reads its id, and nothing else."""
    return _opened(store, _known_setup(store)[0])


def open_with_definitions(store: Store) -> tuple[JournalReader, NumberedDefinitions]:
    """Open a journal, and return the definitions that hold now, behind the number of their record: one look tells both."""
    created, applied = read_setup(store)
    return _opened(store, created), numbered(store, applied)


def open_for_publishing(store: Store) -> tuple[JournalReader, NumberedDefinitions]:
    """Open a journal by the newest checkpoint of its control log, where there is one.

    Newer definitions may hold: a publish finds out from the log to which it commits (PROTOCOL 3). So a process that publishes once
    does not read what was committed since.
    """
    created, applied = _known_setup(store)
    return _opened(store, created), numbered(store, applied)


def _opened(store: Store, created: Record) -> JournalReader:
    written = created.body_as(JournalCreated).format
    if written > FORMAT:
        raise JournalError("PROTOCOL_NEWER", path=store.path, what=f"format {written} (known: {FORMAT})")
    return JournalReader(store, created.body_as(JournalCreated).journal)


def numbered(store: Store, applied: Record) -> NumberedDefinitions:
    """Return the definitions of a `definitions_applied` record, behind its number."""
    from spark_queue.core.definitions import parsing  # noqa: PLC0415 - a receiver asks for the journal's id only.

    return applied.record, parsing.parse_recorded(applied.body_as(DefinitionsApplied).definitions, path=store.path)


def list_blocks(store: Store) -> Sequence[RecordBlock]:
    """Return the blocks of the log's records, in their order."""
    return open_control(store).blocks


def read_setup(store: Store) -> Sequence[Record]:
    """Return the `journal_created` record and the newest `definitions_applied` without reading the rest."""
    found = _setup(store, list_blocks(store))
    if found is None:
        raise damaged(store, "its control log names no journal", "The file with its first records is not listed.")
    return found


def _known_setup(store: Store) -> Sequence[Record]:
    """Return the same where newer definitions may hold."""
    return _checkpointed_setup(store) or read_setup(store)


def _checkpointed_setup(store: Store) -> Sequence[Record] | None:
    """Return it as of the newest checkpoint; None where there is none that tells.

    The data files of both stay as they are for ever: nothing is merged with them.
    """
    try:
        table = control_table.read_checkpoint(store)
    except OddLogError:
        # Whoever reads the whole log names what is wrong with it.
        return None
    return None if table is None else _setup(store, _readable(store, table).blocks)


def _setup(store: Store, found: Sequence[RecordBlock]) -> Sequence[Record] | None:
    of = {kind: [block for block in found if block.holds_only(kind)] for kind in SEPARATE_KINDS}
    if not all(of.values()):
        return None
    blocks = [of[Kind.JOURNAL_CREATED][0], of[Kind.DEFINITIONS_APPLIED][-1]]
    created, applied = (to_records_of(store, read_known(store, block))[-1] for block in blocks)
    return created, applied


def open_control(store: Store) -> ControlTable:
    """Read the control log to its end; an entry that a power loss tore there is repaired (`repair`)."""
    try:
        table = control_table.read(store)
    except OddLogError:
        from spark_queue.journal.repair import open_repaired  # noqa: PLC0415 - delta-rs, which a log in order does without.

        # Where nothing can be repaired, this names what is wrong.
        open_repaired(store, CONTROL)
        try:
            table = control_table.read(store)
        except OddLogError as odd:
            raise damaged(store, odd.what, store.reason(odd)) from None
    if table is None:
        raise JournalError("NOT_A_JOURNAL", path=store.path, reason="it has no control log.")
    return _readable(store, table)


def _readable(store: Store, table: ControlTable) -> ControlTable:
    if table.protocol.get("minReaderVersion", 0) > 1:
        raise JournalError("PROTOCOL_NEWER", path=store.path, what=f"Delta features of {CONTROL}")
    return table
