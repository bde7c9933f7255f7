"""The peers of a journal, for those who look after it: whether definitions fit, and how pulling goes (DESIGN 17.7, 17.8).

`Peer`: what users say of an instance that their journal pulls from. It is a value that opens nothing until asked.
Waiting until peers have what was published: each peer's own log says how far it has pulled this journal (DESIGN 17.8).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from spark_queue.client.arguments import checked
from spark_queue.client.coordinator_client import CoordinatorClient, call_once
from spark_queue.core import commands, replies
from spark_queue.core.definitions.definition import TEXTS, Definitions, PeerDefinition, Rule
from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.folds.journal import watermark_of
from spark_queue.errors import ConfigError, CoordinatorError, JournalError, SparkQueueError, parsed
from spark_queue.journal.commit import Published
from spark_queue.journal.log_entry import TornEntryError, read_entry
from spark_queue.journal.open import open_journal
from spark_queue.journal.reader import JournalReader, open_reader
from spark_queue.journal.store import Store, messages_key
from spark_queue.metrics.figures import peer_figures
from spark_queue.protocol import wire
from spark_queue.protocol.connection import LOCAL, Endpoint
from spark_queue.replication import validation
from spark_queue.replication.peer_log import PeerLog
from spark_queue.replication.peer_stores import peer_store
from spark_queue.replication.record_forms import is_sound
from spark_queue.replication.restored import lag_of, read_definitions
from spark_queue.views import JournalView, state_at

#: How long a drain waits for leases to end, and for the peer, before it looks again, in seconds.
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer of the journal in a store, by the name of its instance; `endpoint` as `Journal` has it."""

    store: Store
    endpoint: Endpoint
    name: str

    def skip_lost(self) -> None:
        """Go on without the messages that the peer let go before they were pulled (PEER_GAP).

        Raises
        ------
        ConfigError
            UNKNOWN_PEER.
        """
        self._ask(commands.SkipLost(peer=self.name))

    def reset(self) -> None:
        """Read the journal that the peer has now from its beginning (PEER_REPLACED).

        Raises
        ------
        ConfigError
            UNKNOWN_PEER.
        """
        self._ask(commands.ResetPeer(peer=self.name))

    def return_without(self) -> None:
        """Let this instance, which was away, deliver again without hearing from the peer: what that one claimed comes twice.

        Raises
        ------
        CallerError
            UNSUPPORTED_WRITE where it waits for no peer.
        ConfigError
            UNKNOWN_PEER.
        """
        self._ask(commands.ReturnWithout(peer=self.name))

    def forget(self) -> replies.Forgotten:
        """Claim what the peer owned, since it is gone for good; nothing waits for it any more.

        Raises
        ------
        ConfigError
            UNKNOWN_PEER.
        JournalError
            PEER_LIVES.
        """
        return cast(replies.Forgotten, self._ask(commands.ForgetPeer(peer=self.name)))

    @checked
    def drain(self, *, on_progress: Callable[[int, Mapping[str, int]], None] | None = None) -> int:
        """Hand all that is owned here to the peer; returns how many messages that were, once it has heard of all of them.

        A message is handed over once the peer's log shows that it is there.

        Parameters
        ----------
        on_progress
            Called now and then with how many were handed over, and how many are still owned here, by queue.

        Raises
        ------
        ConfigError
            UNKNOWN_PEER.
        JournalError
            DRAIN_STUCK: some of it will never come to the peer as things are.
        """
        transferred, record = 0, -1
        while True:
            done = cast(replies.Drained, self._ask(commands.DrainTo(peer=self.name, record=record)))
            transferred, record = transferred + done.transferred, done.record
            if on_progress is not None:
                on_progress(transferred, done.left)
            if done.is_pulled:
                return transferred
            if done.stuck and not done.transferred:
                queue, reason = next(iter(done.stuck.items()))
                facts = {"transferred": transferred, "count": done.left[queue], "queue": queue, "reason": reason}
                raise JournalError("DRAIN_STUCK", peer=self.name, **facts)
            time.sleep(_PAUSE_S)

    def _ask(self, command: commands.InstanceCommand) -> replies.CoreReply:
        found = call_once(self.store, open_reader(self.store).journal_id, command, endpoint=self.endpoint)
        return cast(replies.CoreReply, found)


