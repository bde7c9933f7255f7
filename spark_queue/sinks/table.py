"""A Delta table outside of the journal as a sink."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Schema

from spark_queue.clock import SystemClock
from spark_queue.errors import CallerError, ConfigError, JournalError, SparkQueueError, nearest
from spark_queue.journal import delta
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.entry_parts import Mark, NewFile
from spark_queue.journal.log_entry import read_entry
from spark_queue.journal.message_table import arrow_schema
from spark_queue.journal.store import Store, log_key, split_table
from spark_queue.journal.table_features import columns_of
from spark_queue.journal.table_meaning import ddl_of, interval_seconds
from spark_queue.sinks.sink import Fate, Landing, Sink, fate_of
from spark_queue.sinks.staging import SinkFile, SinkPlan

_LOG = logging.getLogger(__name__)

#: Commits between two checkpoints of a table, unless its properties say it, as by delta-rs.
_CHECKPOINT_COMMITS = 100

#: The time after which a log is listed again, in milliseconds: far shorter than entries are kept behind a checkpoint.
_LISTED_MS = 60 * 60 * 1000

#: How long a look at the table holds for what follows in its batch, in milliseconds: fn, or a coordinator's start, may take longer.
_FRESH_MS = 1_000

#: Commits that are tried before an attempt is left in doubt: in all, and in a row without anybody's commit.
_ATTEMPTS = 100
_FAILURES = 5

#: Most entries of others that are put onto the disk before one behind them is believed.
_SYNCED_MOST = 100

_DAY_S = 86_400
#: The shortest time for which a table must remember transaction ids: a decision may come so late.
RETENTION_DAYS = 7
_RETENTION_KEY = "delta.setTransactionRetentionDuration"

#: Delta's features that our append keeps, or that `_used_features` finds where they are used.
_KEPT_FEATURES = frozenset(
    "appendOnly changeDataFeed deletionVectors timestampNtz v2Checkpoint "
    "checkConstraints columnMapping generatedColumns invariants".split()
)
COLUMN_KEYS = {
    "delta.generationExpression": "generated columns", "delta.identity.start": "identity columns", "delta.invariants": "invariants",
    "__CHAR_VARCHAR_TYPE_STRING": "columns of a bounded length (CHAR, VARCHAR)",
}  # fmt: skip

_PLAIN_TYPES = frozenset("string long integer short byte float double boolean binary date timestamp timestamp_ntz".split())
#: Types whose values Delta's log has a form for that every reader knows.
_PARTITION_TYPES = _PLAIN_TYPES - {"binary"}
_DECIMAL = re.compile(r"decimal\(\d+, ?-?\d+\)")


class SinkTable(Sink):
    """A table that batches are appended to."""

    staged_type = SinkFile

    def __init__(self, path: str, storage_options: Mapping[str, str]) -> None:
        parent, key = split_table(path, where="into")
        self._store = Store(parent, storage_options, log_folder=f"{key}/_delta_log")
        self._key = key
        self._head: DeltaHead | None = None
        self._is_store_known = False
        #: The device that a local table lies on, once it was seen there.
        self._device: int | None = None
        #: The version whose entry this one has put onto the disk last.
        self._synced = -1
        #: When the log was last listed, in milliseconds.
        self._listed_at_ms = 0
        #: When the table was looked at for the plan, and for the append, that follow, in milliseconds of a monotonic clock.
        self._looked_at_ms = self._confirmed_at_ms = -_FRESH_MS

    @property
    def name(self) -> str:
        """The table's address."""
        return self._store.uri(self._key)

    def refuse_inside(self, journal: Store) -> None:
        """Refuse a table in the folder of the journal, or around it: clean-up of either would meet files of the other."""
        ours, theirs = f"{self.name}/", f"{journal.path}/"
        if ours.startswith(theirs) or theirs.startswith(ours):
            raise ConfigError("SINK_IN_JOURNAL", table=self.name, path=journal.path)

    def look(self) -> DeltaTable | None:
        """Return the table as it is at its head; None where there is none. Its handle may know older commits only."""
        head = self._look()
        return None if head is None else head.table

    def _look(self) -> DeltaHead | None:
        try:
            with self._store.failures("looking at the table"):
                if self._head is None or not self._read_on(self._head):
                    self._list()
        except (ConfigError, JournalError) as reason:
            self._head = None
            if reason.code == "PROTOCOL_NEWER":
                raise self._unsupported(str(reason.facts["what"])) from None
            raise JournalError("SINK_FAILED", table=self.name, reason=reason.reason) from None
        return self._head

    def _looked(self, plan: SinkPlan | None) -> DeltaHead | None:
        """Return the head as the plan of a batch has found it: where it has moved since, a put behind it is refused.

        Only while its entry stands: a table that was dropped meanwhile, and made anew, would take the put for a commit of its own.
        """
        head = self._head
        try:
            holds = plan is not None and head is not None and self._is_young() and head.stands()
        except JournalError as reason:
            raise JournalError("SINK_FAILED", table=self.name, reason=reason.reason) from None
        return head if holds else self._look()

    def _list(self) -> None:
        """Find the head as delta-rs does; refuse a table that was there and lies on a volume that is away."""
        if self._head is None:
            table, device = delta.open_table(self._store, self._key), self._device_now()
            if table is None and self._device not in (None, device):
                raise OSError("It was there, but its volume is no longer mounted")
            self._device = self._device if table is None else device
            self._head = None if table is None else DeltaHead(self._store, self._key, table)
        else:
            delta.refresh(self._store, self._key, self._head.table)
            self._head.reset(self._head.table)
        self._listed_at_ms = SystemClock().wall_ms()

    def _read_on(self, head: DeltaHead) -> bool:
        """Read the commits since, entry by entry; returns False where the log has to be listed.

        Listing a log takes the longer, the more commits it has: on a local disk ten thousand double the time of a batch (measured).
        An entry is cleaned away long after the log was listed. One that is gone or another is of a table that was dropped, put back
        from a copy, or made anew: nothing that was known of it counts, and it is opened anew.
        """
        if not self._is_young():
            return False
        if not head.read_on():
            # A handle that is brought to the head keeps files and transactions that are not there any more (tried).
            self._head = None
            return False
        return True

    def _is_young(self) -> bool:
        """Return whether the log was listed so lately that no entry since can have been cleaned away, in whatever order."""
        return abs(SystemClock().wall_ms() - self._listed_at_ms) <= _LISTED_MS

    def look_ahead(self) -> None:
        """Look at a table that is known, as `Sink.look_ahead` does."""
        now_ms = SystemClock().monotonic_ms()
        if self._head is not None:
            with suppress(SparkQueueError):
                self._look()
                self._looked_at_ms = now_ms

    def confirm(self, plan: SinkPlan | None) -> None:
        """Look whether the head stands that the plan has found, as `Sink.confirm` does."""
        now_ms = SystemClock().monotonic_ms()
        with suppress(SparkQueueError):
            self._looked(plan)
            self._confirmed_at_ms = now_ms

    def check(self) -> DeltaTable | None:
        """Return the table as `look` does, where batches may be appended to it."""
        if not self._is_store_known:
            self._require_store()
            self._is_store_known = True
        is_fresh = self._head is not None and SystemClock().monotonic_ms() - self._looked_at_ms < _FRESH_MS
        self._looked_at_ms = -_FRESH_MS
        table = self._head.table if is_fresh and self._head is not None else self.look()
        if table is None:
            return None
        unkept = sorted(self._unkept(table))
        if unkept:
            raise self._unsupported(", ".join(unkept))
        retention = table.metadata().configuration.get(_RETENTION_KEY)
        if retention is not None and interval_seconds(retention) < RETENTION_DAYS * _DAY_S:
            raise ConfigError("SINK_RETENTION_SHORT", table=self.name, key=_RETENTION_KEY, value=retention, days=RETENTION_DAYS)
        return table

    def _require_store(self) -> None:
        # A local disk creates a file once.
        if not self._store.is_local:
            self._store.check_put_if_absent(f"{self._key}/")

    def _unkept(self, table: DeltaTable) -> set[str]:
        """Return the features of a table that the commit of a batch would not keep."""
        return _used_features(table)

    def taken(self, columns: Sequence[str]) -> list[str]:
        """Return all of them: the table is for these rows."""
        return list(columns)

    def plan(
        self, columns: Sequence[Mapping[str, Any]], *, partition_by: Sequence[str] | None = None, merges_schema: bool = False
    ) -> Any:
        """Return the plan of staging rows of these columns; creates the table if there is none."""
        table, known, lacks = self._fitting(columns, partition_by, merges_schema=merges_schema)
        given = {str(column["name"]).lower() for column in columns}
        for name, wanted in known.items():
            if name not in given and (not wanted["nullable"] or "CURRENT_DEFAULT" in wanted.get("metadata", {})):
                raise self._differs(f"the rows lack column '{wanted['name']}', which cannot be NULL or has a default.", "Add it.")
        if lacks:
            table = self._add_columns(lacks)
        partitions = tuple(table.metadata().partition_columns)
        for name in partitions:
            self._require_partition_type(name, known.get(name.lower(), {}).get("type"))
        return SinkPlan(
            store=self._store, key=self._key, schema=arrow_schema(table), partition_by=partitions, table_id=str(table.metadata().id)
        )

    def _fitting(
        self, columns: Sequence[Mapping[str, Any]], partition_by: Sequence[str] | None, *, merges_schema: bool
    ) -> tuple[DeltaTable, dict[str, dict[str, Any]], list[Mapping[str, Any]]]:
        """Return the table, which is created if there is none, its columns, and those that it lacks; refuse other columns."""
        names = [str(column["name"]) for column in columns]
        lowered = [name.lower() for name in names]
        twice = next((name for name in names if lowered.count(name.lower()) > 1), None)
        if twice is not None:
            raise self._differs(f"the rows have column '{twice}' twice.", "Give one of them another name.")
        table = self.check() or self._create(columns, tuple(partition_by or ()))
        known = {str(each["name"]).lower(): each for each in columns_of(table.schema())}
        lacks = [column for column in columns if str(column["name"]).lower() not in known]
        for column in columns:
            wanted = known.get(str(column["name"]).lower())
            if wanted is not None and not _is_same(column["type"], wanted["type"]):
                given, kept = _type_text(column["type"]), _type_text(wanted["type"])
                raise self._differs(f"column '{column['name']}' is {given} in the rows and {kept} in the table.", "Cast it.")
        if lacks and not merges_schema:
            lacking = str(lacks[0]["name"])
            reason = f"it has no column '{lacking}'.{nearest(lacking, [str(each['name']) for each in known.values()])}"
            raise self._differs(reason, "Leave the column out, or add it to the table with merge_schema=True.")
        partitions = table.metadata().partition_columns
        if partition_by is not None and [each.lower() for each in partition_by] != [each.lower() for each in partitions]:
            found = ", ".join(partitions) or "nothing"
            raise self._differs(f"it is partitioned by {found}, not by {', '.join(partition_by)}.", "Leave partition_by out.")
        return table, known, lacks

    def id(self) -> str:
        """Return the id of Delta's metadata; SINK_FAILED where there was no table."""
        if self._head is None:
            raise self._absent()
        return str(self._head.table.metadata().id)

    def transaction_version(self, transaction: str, *, plan: SinkPlan | None = None) -> int:
        """Return the newest version of a transaction id; -1 where there is none. With a plan, no newer than its own look."""
        head = self._look() if plan is None or self._head is None else self._head
        return -1 if head is None else self._version(head, transaction)

    def _version(self, head: DeltaHead, transaction: str) -> int:
        try:
            found = head.transaction_version(transaction)
        except JournalError as reason:
            raise JournalError("SINK_FAILED", table=self.name, reason=reason.facts.get("reason", reason.reason)) from None
        return -1 if found is None else int(found)

    def append(self, plan: Any, files: Sequence[Any], *, transaction: str, attempt: int) -> Landing:
        """Commit as `Sink.append` does; SINK_CHANGED where the table is no longer as it was."""
        added = [
            NewFile(
                path=file.path, size_bytes=file.size_bytes, modified_ms=SystemClock().wall_ms(), stats=file.stats,
                partition_values=file.partition_values,
            ) for file in files
        ]  # fmt: skip
        return self._decide(transaction, attempt, 2 * attempt, added, plan)

    def fence(self, *, transaction: str, attempt: int) -> Landing:
        """Commit the fence as `Sink.fence` does."""
        return self._decide(transaction, attempt, 2 * attempt + 1, [], None)

    def discard(self, files: Sequence[Any]) -> None:
        """Delete staged files."""
        self._store.delete(f"{self._key}/{file.path}" for file in files)

    def _decide(self, transaction: str, attempt: int, version: int, files: Sequence[Any], plan: SinkPlan | None) -> Landing:
        """Commit a version of the transaction id as the table's next version, or read the version that was committed instead."""
        begun, before, failures, failure = None, -1, 0, ""
        is_confirmed = plan is not None and SystemClock().monotonic_ms() - self._confirmed_at_ms < _FRESH_MS
        head = self._head if is_confirmed and self._head is not None else self._looked(plan)
        self._confirmed_at_ms = -_FRESH_MS
        for _ in range(_ATTEMPTS):
            if head is None:
                raise self._absent()
            newest = head.version
            begun = newest if begun is None else begun
            if plan is not None and str(head.table.metadata().id) != plan.table_id:
                # Whatever this one says of the attempt, its files went with the other.
                raise CallerError("SINK_CHANGED", table=self.name)
            fate = fate_of(self._version(head, transaction), attempt)
            if fate is not Fate.IN_DOUBT:
                self._sync_found(transaction, newest)
                return Landing(fate, self._version_of(transaction, 2 * attempt, begun, newest))
            if plan is not None and self._is_changed(head.table, plan):
                raise CallerError("SINK_CHANGED", table=self.name)
            failures = failures + 1 if newest == before else 0
            if failures >= _FAILURES:
                raise JournalError("SINK_FAILED", table=self.name, reason=failure)
            before, failure = newest, self._swap(head, files, (transaction, version))
            if not failure:
                return Landing(fate_of(version, attempt), newest + 1 if version == 2 * attempt else None)
            delta.back_off(failures)
            head = self._look()
        raise JournalError("SINK_FAILED", table=self.name, reason=f"{_ATTEMPTS} races in a row were lost to other writers.")

    def _swap(self, head: DeltaHead, files: Sequence[Any], txn: tuple[str, int]) -> str:
        """Commit as the version after the head, which then is the head; returns the reason of a failure that is not certain.

        Not by delta-rs, which lists the log several times for it, and takes a second for the first commit of a process (measured).
        """
        version, unknown = head.version + 1, sorted(_unknown_features(head.table))
        if unknown:
            # Also of a fence, which has no rows: the entries that such a commit needs are not known here.
            raise self._unsupported(", ".join(unknown))
        try:
            if self._synced != head.version:
                # Torn by a power cut below the own one, it would be damage.
                self._store.sync([log_key(self._key, head.version)])
            if not head.put(files, mark=Mark(writer="sink"), transactions=dict([txn]), at_ms=SystemClock().wall_ms()):
                # The faster writer writes the checkpoint: two of one version at a time may spoil each other.
                return "Another commit came first."
        except SparkQueueError as reason:
            return reason.reason
        # A failure of this ends the attempt in doubt: to read the entry again would say nothing of the disk.
        self._store.sync([log_key(self._key, version)])
        self._synced = version
        try:
            if not self._is_young() or not head.follow_own():
                # Whether it landed where readers look, the next look shows.
                return "The log was changed meanwhile."
            self._checkpoint(head.table, version)
        except SparkQueueError as reason:
            return reason.reason
        return ""

    def _checkpoint(self, table: DeltaTable, version: int) -> None:
        """Write a checkpoint as often as the table asks for, so that others need not read each entry."""
        properties = table.metadata().configuration
        try:
            if version % int(properties.get("delta.checkpointInterval", _CHECKPOINT_COMMITS)):
                return
            self._list()
            table.create_checkpoint()
            if properties.get("delta.enableExpiredLogCleanup", "true").lower() == "true":
                table.cleanup_metadata()
        except (*delta.REFUSALS, OSError, SparkQueueError) as reason:
            # The commit stands without it, and the next one may come that far.
            _LOG.warning("Table '%s' got no checkpoint at version %d: %s", self.name, version, self._store.reason(reason))

    def _sync_found(self, transaction: str, newest: int) -> None:
        """Let the newest entries reach the disk, down to that of the transaction id: its writer may have been killed before.

        Only of the newest: others have been flushed by the system long ago.
        """
        if not self._store.is_local:
            return
        keys = list[str]()
        for number in range(newest, max(-1, newest - _SYNCED_MOST), -1):
            key = log_key(self._key, number)
            if not self._store.has(key):
                break
            keys.append(key)
            if transaction in self._transactions_of(number):
                break
        self._store.sync(reversed(keys))

    def _version_of(self, transaction: str, version: int, begun: int, head: int) -> int | None:
        """Return the one of the table's newest versions that brought a version of the transaction id."""
        for number in range(head, begun, -1):
            if self._transactions_of(number).get(transaction) == version:
                return number
        return None

    def _transactions_of(self, version: int) -> Mapping[str, int]:
        """Return the transaction ids of an entry; none of one that is gone, or that only delta-rs can make out."""
        try:
            entry = read_entry(self._store, self._key, version)
        except Exception:  # noqa: BLE001 - delta-rs has read it: what it says of an attempt is known.
            return {}
        return {} if entry is None else entry.transactions

    def _is_changed(self, table: DeltaTable, plan: SinkPlan) -> bool:
        """Return whether a table has other columns, or other partitions, than rows were staged for."""
        found = (arrow_schema(table), tuple(table.metadata().partition_columns))
        return bool(self._unkept(table)) or found != (plan.schema, plan.partition_by)

    def _device_now(self) -> int | None:
        """Return the device that a local table would lie on; None where nothing is there."""
        parent = Path(self._store.path)
        return parent.stat().st_dev if self._store.is_local and parent.is_dir() else None

    def _create(self, columns: Sequence[Mapping[str, Any]], partition_by: Sequence[str]) -> DeltaTable:
        for column in columns:
            if not _is_storable(column["type"]):
                reason = f"column '{column['name']}' is {_type_text(column['type'])}, which a new table cannot have."
                raise self._differs(reason, "Cast it, or leave it out.")
        known = {str(column["name"]).lower(): str(column["name"]) for column in columns}
        unknown = [name for name in partition_by if name.lower() not in known]
        if unknown or len(partition_by) >= len(columns):
            what = f"no column '{unknown[0]}'" if unknown else "no column besides those that it is partitioned by"
            raise self._differs(f"the rows have {what}.", "Correct partition_by.")
        for column in columns:
            if str(column["name"]).lower() in map(str.lower, partition_by):
                self._require_partition_type(str(column["name"]), column["type"])
        if self._store.is_local:
            with self._store.failures(f"creating {self._key}"):
                Path(self._store.uri(f"{self._key}/_delta_log")).mkdir(parents=True, exist_ok=True)
        # Another consumer may be faster.
        delta.begin_table(
            self._store, self._key, _schema(columns), writer="sink", partition_by=[known[name.lower()] for name in partition_by]
        )
        table = self.check()
        if table is None:
            raise JournalError("SINK_FAILED", table=self.name, reason="It disappeared while it was created.")
        self._store.sync([log_key(self._key, 0)], ancestors=True)
        return table

    def _add_columns(self, columns: Sequence[Mapping[str, Any]]) -> DeltaTable:
        """Add columns that a table lacks, or find that another writer has."""
        for column in columns:
            if not _is_storable(column["type"]):
                raise self._differs(f"column '{column['name']}' is {_type_text(column['type'])}.", "Cast it, or leave it out.")
        for tries in range(_ATTEMPTS):
            table = self.check()
            assert table is not None, "it was there"
            known = {str(each["name"]).lower() for each in columns_of(table.schema())}
            lacks = [column for column in columns if str(column["name"]).lower() not in known]
            if not lacks:
                return table
            assert self._head is not None, "it was looked at just now"
            version = self._head.version + 1
            if delta.add_columns(self._store, self._key, table, _schema(lacks), version=version, writer="sink"):
                self._store.sync([log_key(self._key, version)])
                self._checkpoint(table, version)
            else:
                delta.back_off(tries)
        raise JournalError("SINK_FAILED", table=self.name, reason="Its columns could not be added.")

    def _require_partition_type(self, name: str, kind: Any) -> None:
        if not isinstance(kind, str) or not (kind in _PARTITION_TYPES or _DECIMAL.fullmatch(kind)):
            text = _type_text(kind)
            raise self._differs(f"it is partitioned by '{name}', which is {text}.", "Partition it by a column of another type.")

    def _absent(self) -> JournalError:
        return JournalError("SINK_FAILED", table=self.name, reason="It is not there.")

    def _unsupported(self, what: str) -> ConfigError:
        return ConfigError("SINK_FEATURE_UNSUPPORTED", table=self.name, what=what)

    def _differs(self, reason: str, next_step: str) -> CallerError:
        return CallerError("SINK_SCHEMA_DIFFERS", table=self.name, reason=reason, next_step=next_step)


