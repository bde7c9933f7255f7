"""A look at a table that a message type is to follow: whether it can be followed, from which version, and where its columns stand.

What is found is recorded once (`followed`), so nobody has to look again to know what a message is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.core.definitions.definition import Definitions, MessageTypeDefinition
from spark_queue.core.definitions.keys import parse_timestamp_ms
from spark_queue.core.message_files.followed_table import TIMES, FollowedColumns, FollowedTable, TableMeaning, unreadable_value
from spark_queue.core.records import Followed, FollowedColumn
from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal import delta
from spark_queue.journal.catalog import is_name, location_of
from spark_queue.journal.folder import Folder, of_table
from spark_queue.journal.followed_log import (
    AT_ONCE,
    ODD,
    UnsupportedError,
    committed_at_ms,
    files_at,
    is_counted,
    path_of,
    removed_in,
    token_of,
)
from spark_queue.journal.log_entry import TornEntryError, parse_entry, read_entry
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.read_ahead import read_ahead
from spark_queue.journal.schema import user_schema
from spark_queue.journal.sql_types import sql_type
from spark_queue.journal.store import Store, log_key, normal_path
from spark_queue.journal.table_meaning import meaning_of, quoted, unsupported_protocol
from spark_queue.journal.table_snapshot import adds_at, protocol_at

_LOG = logging.getLogger(__name__)

#: Most files of a table that enter as it begins to be followed.
BEGINNING_FILES = 100_000

#: The newest entries of a table's log by which its writers are judged.
_INSPECTED_ENTRIES = 10

_NOTHING_DONE = "Nothing was changed. Follow another table, or leave out what cannot be read."


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedTable:
    """A followed table as its writers keep it."""

    table: str
    retention_ms: int
    #: Files that the newest entries add, and those of them without a count of their rows.
    added: int
    uncounted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A table at one version."""

    version: int
    meaning: TableMeaning


def completed(own: Store, definitions: Definitions, known: Definitions | None = None) -> Definitions:
    """Return definitions with the location of each table wherever it is looked for, and all columns where none are named (R142).

    What such a name means is settled once: `known` are the definitions that hold.

    Raises
    ------
    ConfigError
        TABLE_NAME_UNKNOWN where no Spark session tells the location.
    """
    if all(each.table is None for each in definitions.message_types.values()):
        return definitions
    tables = dict(definitions.stored["message_types"])
    for name, definition in definitions.message_types.items():
        if definition.table is None:
            continue
        where = f"[message_types.{name}]"
        if is_name(definition.table):
            before = None if known is None else known.message_types.get(name)
            is_settled = before is not None and before.table_name == definition.table
            location = before.table if before is not None and is_settled else location_of(definition.table, where=where)
            tables[name] = {**tables[name], "table": location, "table_name": definition.table}
        else:
            # A directory is the caller's: the coordinator has another working directory.
            tables[name] = {**tables[name], "table": normal_path(definition.table, key="table", where=where)}
    located = parsing.parse({**definitions.stored, "message_types": tables})
    for name, definition in located.message_types.items():
        if definition.table is not None and not definition.columns:
            before = None if known is None else known.message_types.get(name)
            is_same = before is not None and (before.table, before.rename) == (definition.table, definition.rename)
            kept = before.columns if before is not None and is_same else None
            tables[name] = {**tables[name], "columns": _all_columns(own, definition, kept)}
    return parsing.parse({**definitions.stored, "message_types": tables})


def _all_columns(own: Store, definition: MessageTypeDefinition, known: str | None) -> str:
    """Return all columns of a table, or those `known` where it is away, or has lost or retyped one.

    What becomes of such a type is for its alarm to say: other definitions, such as a right, may change beside it.
    """
    folder, renamed = of_table(own, str(definition.table)), dict(definition.rename)
    try:
        there = list(_look(folder, definition).meaning.columns.values())
    except JournalError as failure:
        if known is None:
            raise
        _LOG.warning("Message type '%s' keeps the columns that it has: %s", definition.name, failure)
        return known
    if known is not None and not _has_all(there, user_schema(known), renamed):
        return known
    declared = []
    for name, kind in there:
        if kind is None:
            reason = f"no message type can have column '{name}', because of its type. Name the others in `columns`."
            raise _unsupported(folder, definition, reason)
        declared.append(f"{quoted(renamed.get(name, name))} {kind}")
    return ", ".join(declared)


