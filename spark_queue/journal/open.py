"""Making a journal on Delta, and opening it with all that a coordinator has; `reader` has what publishers need."""

from __future__ import annotations

import uuid
from pathlib import Path

from spark_queue.clock import SystemClock
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import BUILT_IN_COLUMNS, Definitions
from spark_queue.core.engine import first_records
from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.status import LogTail
from spark_queue.errors import JournalError
from spark_queue.journal import delta, message_table, snapshot
from spark_queue.journal.control_files import CONTROL_SCHEMA, stage_records
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.message_log import DeltaMessageLog
from spark_queue.journal.message_upkeep import MessageLimits
from spark_queue.journal.reader import JournalReader, list_files, open_reader
from spark_queue.journal.schema import check_columns, stored_schema
from spark_queue.journal.store import CONTROL, CONTROL_LOG, Store, log_key, messages_key
from spark_queue.journal.traits import FileTraits, check_expressions, check_peer_paths
from spark_queue.journal.upkeep import Upkeep
from spark_queue.ports import Clock, ControlLog, PulledFiles

#: The message type that every journal has; the first creator of its table settles the journal's id.
_FIRST_TYPE = next(iter(BUILT_IN_COLUMNS))


class DeltaJournal(JournalReader):
    """`ports.JournalPort` on Delta, as a coordinator needs it and who folds the log; made by `open_journal`.

    `limits` say when a coordinator works on message tables, where it is not to be as usual.
    """

    control: ControlLog
    traits: TraitSource

    def __init__(self, store: Store, journal_id: str, *, limits: MessageLimits | None = None) -> None:
        super().__init__(store, journal_id)
        self._control = DeltaControlLog(store)
        self.control = self._control
        self.traits = FileTraits(store)
        self._logs: dict[str, DeltaMessageLog] = {}
        self._upkeep = Upkeep(store, journal_id, self._control, limits or MessageLimits())

    def past(self) -> LogTail:
        """Return what the control log tells, from the newest usable snapshot on."""
        return snapshot.load(self.store, list_files(self.store))

    def messages(self, message_type: str) -> DeltaMessageLog:
        """Return the log of a message type."""
        if message_type not in self._logs:
            self._logs[message_type] = DeltaMessageLog(self.store, message_type, lambda: self._control.durable)
        return self._logs[message_type]

    def check_message_table(self, message_type: str, columns: str) -> None:
        """See `message_table.check`."""
        message_table.check(self.store, self.journal_id, message_type, columns)

    def create_message_table(self, message_type: str, columns: str) -> None:
        """See `message_table.create`."""
        message_table.create(self.store, self.journal_id, message_type, columns, durable=self._control.durable)

    def append_pulled(self, files: PulledFiles, *, after_version: int, at_ms: int) -> bool:
        """Commit files of pulled messages right after a version; returns whether that was the head."""
        return self.messages(files.message_type).append(files, after_version=after_version, at_ms=at_ms)

    def upkeep(self, *, epoch: int, state: JournalState, now_ms: int) -> None:
        """See `Upkeep.run`; `state` is committed, and read in this call only."""
        self._upkeep.run(epoch=epoch, state=state, now_ms=now_ms)


def open_journal(store: Store, *, limits: MessageLimits | None = None) -> DeltaJournal:
    """Open a journal: reads its id and definitions, and nothing else; `limits` as `DeltaJournal` takes them."""
    return DeltaJournal(store, open_reader(store).journal_id, limits=limits)


def create_journal(store: Store, definitions: Definitions | None = None, *, clock: Clock | None = None) -> str:
    """Make a journal and give its id.

    The control log comes last and in one commit, so a journal either exists with all its tables or not at all; a creation
    that was cut short is finished by the next. A directory that is made for it is its user's alone.
    """
    definitions = parsing.parse({}) if definitions is None else definitions
    of_instance = definitions.journal.instance is not None
    for message_type in definitions.message_types.values():
        check_columns(message_type.name, message_type.columns, rename=message_type.rename, of_instance=of_instance)
    check_expressions(definitions)
    check_peer_paths(definitions)
    if store.is_local:
        with store.failures("making the journal's directory"):
            # A directory that is there already keeps its rights: so a journal is shared with a group.
            Path(store.path).mkdir(mode=0o700, parents=True, exist_ok=True)
            Path(store.uri(CONTROL_LOG)).mkdir(parents=True, exist_ok=True)
    store.check_put_if_absent()
    if delta.open_table(store, CONTROL) is not None:
        raise JournalError("JOURNAL_EXISTS", path=store.path)
    journal_id = _settle_id(store)
    for message_type in definitions.message_types.values():
        message_table.create(store, journal_id, message_type.name, message_type.columns, durable=False)
    records = first_records(journal_id, definitions, FileTraits(store), now_ms=(clock or SystemClock()).wall_ms())
    files = stage_records(store, records)
    if not delta.create_table(
        store, CONTROL, schema=CONTROL_SCHEMA, journal_id=journal_id, files=files, properties=delta.CONTROL_PROPERTIES
    ):
        raise JournalError("JOURNAL_EXISTS", path=store.path)
    if definitions.journal.durable:
        tables = [messages_key(name) for name in definitions.message_types]
        entries = [log_key(table, 0) for table in (*tables, CONTROL)]
        store.sync([*(f"{CONTROL}/{file.path}" for file in files), *entries], ancestors=True)
    return journal_id


def _settle_id(store: Store) -> str:
    """Return the id that all who create this journal at once agree on: the one in the first table that any of them makes."""
    proposed = str(uuid.uuid4())
    key = messages_key(_FIRST_TYPE)
    schema = stored_schema(BUILT_IN_COLUMNS[_FIRST_TYPE])
    if delta.create_table(store, key, schema=schema, journal_id=proposed, properties=delta.MESSAGE_PROPERTIES):
        return proposed
    table = delta.open_table(store, key)
    found = "" if table is None or table.version() > 0 else message_table.owner(table)
    if not found:
        # Messages without a control log are the remains of another journal, not an unfinished creation.
        raise JournalError("JOURNAL_EXISTS", path=store.path)
    return found
