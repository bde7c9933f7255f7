"""Making a journal on Delta."""

from __future__ import annotations

import uuid
from pathlib import Path

from spark_queue.clock import SystemClock
from spark_queue.core.creation import first_records
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import BUILT_IN_COLUMNS, Definitions
from spark_queue.core.records import Record
from spark_queue.errors import JournalError
from spark_queue.journal import delta, message_table
from spark_queue.journal.expressions import check_expressions, check_peer_paths
from spark_queue.journal.record_blocks import stage_records
from spark_queue.journal.record_table import CONTROL_SCHEMA
from spark_queue.journal.schema import check_columns, stored_schema
from spark_queue.journal.store import CONTROL, CONTROL_LOG, Store, log_key, messages_key
from spark_queue.journal.table_look import completed, look
from spark_queue.journal.traits import FileTraits
from spark_queue.ports import Clock

#: The message type that every journal has; the first creator of its table settles the journal's id.
_FIRST_TYPE = next(iter(BUILT_IN_COLUMNS))


def create_journal(store: Store, definitions: Definitions | None = None, *, clock: Clock | None = None) -> str:
    """Make a journal and give its id.

    The control log comes last and in one commit, so a journal either exists with all its tables or not at all; a creation
    that was cut short is finished by the next. A directory that is made for it is its user's alone.
    """
    definitions = completed(store, parsing.parse({}) if definitions is None else definitions)
    of_instance = definitions.journal.instance is not None
    for message_type in definitions.message_types.values():
        check_columns(message_type.name, message_type.columns, rename=message_type.rename, of_instance=of_instance)
    check_expressions(definitions)
    check_peer_paths(definitions)
    own = definitions.published_types
    looks = {name: look(store, each, None, None) for name, each in definitions.message_types.items() if each.table is not None}
    followed = [Record(body=found, message_type=name) for name, found in looks.items() if found is not None]
    if store.is_local:
        with store.failures("making the journal's directory"):
            # A directory that is there already keeps its rights: so a journal is shared with a group.
            Path(store.path).mkdir(mode=0o700, parents=True, exist_ok=True)
            Path(store.uri(CONTROL_LOG)).mkdir(parents=True, exist_ok=True)
    store.check_put_if_absent()
    if delta.open_table(store, CONTROL) is not None:
        raise JournalError("JOURNAL_EXISTS", path=store.path)
    journal_id = _settle_id(store)
    for name in own:
        message_table.create(store, journal_id, name, definitions.message_types[name].columns, durable=False)
    records = first_records(journal_id, definitions, FileTraits(store), followed, now_ms=(clock or SystemClock()).wall_ms())
    files = stage_records(store, records)
    if not delta.create_table(
        store, CONTROL, schema=CONTROL_SCHEMA, journal_id=journal_id, files=files, properties=delta.CONTROL_PROPERTIES
    ):
        raise JournalError("JOURNAL_EXISTS", path=store.path)
    if definitions.journal.durable:
        tables = [messages_key(name) for name in own]
        entries = [log_key(table, 0) for table in (*tables, CONTROL)]
        store.sync([*(f"{CONTROL}/{file.path}" for file in files), *entries], ancestors=True)
    return journal_id


def _settle_id(store: Store) -> str:
    """Return the id on which all concurrent creations of this journal agree: the one in the first table that any of them makes."""
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