def _has_all(there: Iterable[tuple[str, str | None]], known: Iterable[pa.Field[Any]], renamed: Mapping[str, str]) -> bool:
    """Return whether a table has each column that is known of it, of a type that holds its values."""
    kinds = {renamed.get(name, name): user_schema(f"`column` {kind}").field(0).type for name, kind in there if kind is not None}
    return all(each.name in kinds and _fits(each.type, kinds[each.name], may_lack=True) for each in known)


def look(
    own: Store, definition: MessageTypeDefinition, known: FollowedTable | None, before: MessageTypeDefinition | None
) -> Followed | None:
    """Return what is to be recorded of the table that a message type follows; None where what is `known` holds.

    Raises
    ------
    ConfigError
        TABLE_COLUMNS_DIFFER, SINK_IN_JOURNAL, BAD_VALUE, or MESSAGE_TYPE_CHANGED where it follows a table in another way.
    JournalError
        TABLE_UNSUPPORTED.
    """
    folder = of_table(own, str(definition.table))
    ours, theirs = f"{folder.uri}/", f"{own.path}/"
    if ours.startswith(theirs) or theirs.startswith(ours):
        raise ConfigError("SINK_IN_JOURNAL", table=folder.uri, path=own.path)
    if known is not None:
        return _changed(folder, definition, known, before)
    head = _look(folder, definition)
    start = _start(folder, definition, head.version)
    # The first commit that is to enter may be the one that changes columns.
    found = head if start >= head.version else _look(folder, definition, start + 1)
    columns = _columns(folder, definition, found.meaning)
    begins = definition.from_ == "beginning"
    if begins:
        _check_beginning(folder, definition, start)
    _check_partitions(folder, definition, found.meaning, columns, start if begins else None)
    data = b"" if start < 0 else _entry(folder, definition, start)
    return Followed(
        table=folder.uri,
        id=found.meaning.id,
        version=start,
        token=token_of(data) if data else "",
        committed=committed_at_ms(parse_entry(start, data)) if data else 0,
        columns=columns.columns,
        texts=columns.texts,
        retention=found.meaning.retention_ms,
        beginning=begins,
    )


def _changed(
    folder: Folder, definition: MessageTypeDefinition, known: FollowedTable, before: MessageTypeDefinition | None
) -> Followed | None:
    """Return what is to be recorded where a table that is followed already is followed by other columns."""
    reason = None
    if folder.uri != known.columns.table:
        reason = f"it follows table '{known.columns.table}', and would follow '{folder.uri}'."
    elif before is not None and before.from_ != definition.from_:
        reason = "where it began to follow its table was settled when it was defined; `sparkq follow` lets it go on elsewhere."
    if reason is not None:
        raise ConfigError("MESSAGE_TYPE_CHANGED", message_type=definition.name, reason=reason)
    if before is not None and (before.columns, before.rename) == (definition.columns, definition.rename):
        return None
    # Where its first files are still to enter, they do: it begins where it began.
    version, token = (known.from_version, known.from_token) if known.begins_with_files else known.last
    # By the names that hold where it goes on: a table may give a name to another column meanwhile.
    there = _look(folder, definition, max(version, 0)).meaning
    try:
        columns = _columns(folder, definition, there)
    except ConfigError:
        # What a struct has gained since, files from before do not have; it must be there by now.
        _columns(folder, definition, _look(folder, definition).meaning)
        columns = _columns(folder, definition, there, may_lack_fields=True)
    if (columns.columns, columns.texts) == (known.columns.columns, known.columns.texts):
        return None
    _check_partitions(folder, definition, there, columns, version if known.begins_with_files else None)
    return Followed(
        table=folder.uri, id=known.table_id, version=version, token=token, committed=known.from_ms, columns=columns.columns,
        texts=columns.texts, retention=known.retention_ms, beginning=known.begins_with_files, removed=tuple(known.removed.items()),
    )  # fmt: skip


