"""The pullers of a simulated coordinator: real ones, whose threads go on when the world lets them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from spark_queue.coordinator.inbox import Call
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.core.definitions.keys import BEACON_PERIOD_MS
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.protocol import wire
from spark_queue.replication.beacon import BeaconThread, Hearing, read_beacon
from spark_queue.replication.exchange import ApplyPulled, EndedError, Heard, HeardPeer, PullProgressQuery, PullReport, PullState
from spark_queue.replication.peer_log import LogReplacedError
from spark_queue.replication.puller import Puller
from spark_queue.replication.pullers import is_unreadable
from spark_queue.replication.validation import Fit
from tests.simulation.loop_node import KilledError, Node

if TYPE_CHECKING:
    from tests.simulation.whole_instance import WholeInstance

#: What a puller may fail with where nothing but the store and the network misbehave, and where backups are put back.
_PASSING = frozenset({"STORE_FAILED", "JOURNAL_RESTORED", "PEER_RESTORED"})


class _WaitsError(Exception):
    """Another peer is compared first; the next step begins again."""


class InstancePullers:
    """Stands in for `replication.pullers.Pullers`: the same threads and the same beacon, a step at a time."""

    def __init__(self, instance: WholeInstance, node: Node) -> None:
        self.instance = instance
        self.node = node
        self.threads: dict[str, PullThread] = {}
        self._definitions: Definitions | None = None
        #: The definitions of peers, by name, as far as they were read.
        self.read: dict[str, Definitions] = {}
        self.hearing = Hearing()
        self.known: frozenset[str] = frozenset()
        self.shows_life = False
        self._gaps_ms: list[int | None] = []
        self.beacon = BeaconThread(instance.way(node), instance.name, self.hearing.newest, node.clock, self._gaps_ms)
        self._renewed_at_ms: int | None = None

    def keep(self, definitions: Definitions, known: frozenset[str], *, shows_life: bool) -> None:
        """Pull from the peers that are defined now, and from no others."""
        self.known, self.shows_life = known.union(definitions.peers), shows_life
        if definitions is not self._definitions:
            self._definitions, self.read = definitions, {}
            self.begin_anew()

    def look_soon(self) -> None:
        """Let each beacon be looked at when its puller takes its next step."""
        for thread in self.threads.values():
            thread.heard_at_ms = None

    def heard(self) -> Heard:
        """Return who lives, by what was heard of until now."""
        now_ms, seen_own = self.node.clock.monotonic_ms(), self.hearing.seen_own()
        peers = {
            name: HeardPeer(
                level_age_ms=None if thread.level_ms is None else now_ms - thread.level_ms,
                is_readable=not thread.is_unreadable(now_ms), seen_own=seen_own.get(name, -1),
            )
            for name, thread in self.threads.items()
        }  # fmt: skip
        return Heard(
            rises=self.hearing.rises(), peers=peers,
            look_age_ms=now_ms - min((thread.looked_ms for thread in self.threads.values()), default=now_ms),
            own_age_ms=self.beacon.age_ms(), own_number=self.beacon.number, own_gaps_ms=tuple(self._gaps_ms),
        )  # fmt: skip

    def pulled_here(self) -> dict[str, int | None]:
        """Return how far the peers that were read have pulled from here."""
        return {name: thread.pulled_here for name, thread in self.threads.items() if thread.is_read}

    def there(self, peer: str, message_type: str) -> dict[str, BitMap64]:
        """Return nothing: nobody drains."""
        return {}

    def reports(self) -> dict[str, PullReport]:
        """Return nothing: nobody asks."""
        return {}

    def restored(self) -> JournalError | None:
        """Return what tells that this journal was restored from a backup."""
        found = [thread.restored for thread in self.threads.values() if thread.restored is not None]
        return min(found, key=lambda each: int(str(each.facts["since"])), default=None)

    def are_compared(self) -> bool:
        """Return whether each peer that can be read was searched for what the own log has lost."""
        now_ms = self.node.clock.monotonic_ms()
        return self._definitions is not None and all(
            thread.is_compared or thread.is_unreadable(now_ms) for thread in self.threads.values()
        )

    def begin_anew(self) -> None:
        """Let each puller begin anew."""
        for thread in self.threads.values():
            thread.is_over = True
        definitions = self._definitions
        assert definitions is not None, "the loop has looked before"
        self.threads = {peer.name: PullThread(self, definitions, peer) for peer in definitions.peers.values()}

    def go_on(self) -> bool:
        """Let the beacon, and one of those who pull, take a step; returns whether a peer had something new."""
        idle = [thread for thread in self.threads.values() if not thread.is_busy]
        if self.node.busy or not self.node.alive:
            return False
        if self.shows_life and not self.threads:
            self._renew_beacon()
        return bool(idle) and self.step(self.instance.random.choice(idle))

    def go_on_all(self) -> bool:
        """Let all who pull take a step, one after the other."""
        found = [self.step(thread) for thread in self.threads.values()]
        return any(found)

    def step(self, thread: PullThread) -> bool:
        """Let one who pulls take a step; the process may end on the way."""
        try:
            self._renew_beacon()
            return thread.step()
        except KilledError:
            self.node.alive = False
            return False

    def _renew_beacon(self) -> None:
        now_ms = self.node.clock.monotonic_ms()
        if self._renewed_at_ms is None or now_ms >= self._renewed_at_ms + BEACON_PERIOD_MS:
            self._renewed_at_ms = now_ms
            self.beacon.renew()


class PullThread:
    """Pulls from one peer; after what went wrong it makes another puller."""

    def __init__(self, pullers: InstancePullers, definitions: Definitions, peer: PeerDefinition) -> None:
        self.is_busy = False
        #: Whether another one pulls from the peer now.
        self.is_over = False
        #: When the last step began that came to the end of the peer's log, and the last look at its beacon.
        self.level_ms: int | None = None
        self.looked_ms = 0
        #: Whether its log was searched for what the own log has lost, and what it has shown.
        self.is_compared = False
        self.restored: JournalError | None = None
        #: How far the peer has pulled from here, once it was read.
        self.is_read = False
        self.pulled_here: int | None = None
        self.trouble: SparkQueueError | None = None
        #: When the first of its failures in a row was.
        self.fails_since_ms = 0
        self._pullers = pullers
        self._node = pullers.node
        self._definitions = definitions
        self._peer = peer
        self._store = pullers.instance.way_to(peer.name, self._node)
        self._puller: Puller | None = None
        self.heard_at_ms: int | None = None

    def is_unreadable(self, now_ms: int) -> bool:
        """Return whether its peer cannot be read now; one that is being read can."""
        return not self.is_busy and is_unreadable(self.trouble, for_s=(now_ms - self.fails_since_ms) / 1_000)

    def step(self) -> bool:
        """Take over what is new; returns whether there was something."""
        self.is_busy, began_ms = True, self._node.clock.monotonic_ms()
        try:
            self._hear()
            self._puller = self._puller or self._make()
            step = self._puller.step()
        except EndedError:
            return False
        except (LogReplacedError, _WaitsError):
            self._puller = None
            return True
        except SparkQueueError as trouble:
            if trouble.code not in _PASSING:
                raise
            if self.trouble is None:
                self.fails_since_ms = self._node.clock.monotonic_ms()
            says = (trouble.code, trouble.facts.get("peer"))
            if isinstance(trouble, JournalError) and says == ("JOURNAL_RESTORED", self._peer.name):
                self.restored = trouble
            self._puller, self.trouble = None, trouble
            return False
        else:
            self.level_ms, self.trouble = began_ms if step.is_at_end else self.level_ms, None
            self.is_compared, self.restored = True, None
            self.is_read, self.pulled_here = True, step.pulled_here
            return step.found
        finally:
            self.is_busy = False

    def _hear(self) -> None:
        now_ms = self._node.clock.monotonic_ms()
        if self.heard_at_ms is not None and now_ms < self.heard_at_ms + BEACON_PERIOD_MS:
            return
        self.heard_at_ms, beacon = now_ms, read_beacon(self._store)
        if beacon is not None and beacon.instance == self._peer.name:
            known = self._pullers.known.union(*(each.peers for each in self._pullers.read.values()))
            self._pullers.hearing.hear(beacon, own=self._pullers.instance.name, own_number=self._pullers.beacon.number, known=known)
        self.looked_ms = now_ms

    def _make(self) -> Puller:
        return Puller(
            self._pullers.instance.way(self._node), self._store, self._definitions, self._peer,
            look=self._look, hand_over=self._hand_over, clock=self._node.clock,
            fit=Fit(self._definitions, self._peer, self._pullers.read), meet=self._meet,
        )  # fmt: skip

    def _meet(self) -> None:
        self.is_compared, self.restored = True, None
        if not self._pullers.are_compared():
            raise _WaitsError

    def _hand_over(self, pull: ApplyPulled) -> bool:
        return self._ask(replace(pull, is_over=lambda: self.is_over)) is True

    def _look(self) -> PullState:
        found = self._ask(PullProgressQuery(self._peer.name))
        assert isinstance(found, PullState)
        return found

    def _ask(self, request: PullProgressQuery | ApplyPulled) -> PullState | bool:
        """Ask the loop, as `coordinator.process` does; other calls may be served before, and the process may end."""
        # Its thread may wait for its turn, while another one takes over the same rows.
        self._pullers.instance.let_others_go_on()
        if self.is_over:
            raise EndedError
        call = Call(request, lambda: False)
        self._node.mailbox.append(call)
        while call.reply is None:
            if not self._node.alive:
                raise KilledError
            self._node.step()
        wire.raise_failed(call.reply)
        if call.pulled is None:
            raise EndedError
        return call.pulled