def _schema(columns: Sequence[Mapping[str, Any]]) -> Schema:
    """Return columns as Delta's, each of which may be NULL, as those of tables that Spark creates."""
    fields = [{"name": each["name"], "type": _nullable(each["type"]), "nullable": True, "metadata": {}} for each in columns]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def _unknown_features(table: DeltaTable) -> set[str]:
    """Return the features of a table that ask of each commit entries that ours does not have."""
    found = set(table.protocol().writer_features or ()) - _KEPT_FEATURES
    if table.metadata().configuration.get("delta.enableInCommitTimestamps", "false").lower() == "true":
        found.add("in-commit timestamps")
    return found


def _used_features(table: DeltaTable) -> set[str]:
    """Return the features of a table in use that an append would not keep."""
    properties = table.metadata().configuration
    found = _unknown_features(table)
    found |= {
        f"the constraint {key.removeprefix('delta.constraints.')}" for key in properties if key.startswith("delta.constraints.")
    }
    if properties.get("delta.columnMapping.mode", "none").lower() != "none":
        found.add("column mapping")
    if properties.get("delta.enableRowTracking", "false").lower() == "true":
        found.add("row tracking")
    keys = {key for column in columns_of(table.schema()) for key in column.get("metadata", {})}
    return found | {COLUMN_KEYS[key] for key in keys & COLUMN_KEYS.keys()}


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two types are one, except for the parts that may be NULL."""
    return bool(_plain(one) == _plain(other))


def _plain(kind: Any) -> Any:
    """Return a type for comparison; names of fields count as they are written, since files are written by them."""
    if isinstance(kind, str):
        return kind.replace(" ", "")
    if kind["type"] == "struct":
        return "struct", [(str(field["name"]), _plain(field["type"])) for field in kind["fields"]]
    if kind["type"] == "array":
        return "array", _plain(kind["elementType"])
    if kind["type"] == "map":
        return "map", _plain(kind["keyType"]), _plain(kind["valueType"])
    return kind["type"], id(kind)


def _is_storable(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind in _PLAIN_TYPES or _DECIMAL.fullmatch(kind) is not None
    parts = {"struct": [field["type"] for field in kind.get("fields", ())], "array": [kind.get("elementType")],
             "map": [kind.get("keyType"), kind.get("valueType")]}  # fmt: skip
    return all(map(_is_storable, parts.get(kind["type"], [""])))


def _nullable(kind: Any) -> Any:
    """Return a type of which every part may be NULL, as tables that Spark creates have it."""
    if isinstance(kind, str):
        return kind.replace(" ", "")
    if kind["type"] == "struct":
        fields = [{**field, "type": _nullable(field["type"]), "nullable": True, "metadata": {}} for field in kind["fields"]]
        return {"type": "struct", "fields": fields}
    if kind["type"] == "array":
        return {**kind, "elementType": _nullable(kind["elementType"]), "containsNull": True}
    return {**kind, "keyType": _nullable(kind["keyType"]), "valueType": _nullable(kind["valueType"]), "valueContainsNull": True}


def _type_text(kind: Any) -> str:
    """Return a type in Spark DDL; Delta's own name where no message type has it."""
    return ddl_of(kind) or (kind if isinstance(kind, str) else str(kind.get("type")))