def look_further(own: Store, definition: MessageTypeDefinition, known: FollowedTable, first: int | None) -> Followed:
    """Return what is to be recorded where a message type that was set aside goes on: with version `first`, or what comes next.

    Raises
    ------
    ConfigError
        BAD_VALUE where messages would enter twice, or there is no such version; TABLE_COLUMNS_DIFFER.
    JournalError
        TABLE_UNSUPPORTED.
    """
    folder, stopped = of_table(own, str(definition.table)), known.stopped
    head = _look(folder, definition)
    start = head.version if first is None else first - 1
    is_same = head.meaning.id == known.table_id and (stopped is None or stopped.error != "TABLE_REPLACED")
    least = known.read_until + 1 if is_same else 0
    if not least - 1 <= start <= head.version:
        expected = f"a version from {least} to {head.version + 1}: earlier ones have entered, and later ones are not there yet"
        raise ConfigError("BAD_VALUE", key="from", where="follow", value=first, expected=expected)
    there = _look(folder, definition, max(start, 0)).meaning
    # The first commit that is to enter may be the one that changes columns.
    from_then_on = _look(folder, definition, min(start + 1, head.version)).meaning
    columns = _columns(folder, definition, from_then_on, may_lack_columns=True, may_lack_fields=True)
    data = b"" if start < 0 else _entry(folder, definition, start)
    return Followed(
        table=folder.uri,
        id=there.id,
        version=start,
        token=token_of(data) if data else "",
        committed=committed_at_ms(parse_entry(start, data)) if data else 0,
        columns=columns.columns,
        texts=columns.texts,
        retention=there.retention_ms,
        skipped=(least, start) if start >= least else None,
        removed=tuple(_removed(folder, definition, known, start) if is_same else ((path, 0) for path in known.entered)),
    )


def _removed(folder: Folder, definition: MessageTypeDefinition, known: FollowedTable, version: int) -> Iterator[tuple[str, int]]:
    """Yield the files of messages that a table has no more at a version, and when they were removed (R154).

    Nobody has read the versions that are skipped; entries of them may be gone, and then nobody knows the time.
    """
    if not known.entered:
        return
    with _made_out(folder, definition):
        standing = {path_of(str(add["path"])) for add in adds_at(folder, version)} if version >= 0 else set[str]()
        gone = [path for path in known.entered if path not in standing]
        times_ms = _removal_times(folder, set(gone) - known.removed.keys(), range(known.last[0] + 1, version + 1))
    yield from ((path, known.removed.get(path, times_ms.get(path, 0))) for path in gone)


def _removal_times(folder: Folder, paths: set[str], versions: Sequence[int]) -> dict[str, int]:
    """Return when some files were removed in some versions, in milliseconds, as far as entries say so; several are read at once."""
    found = dict[str, int]()
    entries = read_ahead(lambda version: folder.store.read(log_key(folder.key, version)), versions, at_once=AT_ONCE)
    for version, data in zip(versions, entries, strict=True) if paths else ():
        removed = {} if data is None else removed_in(parse_entry(version, data))
        found = {path: at_ms for path, at_ms in removed.items() if path in paths} | found
        if paths <= found.keys():
            break
    return found


def inspect(own: Store, definition: MessageTypeDefinition) -> InspectedTable:
    """Return how a table is kept, by its newest entries; it is listed and read for that, also where nothing is, as a reign does.

    Raises
    ------
    JournalError
        TABLE_UNSUPPORTED, or STORE_FAILED where the store does not let it be listed or read.
    """
    folder = of_table(own, str(definition.table))
    head = _look(folder, definition)
    newest = versions_after(folder.store, folder.key, head.version - _INSPECTED_ENTRIES)
    folder.store.read(log_key(folder.key, max(newest, default=head.version) + 1))
    counts = [is_counted(add.get("stats")) for version in newest for add in _added(folder, version)]
    return InspectedTable(
        table=folder.uri, retention_ms=head.meaning.retention_ms, added=len(counts), uncounted=counts.count(False)
    )


def _added(folder: Folder, version: int) -> Sequence[Mapping[str, Any]]:
    """Return the files that an entry adds; none where it cannot be made out, which sets the message type aside."""
    try:
        entry = read_entry(folder.store, folder.key, version)
    except TornEntryError:
        return []
    return [] if entry is None else entry.adds


def head_of(own: Store, table: str, version: int) -> int:
    """Return the newest version of the log of a table, of which one is known."""
    folder = of_table(own, table)
    return max(versions_after(folder.store, folder.key, version), default=version)


