"""The loop and its peers: it applies pulled records, and grants only after hearing from them (DESIGN 17.3)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from pyroaring import BitMap64

from spark_queue.coordinator.commands import Answer
from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands, replies
from spark_queue.core.deciding.instances.liveness import GAP_MS
from spark_queue.core.definitions.definition import Definitions, is_pattern
from spark_queue.core.engine import Engine
from spark_queue.core.state.ownership import Ownership
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal.entering import Sequencer
from spark_queue.ports import JournalPort
from spark_queue.protocol import wire
from spark_queue.replication.exchange import (
    HEARS_MS,
    ApplyPulled,
    Heard,
    HeardPeer,
    PullProgressQuery,
    PullReport,
    PullState,
    Standing,
    may_pass,
)

_LOG = logging.getLogger(__name__)


class PeerPullers(Protocol):
    """Pulls from the peers of the journal, beside the loop."""

    def keep(self, definitions: Definitions, known: frozenset[str], *, shows_life: bool) -> None:
        """Pull from the peers that are defined now, and from no others, and hear of them and of the instances that are known."""
        ...

    def look_soon(self) -> None:
        """Let the beacons be looked at now."""
        ...

    def heard(self) -> Heard:
        """Return the signs of life of other instances until now."""
        ...

    def pulled_here(self) -> Mapping[str, int | None]:
        """Return how far the peers that were read have pulled from here; see `Liveness`."""
        ...

    def there(self, peer: str, message_type: str) -> Mapping[str, BitMap64] | None:
        """Return the messages that a peer has; see `Liveness`."""
        ...

    def restored(self) -> JournalError | None:
        """Return the sign that this journal was restored from a backup, as an error."""
        ...

    def are_compared(self) -> bool:
        """Return whether the log of each peer that can be read was searched for records that the own log has lost."""
        ...

    def begin_anew(self) -> None:
        """Let each puller begin anew, and at once: its trouble may be over."""
        ...

    def reports(self) -> Mapping[str, PullReport]:
        """Return how each peer is pulled, by name."""
        ...


def fixes_place(command: object) -> bool:
    """Return whether a command is about all that was published before it."""
    return isinstance(command, commands.Apply | commands.Follow) or (isinstance(command, commands.Attach) and command.available_now)


def defines(command: object, queue: str) -> bool:
    """Return whether a command brings definitions that have a queue."""
    found = command.definitions.get("queues") if isinstance(command, commands.Apply) else None
    return isinstance(found, Mapping) and queue in found


class Peers:
    """The peers of a journal, as its loop meets them."""

    def __init__(self, journal: JournalPort, engine: Engine, entrance: Sequencer, pullers: PeerPullers, *, now_ms: int) -> None:
        self._journal = journal
        self._engine = engine
        self._entrance = entrance
        self._pullers = pullers
        engine.liveness.there = pullers.there
        self._searched_at_latest_ms = now_ms + HEARS_MS
        #: The code of the trouble that keeps each peer from being pulled, and since when.
        self._troubled: dict[str, tuple[str, int]] = {}
        #: The peers whose logs were searched for records that the own log has lost, in this reign.
        self._compared: set[str] = set()
        #: How many of the times were looked at in which the own beacon was not written.
        self._gaps = 0
        #: The number of the own beacon from which on a peer says that it knows this instance to be back, and when each has.
        self._number: int | None = None
        self._answered_ms: dict[str, int] = {}

    def look(self, *, now_ms: int) -> None:
        """Pull from the peers that are defined now, and note the instances that are heard of."""
        state = self._engine.state
        owners = (ledger.ownership.others() for ledger in state.queues.values())
        others = frozenset(state.definitions.peers).union(*owners)
        self._pullers.keep(state.definitions, others.union(state.instances.values()), shows_life=state.is_shared)
        self._engine.liveness.listen(others, now_ms=now_ms)
        self._hear(now_ms)
        self._note_restored()
        self._engine.liveness.pulled_here = self._pullers.pulled_here()
        self._note_troubles(now_ms)

    def _note_troubles(self, now_ms: int) -> None:
        """Log the troubles that keep peers from being pulled: one that may be over at the next look, once it has lasted."""
        after_ms = self._engine.state.definitions.replication.unreachable_after_ms
        for peer, report in self._pullers.reports().items():
            trouble = self._trouble_of(peer, report, now_ms=now_ms)
            error = "" if trouble is None else str(trouble)
            if error and not isinstance(trouble, SparkQueueError):
                error = f"[INTERNAL] Peer '{peer}' is not pulled: {trouble!r:.500}"
            code = error.partition("]")[0]
            before, since_ms = self._troubled.get(peer, ("", now_ms))
            self._troubled[peer] = (code, since_ms if code == before else now_ms)
            if not code or not may_pass(trouble) or now_ms >= self._troubled[peer][1] + after_ms:
                self._engine.note_trouble(peer, error, now_ms=now_ms)

    def _trouble_of(self, peer: str, report: PullReport, *, now_ms: int) -> BaseException | None:
        """Return the trouble that keeps a peer from being pulled, or that messages enter although it may know of lost ones."""
        if report.is_compared:
            self._compared.add(peer)
        goes_on = self._engine.liveness.is_searched and (report.trouble is not None or now_ms >= self._searched_at_latest_ms)
        if peer in self._compared or not goes_on or not may_pass(report.trouble):
            return report.trouble
        return JournalError("JOURNAL_UNCOMPARED", peer=peer, path=self._journal.path)

    def _hear(self, now_ms: int) -> None:
        liveness, heard = self._engine.liveness, self._pullers.heard()
        liveness.hear(heard.rises, now_ms=now_ms, looked_ms=now_ms - heard.look_age_ms)
        liveness.level_ms = None if heard.level_age_ms is None else now_ms - heard.level_age_ms

    def end_claims(self, *, now_ms: int) -> None:
        """Let claims that earlier steps committed be granted or go back, by a look at the beacon of their owner (R110)."""
        liveness = self._engine.liveness
        if liveness.claimed():
            if liveness.note_commit(now_ms=now_ms):
                self._pullers.look_soon()
            self._hear(now_ms)
            self._engine.end_claims(now_ms=now_ms)

    def told(self, *, now_ms: int) -> dict[str, wire.PeerTold]:
        """Return how each peer is pulled, by name."""
        return {
            name: wire.PeerTold(
                silent_ms=self._engine.liveness.silent_ms(name, now_ms=now_ms), rows_copied=report.rows, bytes_copied=report.bytes,
                trouble=None if report.trouble is None else str(report.trouble),
            )
            for name, report in self._pullers.reports().items()
        }  # fmt: skip

    def join(self, known: Mapping[str, Ownership], *, now_ms: int) -> None:
        """Grant nothing of replicated queues that begin by new definitions before peers were read from their beginnings (R130)."""
        state = self._engine.state
        # Also one that was removed and put back: the fate of its messages meanwhile stands in the logs of others.
        begun = [
            name
            for name, ledger in state.queues.items()
            if state.definitions.is_replicated(name) and known.get(name) is not ledger.ownership
        ]
        if begun:
            self.look(now_ms=now_ms)
            self._engine.begin_return(joins=True, queues=begun, now_ms=now_ms)

    def note_heard(self, *, now_ms: int) -> None:
        """Note whether own messages may be granted: an owner that was away must first hear of claims (DESIGN 17.6)."""
        liveness, state = self._engine.liveness, self._engine.state
        liveness.is_searched = self._is_searched(now_ms=now_ms)
        # An instance that shares nothing is heard by nobody, and may get peers.
        liveness.is_mute = True
        if not state.is_shared:
            return
        heard, after_ms = self._pullers.heard(), state.definitions.replication.unreachable_after_ms
        silence_ms = heard.own_age_ms
        liveness.is_mute = silence_ms is None or 3 * silence_ms >= 2 * after_ms
        for gap_ms in heard.own_gaps_ms[self._gaps :]:
            # Meanwhile somebody may have missed it.
            self._hear_anew()
            if gap_ms is None or 3 * gap_ms >= 2 * after_ms:
                self._engine.begin_return(joins=gap_ms is None and not state.pulled, now_ms=now_ms)
        self._gaps = len(heard.own_gaps_ms)
        if state.returning is not None and self._is_back(heard, now_ms):
            self._engine.end_return(now_ms=now_ms)

    def _hear_anew(self) -> None:
        """Forget the peers that know that this instance is back: a sign from before does not count."""
        self._number, self._answered_ms = None, {}

    def _is_back(self, heard: Heard, now_ms: int) -> bool:
        """Return whether each peer that shares a queue knows that this instance is back, or does not run, and was heard then."""
        if heard.own_age_ms is None or heard.own_age_ms >= GAP_MS:
            # It is heard anew once it is written.
            return False
        if self._number is None:
            self._number = heard.own_number
        state = self._engine.state
        returning = state.returning
        assert returning is not None, "it returns"
        assert self._number is not None, "its beacon is written"
        shared = {each.name for each in state.definitions.peers.values() if each.queues}
        awaited = shared - returning.excused_peers - state.peer_changes.forgotten
        pulled_here = self._pullers.pulled_here()
        for peer in awaited & heard.peers.keys():
            # A peer that pulls nothing from here claims nothing, and never says to have seen it.
            pulls = pulled_here.get(peer, -1) is not None
            if not pulls or heard.peers[peer].seen_own >= self._number or self._engine.liveness.is_silent(peer):
                self._answered_ms.setdefault(peer, now_ms)
        return all(
            self._is_heard(heard.peers.get(peer), now_ms, self._answered_ms.get(peer), joins=returning.joins) for peer in awaited
        )

    def _is_heard(self, peer: HeardPeer | None, now_ms: int, answered_ms: int | None, *, joins: bool) -> bool:
        if peer is None:
            return False
        if joins:
            # Nobody can have claimed from an instance that was not there.
            return not peer.is_readable or peer.level_age_ms is not None
        return answered_ms is not None and peer.level_age_ms is not None and now_ms - peer.level_age_ms > answered_ms

    def may_enter(self, message_type: str, *, now_ms: int) -> bool:
        """Return whether messages of a type may enter: of a restored journal they would get the bookmarks of lost messages.

        So the logs of all peers that can be read are first searched for lost records; it may last too long. Messages that
        are shared with nobody enter all the same.
        """
        definitions = self._engine.state.definitions
        known, peers = definitions.message_types.get(message_type), definitions.peers.values()
        is_shared = known is None or any(is_pattern(topic) or peer.takes(topic) for topic in known.topics for peer in peers)
        return self._is_searched(now_ms=now_ms) and not (is_shared and self._engine.liveness.restored)

    def _is_searched(self, *, now_ms: int) -> bool:
        are_compared = self._note_restored()
        return are_compared or not self._engine.state.definitions.peers or now_ms >= self._searched_at_latest_ms

    def are_awaited(self, command: object, *, now_ms: int) -> bool:
        """Return whether a command waits until peers were heard, or searched for messages that are lost here."""
        if isinstance(command, commands.Restored | commands.DrainTo):
            # They are to tell that it was restored, and which messages were claimed meanwhile.
            liveness = self._engine.liveness
            is_known = isinstance(command, commands.Restored) or liveness.restored is not None
            return not (liveness.is_searched if is_known else liveness.may_grant() and self._engine.state.returning is None)
        # Once it is known to be restored nothing enters until an operator says so, and a waiting call would wait for that person.
        return fixes_place(command) and not self._is_searched(now_ms=now_ms) and self._engine.liveness.restored is None

    def _note_restored(self) -> bool:
        """Note whether this journal is known to be restored; returns whether all peers that can be read were searched for that."""
        are_compared = self._pullers.are_compared()
        restored = self._pullers.restored()
        if restored is not None or are_compared:
            # A puller that begins anew knows nothing yet.
            self._engine.liveness.restored = restored
        return are_compared

    def changed(self, *, now_ms: int) -> None:
        """Obey an operator's statement about a peer or this journal: all are heard to their ends before anything is granted."""
        self._pullers.begin_anew()
        self._engine.liveness.restored, self._engine.liveness.is_searched = None, False
        self._hear_anew()
        self._compared.clear()
        self._engine.begin_return(joins=False, now_ms=now_ms)
        self._searched_at_latest_ms = now_ms + HEARS_MS

    def serve(self, call: Call, request: PullProgressQuery | ApplyPulled | wire.AskPeers, *, now_ms: int) -> Answer:
        """Answer a puller's question or a caller's about peers, or apply pulled records: in one commit."""
        if isinstance(request, wire.AskPeers):
            return Answer(reply=wire.PeersTold(peers=self.told(now_ms=now_ms)))
        if isinstance(request, PullProgressQuery):
            call.pulled = self._state(request.peer)
            return Answer(reply=replies.Done())
        if request.definitions is not self._engine.state.definitions or request.is_over():
            # It passed over records that the new ones, or an operator, asked for; another puller reads them by that.
            return Answer(reply=replies.Done())
        append = self._journal.append_pulled
        self._note_restored()
        try:
            if self._engine.liveness.restored is not None:
                # Messages that entered with it would stand before those that must still be parted from the lost ones.
                raise self._engine.liveness.restored
            self._refuse_twin(request)
            call.pulled = all(self._entrance.take_pulled(files, append, now_ms=now_ms) for files in request.files)
        except SparkQueueError as refusal:
            return Answer(reply=wire.failed(refusal))
        if not call.pulled:
            return Answer(reply=replies.Done())
        try:
            self._engine.pull(request.pulled, now_ms=now_ms)
        except JournalError as refusal:
            if refusal.code != "PEER_REFUSED":
                raise
            # It is this peer's trouble, and no reason to end the reign.
            _LOG.exception("Records of peer '%s' cannot be taken over.", request.pulled.peer)
            return Answer(reply=wire.failed(refusal))
        return Answer(reply=replies.Done())

    def _refuse_twin(self, request: ApplyPulled) -> None:
        """Refuse a peer whose journal is that of another one, or a copy of it: by its UUID both would be one origin."""
        state, peer = self._engine.state, request.pulled.peer
        for name, watermark in state.pulled.items():
            if name != peer and name in state.definitions.peers and watermark.journal == request.pulled.journal:
                path, found = state.definitions.peers[peer].journal, f"the journal of peer '{name}', or a copy of it"
                raise JournalError("PEER_MISNAMED", peer=peer, path=path, found=found)

    def _state(self, peer: str) -> PullState:
        state = self._engine.state
        held, standing = {}, {}
        for name, known in state.message_types.items():
            held[name] = known.held(state.journal_id)
            # To look through only where a publisher may have brought the same here; a list of them costs little.
            segments = tuple(known.segments) if known.publishers else ()
            standing[name] = Standing(segments=segments, highest=dict(known.publishers), until=known.entered_until)
        return PullState(
            journal=state.journal_id, watermark=state.pulled.get(peer), held=held, standing=standing,
            skips=peer in state.peer_changes.skips,
            instances={**state.instances, state.journal_id: str(state.definitions.journal.instance)},
            renewed=[each.origin for each in state.peer_changes.restorations], disagreements=state.disagreements.get(peer, ()),
        )  # fmt: skip