_NONE_RUNS = "no coordinator of this journal runs, so nothing is pulled: keep `sparkq serve` running."

#: How long a coordinator may take to answer, in seconds.
_ASK_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCheck:
    """Whether the definitions of instances fit each other."""

    #: What each rule asks for.
    rules: dict[str, str]
    broken: list[validation.BrokenRule]
    #: Instances whose definitions were read.
    read: list[str]
    #: Why those of others could not be, by instance.
    unread: dict[str, str]
    #: Whether no rule is broken but R113.6, which may be, and every peer of this journal was read.
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """How pulling from one peer goes."""

    #: Its instance, and the path of its journal.
    peer: str
    journal: str
    #: Whether it counts as reachable, and since when it is silent, in seconds; None where no coordinator runs that could tell.
    reachable: bool | None
    silent_seconds: float | None
    #: Records of its log that mean something here and are not taken over, and the age of the first; None where it cannot be read.
    records_behind: int | None
    seconds_behind: float | None
    #: What was copied of its messages since the coordinator began, or had new definitions; None where none runs.
    rows_copied: int | None
    bytes_copied: int | None
    #: Messages that it owns of queues here, that it was asked for just now, that came from it, and that it was given.
    remote: int
    requested: int
    transferred_in: int
    transferred_out: int
    #: What breaks rules between its definitions and those of here.
    disagreements: list[str]
    #: What keeps it from being pulled.
    trouble: str | None


def peer_status(store: Store, endpoint: Endpoint) -> list[PeerStatus]:
    """Tell how pulling from each peer goes: from the logs, and what only a coordinator knows from the one that runs.

    Raises
    ------
    ConfigError
        NO_PEERS.
    SparkQueueError
        What keeps the journal itself from being read.
    """
    now = state_at(open_journal(store))
    definitions = now.state.definitions
    if not definitions.peers:
        raise ConfigError("NO_PEERS", path=store.path)
    told = _told(store, now.state.journal_id, endpoint)
    return [_status_of(store, now, peer, told) for peer in definitions.peers.values()]


def _told(store: Store, journal_id: str, endpoint: Endpoint) -> Mapping[str, wire.PeerTold] | None:
    """Return what the coordinator tells; None where none runs."""
    try:
        reply = call_once(store, journal_id, wire.AskPeers(), endpoint=endpoint, start=False, timeout_s=_ASK_S)
    except CoordinatorError as refusal:
        # With an address the user says that one runs there.
        if endpoint.addresses is not None or refusal.code != "COORDINATOR_UNAVAILABLE":
            raise
        return None
    assert isinstance(reply, wire.PeersTold), "it is answered with what it asks for"
    return reply.peers


def _status_of(store: Store, now: JournalView, peer: PeerDefinition, told: Mapping[str, wire.PeerTold] | None) -> PeerStatus:
    state, name = now.state, peer.name
    known = None if told is None else told.get(name)
    found = peer_figures(state, name, now_ms=now.now_ms)
    records, seconds, unread = None, None, None
    try:
        records, seconds = lag_of(store, peer, state.pulled.get(name), now_ms=now.now_ms)
    except SparkQueueError as trouble:
        unread = str(trouble)
    return PeerStatus(
        peer=name,
        journal=peer.journal,
        reachable=None if known is None else known.silent_ms < state.definitions.replication.unreachable_after_ms,
        silent_seconds=None if known is None else known.silent_ms / 1_000,
        records_behind=records,
        seconds_behind=seconds if records else None,
        rows_copied=None if known is None else known.rows_copied,
        bytes_copied=None if known is None else known.bytes_copied,
        remote=found.remote,
        requested=found.requested,
        transferred_in=found.transferred_in,
        transferred_out=found.transferred_out,
        disagreements=[f"{each.rule}, {each.queue}: {each.reason}" for each in state.disagreements.get(name, ())],
        trouble=_NONE_RUNS if told is None else (None if known is None else known.trouble) or unread,
    )