def _look(folder: Folder, definition: MessageTypeDefinition, version: int | None = None) -> _Look:
    """Return a table at a version, or at its head; refuse one that cannot be followed."""
    try:
        table = delta.open_table(folder.store, folder.key, version=version)
    except JournalError as failure:
        if failure.code == "PROTOCOL_NEWER":
            raise _unsupported(folder, definition, f"{str(failure.facts['what'])[:500]}.") from None
        if failure.code != "JOURNAL_DAMAGED":
            raise
        # What delta-rs says of a feature that it does not know reads like damage (tried), so the log itself is asked.
        unknown = unsupported_protocol(protocol_at(folder, version))
        reason = unknown or f"its log cannot be opened: {str(failure.facts['reason'])[:500]}"
        raise _unsupported(folder, definition, reason) from None
    if table is None:
        raise _unsupported(folder, definition, "there is no Delta table.")
    protocol, metadata = table.protocol(), table.metadata()
    versions = {"minReaderVersion": protocol.min_reader_version, "readerFeatures": protocol.reader_features}
    described: dict[str, Any] = {
        "id": str(metadata.id), "schemaString": table.schema().to_json(), "configuration": dict(metadata.configuration),
        "partitionColumns": list(metadata.partition_columns),
    }  # fmt: skip
    refused = unsupported_protocol(versions)
    meaning = refused or meaning_of(described)
    if isinstance(meaning, str):
        raise _unsupported(folder, definition, meaning)
    return _Look(version=int(table.version()), meaning=meaning)


def _start(folder: Folder, definition: MessageTypeDefinition, head: int) -> int:
    """Return the version behind which commits enter, -1 for all (R143)."""
    if definition.from_ in ("now", "beginning"):
        return head
    if definition.from_.isdecimal():
        first = int(definition.from_)
        if first > head + 1:
            raise _bad_start(definition, f"at most {head + 1}, since version {head} is the newest of table '{folder.uri}'")
        return first - 1
    moment_ms = parse_timestamp_ms(definition.from_)
    standing = [version for version in versions_after(folder.store, folder.key, -1) if version <= head]
    for version in reversed(standing):
        if committed_at_ms(parse_entry(version, _entry(folder, definition, version))) < moment_ms:
            return version
    if standing[:1] != [0]:
        raise _bad_start(definition, f"a time that the log of table '{folder.uri}' reaches back to")
    return -1


def _bad_start(definition: MessageTypeDefinition, expected: str) -> ConfigError:
    where = f"[message_types.{definition.name}]"
    return ConfigError("BAD_VALUE", key="from", where=where, value=definition.from_, expected=expected)


def _entry(folder: Folder, definition: MessageTypeDefinition, version: int) -> bytes:
    data = folder.store.read(log_key(folder.key, version))
    if data is None:
        raise _bad_start(definition, f"a version of which the log of table '{folder.uri}' has the entry; {version} has none")
    return data


def _check_beginning(folder: Folder, definition: MessageTypeDefinition, version: int) -> None:
    """Refuse a table whose files cannot all enter as they are."""
    with _made_out(folder, definition):
        files = files_at(folder, version)
    if len(files) > BEGINNING_FILES:
        reason = f"it has {len(files):,} files, and {BEGINNING_FILES:,} are the most from its beginning. Compact it, or begin now."
        raise _unsupported(folder, definition, reason)


def _check_partitions(
    folder: Folder, definition: MessageTypeDefinition, there: TableMeaning, columns: FollowedColumns, version: int | None
) -> None:
    """Refuse a table with a partition value that not all read, or not alike: in any file of a version, or in its newest file.

    How its writers write such values, the log does not say. The newest file shows it before one of them enters.
    """
    if not any(kind in TIMES and physical in there.partition for _, physical, kind in columns.columns):
        return
    with _made_out(folder, definition):
        adds = adds_at(folder, _look(folder, definition).version if version is None else version)
        adds.sort(key=lambda add: int(add["modificationTime"]))
        values = [dict(add["partitionValues"]) for add in (adds[-1:] if version is None else adds)]
    for reason in filter(None, (unreadable_value(columns, each) for each in values)):
        raise _unsupported(folder, definition, reason)


