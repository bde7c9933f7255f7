"""Making and opening a journal on Delta."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from spark_queue.clock import SystemClock
from spark_queue.core.deciding.creation import FORMAT, first_records
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import BUILT_IN_COLUMNS, Definitions
from spark_queue.core.message_files.segment import FactSource
from spark_queue.core.records import Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import JournalError
from spark_queue.journal import delta, message_table
from spark_queue.journal.control_files import stage_records, to_records_of
from spark_queue.journal.control_log import DeltaControlLog, read_log, read_log_rows, read_setup
from spark_queue.journal.expressions import check_expressions
from spark_queue.journal.facts import FileFacts
from spark_queue.journal.layout import CONTROL, Store, log_key, messages_key
from spark_queue.journal.message_log import DeltaMessageLog
from spark_queue.journal.message_upkeep import MessageLimits
from spark_queue.journal.record_table import CONTROL_SCHEMA
from spark_queue.journal.schema import check_columns, stored_schema
from spark_queue.journal.upkeep import Upkeep
from spark_queue.ports import Clock, ControlLog

#: The message type that every journal has; the first creator of its table settles the journal's id.
_FIRST_TYPE = next(iter(BUILT_IN_COLUMNS))


class DeltaJournal:
    """`ports.Journal` on Delta; made by `open_journal`.

    Parameters
    ----------
    store : Store
        The journal's place.
    journal_id : str
        Its id.
    limits : MessageLimits or None
        When a coordinator works on message tables, where it is not to be as usual.
    """

    control: ControlLog
    facts: FactSource

    def __init__(self, store: Store, journal_id: str, *, limits: MessageLimits | None = None) -> None:
        self.store = store
        self.path = store.path
        self.journal_id = journal_id
        self._control = DeltaControlLog(store)
        self.control = self._control
        self.facts = FileFacts(store)
        self._upkeep = Upkeep(store, journal_id, self._control, limits or MessageLimits())

    def definitions(self) -> Definitions:
        """Read the definitions that hold now; starts nothing and reads nothing else.

        Raises
        ------
        JournalError
            JOURNAL_MISMATCH when the journal was replaced since it was opened; JOURNAL_DAMAGED, STORE_FAILED.
        """
        created, applied = read_setup(self.store)
        if created.detail["journal"] != self.journal_id:
            found = created.detail["journal"]
            raise JournalError("JOURNAL_MISMATCH", expected=self.journal_id, path=self.path, found=found)
        return parsing.parse(applied.detail["definitions"])

    def records(self) -> Sequence[Record]:
        """Give every record of the control log, for those who only look.

        Raises
        ------
        JournalError
            JOURNAL_DAMAGED, PROTOCOL_NEWER or STORE_FAILED.
        """
        return read_log(self.store)

    def record_rows(self) -> pa.Table:
        """Give the rows of every record, for those who look for a few of them; `records_of` reads them.

        Raises
        ------
        JournalError
            JOURNAL_DAMAGED or STORE_FAILED.
        """
        return read_log_rows(self.store)

    def records_of(self, rows: pa.Table) -> Sequence[Record]:
        """Give the records of some of `record_rows`.

        Raises
        ------
        JournalError
            JOURNAL_DAMAGED or PROTOCOL_NEWER.
        """
        return to_records_of(self.store, rows)

    def messages(self, message_type: str) -> DeltaMessageLog:
        """Give the log of a message type."""
        return DeltaMessageLog(self.store, message_type, self._control)

    def create_message_table(self, message_type: str, columns: str) -> None:
        """Make the table of a message type, or append nullable columns to it; does nothing when it already fits.

        Raises
        ------
        ConfigError
            RESERVED_COLUMN, BAD_VALUE, or MESSAGE_TYPE_CHANGED when the table has other columns than a prefix of these.
        JournalError
            STORE_FAILED, JOURNAL_MISMATCH.
        """
        message_table.create(self.store, self.journal_id, message_type, columns, durable=self._control.durable)

    def upkeep(self, *, epoch: int, state: JournalState, now_ms: int) -> None:
        """Begin what keeps the logs short (DESIGN 4, 15.10), as far as it is due; `state` is committed, and read in this call only.

        Raises
        ------
        CoordinatorError
            COORDINATOR_DEPOSED when a newer reign has worked on a message table.
        JournalError
            STORE_FAILED.
        """
        self._upkeep.run(epoch=epoch, state=state, now_ms=now_ms)

    def finish_upkeep(self) -> None:
        """Wait for the upkeep that is under way.

        Raises
        ------
        CoordinatorError, JournalError
            What it failed with; see `upkeep`.
        """
        self._upkeep.finish()


def open_journal(store: Store, *, limits: MessageLimits | None = None) -> DeltaJournal:
    """Open a journal: reads its id and definitions, and nothing else; `limits` as `DeltaJournal` takes them.

    Raises
    ------
    JournalError
        NOT_A_JOURNAL, PROTOCOL_NEWER, JOURNAL_DAMAGED or STORE_FAILED.
    """
    setup = read_setup(store)
    written = setup[0].detail["format"]
    if written > FORMAT:
        raise JournalError("PROTOCOL_NEWER", path=store.path, what=f"format {written} (known: {FORMAT})")
    return DeltaJournal(store, str(setup[0].detail["journal"]), limits=limits)


def create_journal(store: Store, definitions: Definitions | None = None, *, clock: Clock | None = None) -> str:
    """Make a journal and give its id.

    The control log comes last and in one commit, so a journal either exists with all its tables or not at all; a creation
    that was cut short is finished by the next.

    Raises
    ------
    JournalError
        STORE_UNSAFE when the store has no put-if-absent; JOURNAL_EXISTS; STORE_FAILED.
    ConfigError
        RESERVED_COLUMN or BAD_VALUE, before anything is made.
    """
    definitions = parsing.parse({}) if definitions is None else definitions
    for message_type in definitions.message_types.values():
        check_columns(message_type.name, message_type.columns)
    check_expressions(definitions)
    if store.is_local:
        with store.failures("making the journal's directory"):
            Path(store.path).mkdir(parents=True, exist_ok=True)
    store.check_put_if_absent()
    if delta.open_table(store, CONTROL) is not None:
        raise JournalError("JOURNAL_EXISTS", path=store.path)
    journal_id = _settle_id(store)
    for message_type in definitions.message_types.values():
        message_table.create(store, journal_id, message_type.name, message_type.columns, durable=False)
    records = first_records(journal_id, definitions, FileFacts(store), now_ms=(clock or SystemClock()).wall_ms())
    files = stage_records(store, records)
    description = message_table.description(journal_id)
    if not delta.create_table(
        store, CONTROL, schema=CONTROL_SCHEMA, description=description, files=files, properties=delta.CONTROL_PROPERTIES
    ):
        raise JournalError("JOURNAL_EXISTS", path=store.path)
    if definitions.journal.durable:
        tables = [messages_key(name) for name in definitions.message_types]
        entries = [log_key(table, 0) for table in (*tables, CONTROL)]
        store.sync([*(f"{CONTROL}/{file.path}" for file in files), *entries], ancestors=True)
    return journal_id


def _settle_id(store: Store) -> str:
    """Give the id that all who create this journal at once agree on: the one in the first table that any of them makes."""
    proposed = str(uuid.uuid4())
    key = messages_key(_FIRST_TYPE)
    schema = stored_schema(BUILT_IN_COLUMNS[_FIRST_TYPE])
    if delta.create_table(store, key, schema=schema, description=message_table.description(proposed)):
        return proposed
    table = delta.open_table(store, key)
    found = "" if table is None or table.version() > 0 else message_table.owner(table)
    if not found:
        # Messages without a control log are the remains of another journal, not an unfinished creation.
        raise JournalError("JOURNAL_EXISTS", path=store.path)
    return found