def check_peers(store: Store) -> PeerCheck:
    """Read the definitions of a journal's peers, and of theirs as far as they can be read, and check them all.

    Raises
    ------
    ConfigError
        NO_PEERS when the journal has none.
    JournalError
        What keeps the journal itself from being read.
    """
    reader = open_reader(store)
    own = reader.definitions()
    if not own.peers or own.journal.instance is None:
        raise ConfigError("NO_PEERS", path=store.path)
    known, journals = {own.journal.instance: own}, {reader.journal_id: own.journal.instance}
    unread: dict[str, str] = {}
    waiting = list(own.peers.values())
    while waiting:
        peer = waiting.pop(0)
        if peer.name in known or peer.name in unread:
            continue
        try:
            # Its options are those of the own journal: a definition holds no secrets.
            journal, theirs = read_definitions(peer_store(store, peer), peer.name)
        except SparkQueueError as trouble:
            unread[peer.name] = str(trouble)
            continue
        same = journals.setdefault(journal, peer.name)
        if same != peer.name or theirs.journal.instance != peer.name:
            unread[peer.name] = _misnamed(peer.journal, theirs, same, peer.name)
            continue
        known[peer.name] = theirs
        waiting += theirs.peers.values()
    broken = validation.find(known)
    return PeerCheck(
        rules={str(rule): TEXTS[rule] for rule in Rule}, broken=broken, read=list(known), unread=unread,
        fits=all(each.rule == Rule.SAME_MEMBERS for each in broken) and not own.peers.keys() & unread.keys(),
    )  # fmt: skip


def _misnamed(path: str, found: Definitions, same: str, name: str) -> str:
    if same != name:
        return f"'{path}' is the journal of '{same}', or a copy of it."
    return f"'{path}' is " + ("no instance." if found.journal.instance is None else f"instance '{found.journal.instance}'.")


#: Pause between two looks at the logs, in seconds.
_REPLICATED_PAUSE_S = 0.1


@dataclass(slots=True)
class _Log:
    """A log that is read on, and what keeps it from being read."""

    #: Of its instance, for errors.
    name: str
    store: Store
    log: PeerLog | None = None
    trouble: str | None = None
    #: Of a peer: the last record of this journal that it has pulled, by the origin that it had then; see `Watermark`.
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
    """Waits until so many peers have pulled what is published after this was made.

    Parameters
    ----------
    journal : JournalReader
        The journal.
    definitions : Definitions
        Its own: they name the peers.
    count : int
        How many peers.
    timeout : str
        Such as ``"30s"``.

    Raises
    ------
    ConfigError
        BAD_VALUE: there are not so many peers, or the timeout is none. Nothing was published.
    """

    journal: JournalReader
    definitions: Definitions
    count: int
    timeout: str
    endpoint: Endpoint = LOCAL
    _timeout_ms: int = field(init=False)
    _own: _Log = field(init=False)
    _peers: dict[str, _Log] = field(init=False)
    #: That of this journal, where all that peers have ever said is read: before a restore its log had other records.
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
                # What was said before the publish says nothing about it.
                each.log = PeerLog.at_end(each.store, each.name)
            except SparkQueueError as trouble:
                each.trouble = str(trouble)

    def wait(self, published: Sequence[Published]) -> None:
        """Return when so many peers have all of it.

        Raises
        ------
        CoordinatorError
            REPLICATION_PENDING: the time is over. It is published all the same.
        """
        commits = [(each.message_type, each.version) for each in published if each.version is not None]
        deadline_s = time.monotonic() + self._timeout_ms / 1_000
        if any(not each.rows for each in published):
            # What was there already may have entered long ago.
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
                    self._origin = record.detail["origin_uuid"]
                if record.kind == Kind.ENTERED and message_type in wanted:
                    version = record.detail["version"]
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
        """Let a coordinator run, since messages enter by it; returns what keeps it from that."""
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
            return f"no coordinator has let them enter this journal yet. {trouble or ''}".strip()
        late = [
            f"'{name}' has not pulled them" if log.trouble is None else f"the log of '{name}' cannot be read: {log.trouble}"
            for name, log in self._peers.items()
            if name not in having
        ]
        return f"{'; '.join(late)}."