def _columns(
    folder: Folder,
    definition: MessageTypeDefinition,
    there: TableMeaning,
    *,
    may_lack_columns: bool = False,
    may_lack_fields: bool = False,
) -> FollowedColumns:
    """Return where the declared columns stand in files, by the table at a version; a column that it may lack is NULL from there on.

    A field of a struct that it may lack is NULL in each file that does not have it.
    """

    def refuse(reason: str) -> ConfigError:
        return ConfigError("TABLE_COLUMNS_DIFFER", message_type=definition.name, table=folder.uri, reason=reason)

    physical = {name: (stored, kind) for stored, (name, kind) in there.columns.items()}
    names, meant = ColumnNames(physical), {column: name for name, column in definition.rename}
    found, texts = list[FollowedColumn](), list[str]()
    for field in user_schema(definition.columns):
        asked = meant.get(field.name, field.name)
        name = names.find(asked)
        if name is None and may_lack_columns:
            continue
        if name is None:
            raise refuse(f"it has no column '{asked}'.{names.nearest(asked)}")
        stored, kind = physical[name]
        if kind is None:
            raise refuse(f"no message type can have column '{name}', because of its type.")
        if not field.nullable:
            raise refuse(f"column '{field.name}' is declared NOT NULL, and nobody keeps its writers to that.")
        type_there = user_schema(f"`column` {kind}").field(0).type
        if stored in there.partition and pa.types.is_string(field.type) and not pa.types.is_string(type_there):
            texts.append(field.name)
        elif not _fits(type_there, field.type, may_lack=may_lack_fields):
            raise refuse(f"column '{name}' is {kind}, which cannot be read as {sql_type(field.type)} without loss.")
        found.append((field.name, stored, kind))
    return FollowedColumns(folder.uri, there.id, tuple(found), tuple(texts))


#: Types that hold each value of one before them.
_WIDER: Sequence[Sequence[pa.DataType]] = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.int8(), pa.int16(), pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
    (pa.date32(), pa.timestamp("us")),
)

#: Digits that a whole number of each type may have.
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def _fits(stored: Any, declared: Any, *, may_lack: bool, is_key: bool = False) -> bool:
    """Return whether each value of one type can be read as another without loss; a field that it `may_lack` is NULL."""
    fits = partial(_fits, may_lack=may_lack, is_key=is_key)
    if stored == declared:
        return True
    if pa.types.is_struct(stored) and pa.types.is_struct(declared):
        there, wanted = ({field.name: field for field in kind} for kind in (stored, declared))
        has_all = may_lack or wanted.keys() <= there.keys()
        # Without one of their fields two keys could be the same.
        has_all = has_all and (not is_key or there.keys() <= wanted.keys())
        nullable = all(each.nullable for each in declared)
        return has_all and nullable and all(fits(there[name].type, wanted[name].type) for name in wanted.keys() & there.keys())
    if pa.types.is_list(stored) and pa.types.is_list(declared):
        return fits(stored.value_type, declared.value_type)
    if pa.types.is_map(stored) and pa.types.is_map(declared):
        keys_fit = fits(stored.key_type, declared.key_type, is_key=True)
        return keys_fit and fits(stored.item_type, declared.item_type)
    if pa.types.is_decimal(declared):
        whole = declared.precision - declared.scale
        if pa.types.is_decimal(stored):
            return bool(declared.scale >= stored.scale and whole >= stored.precision - stored.scale)
        return stored in _DIGITS and whole >= _DIGITS[stored]
    return any(stored in kinds and declared in kinds[kinds.index(stored) :] for kinds in _WIDER)


@contextmanager
def _made_out(folder: Folder, definition: MessageTypeDefinition) -> Iterator[None]:
    """Refuse a table whose log holds what cannot be followed, or read."""
    try:
        yield
    except UnsupportedError as refusal:
        raise _unsupported(folder, definition, str(refusal)) from None
    except ODD as fault:
        raise _unsupported(folder, definition, f"its log cannot be made out ({type(fault).__name__}).") from None


def _unsupported(folder: Folder, definition: MessageTypeDefinition, reason: str) -> JournalError:
    facts = {"table": folder.uri, "message_type": definition.name, "place": "", "reason": reason}
    return JournalError("TABLE_UNSUPPORTED", next_step=_NOTHING_DONE, **facts)
