"""Waiting until peers have the published messages: each peer's own log has its watermark of this journal (DESIGN 17.8)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.core.folds.peers import watermark_of
from spark_queue.core.records import Entered, Kind, Record, Restored
from spark_queue.errors import ConfigError, CoordinatorError, SparkQueueError, parsed
from spark_queue.journal.commit import Published
from spark_queue.journal.log_entry import TornEntryError, read_entry
from spark_queue.journal.reader import JournalReader
from spark_queue.journal.store import Store, messages_key
from spark_queue.protocol import wire
from spark_queue.protocol.endpoint import LOCAL, Endpoint
from spark_queue.replication.peer_log import PeerLog
from spark_queue.replication.peer_stores import peer_store
from spark_queue.replication.record_checks import is_sound

#: Pause between two looks at the logs, in seconds.
_REPLICATED_PAUSE_S = 0.1


@dataclass(slots=True)
class _Log:
    """A log that is read on, and the trouble that keeps it from being read."""

    #: Of its instance, for errors.
    name: str
    store: Store
    log: PeerLog | None = None
    trouble: str | None = None
    #: Of a peer: the last record of this journal that it has pulled, by this journal's origin of then; see `Watermark`.
    pulled: dict[str, int] = field(default_factory=dict)

    def read(self) -> Sequence[Record]:
        try:
            self.log = self.log or PeerLog(self.store, self.name)
            records = self.log.read()
        except SparkQueueError as trouble:
            # Another reader begins anew: it is made at the next look.
            self.log, self.trouble = None, str(trouble)
            return ()
        self.trouble = None
        return records

    def has_pulled(self, record: int, origin: str | None) -> bool:
        """Return whether the peer has a record of this journal, under an origin or any."""
        return any(found >= record for each, found in self.pulled.items() if origin in (None, each))


@dataclass(slots=True)
class ReplicationWait:
    """Waits until so many peers have pulled the messages that are published after this was made."""

    journal: JournalReader
    definitions: Definitions
    count: int
    timeout: str
    endpoint: Endpoint = LOCAL
    _timeout_ms: int = field(init=False)
    _own: _Log = field(init=False)
    _peers: dict[str, _Log] = field(init=False)
    #: This journal's origin in watermarks, needed where all of a peer's log is read: before a restore this log had other records.
    _origin: str | None = None

    def __post_init__(self) -> None:
        peers = self.definitions.peers
        if not 0 < self.count <= len(peers):
            expected = f"between 1 and {len(peers)}, the number of peers of this journal" if peers else "left out: it has no peers"
            raise ConfigError("BAD_VALUE", key="replicated_to", where="publish", value=self.count, expected=expected)
        self._timeout_ms = parsed(parse_duration_ms, self.timeout, key="timeout", where="publish")
        self._own = _Log("this journal", self.journal.store)
        self._peers = {name: _Log(name, peer_store(self.journal.store, peer)) for name, peer in peers.items()}
        for each in (self._own, *self._peers.values()):
            try:
                # Watermarks of before the publish say nothing about it.
                each.log = PeerLog.at_end(each.store, each.name)
            except SparkQueueError as trouble:
                each.trouble = str(trouble)

    def wait(self, published: Sequence[Published]) -> None:
        """Return when so many peers have all of it; after REPLICATION_PENDING it is published all the same."""
        commits = [(each.message_type, each.version) for each in published if each.version is not None]
        deadline_s = time.monotonic() + self._timeout_ms / 1_000
        if any(not each.rows for each in published):
            # Rows that were there already may have entered long ago.
            self._own = _Log(self._own.name, self._own.store)
            self._peers = {name: _Log(name, each.store) for name, each in self._peers.items()}
            self._origin = ""
        wanted = {name: self._bringing(name, max(at for kind, at in commits if kind == name)) for name, _ in commits}
        client = CoordinatorClient(self.journal.store, self.journal.journal_id, endpoint=self.endpoint)
        entered: dict[str, int] = {}
        trouble = self._wake(client, wanted)
        while True:
            for record in self._own.read():
                message_type = str(record.message_type)
                if record.kind == Kind.RESTORED and self._origin is not None:
                    self._origin = record.body_as(Restored).origin_uuid
                if record.kind == Kind.ENTERED and message_type in wanted:
                    version = record.body_as(Entered).version
                    if version == wanted[message_type] or (version > wanted[message_type] and message_type not in entered):
                        entered[message_type] = record.record
            for log in self._peers.values():
                for mark in (watermark_of(each) for each in log.read() if each.kind == Kind.PULLED and is_sound(each)):
                    if mark.journal == self.journal.journal_id:
                        log.pulled[mark.origin] = max(mark.record, log.pulled.get(mark.origin, -1))
            has_entered = entered.keys() == wanted.keys()
            wanted_record = max(entered.values(), default=-1)
            having = [name for name, log in self._peers.items() if has_entered and log.has_pulled(wanted_record, self._origin)]
            if len(having) >= self.count:
                return
            if time.monotonic() >= deadline_s:
                break
            time.sleep(_REPLICATED_PAUSE_S)
        reason = self._why_not(having, trouble if not has_entered else None, has_entered=has_entered)
        rows = sum(each.rows + each.duplicates for each in published)
        raise CoordinatorError(
            "REPLICATION_PENDING", rows=rows, found=len(having), wanted=self.count, timeout=self.timeout, reason=reason
        )

    def _wake(self, client: CoordinatorClient, wanted: dict[str, int]) -> str | None:
        """Let a coordinator run, since messages enter by it; returns the trouble that keeps it from running."""
        try:
            for message_type in wanted:
                client.call(wire.Nudge(message_type=message_type), timeout_s=self._timeout_ms / 1_000)
        except SparkQueueError as trouble:
            return str(trouble)
        finally:
            client.close()
        return None

    def _bringing(self, message_type: str, version: int) -> int:
        """Return the last version up to `version` that brought messages."""
        for earlier in range(version, -1, -1):
            try:
                entry = read_entry(self.journal.store, messages_key(message_type), earlier)
            except TornEntryError:
                continue
            if entry is None or (entry.adds and entry.mark.get("writer") != "coordinator"):
                return earlier
        return version

    def _why_not(self, having: Sequence[str], trouble: str | None, *, has_entered: bool) -> str:
        if not has_entered:
            return f"no coordinator has entered them into this journal yet. {trouble or ''}".strip()
        late = [
            f"'{name}' has not pulled them" if log.trouble is None else f"the log of '{name}' cannot be read: {log.trouble}"
            for name, log in self._peers.items()
            if name not in having
        ]
        return f"{'; '.join(late)}."
