"""A world in which coordinators have stand-ins: they hear wrongly, sleep, come late, and take over at any moment.

The watch, the claim and the renewal of advertisements are the product's; what a ping finds and what the store says of the
advertisement are chance, for as long as there is trouble.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spark_queue.coordinator.election import Candidate, ElectionPorts
from spark_queue.coordinator.standby import SILENCE_MS, STUCK_MS, Watch
from spark_queue.errors import JournalError
from spark_queue.protocol.connection import Presence
from spark_queue.protocol.discovery import RENEWAL_S, Advertisement, Advertiser
from tests.fake_clock import FakeClock
from tests.simulation.loop_node import START_MS, Node
from tests.simulation.loop_world import NESTED_MAX, LoopWorld

#: How long after the end of all trouble a stand-in reigns: the longest silence, and two looks.
TAKE_OVER_MOST_MS = STUCK_MS + SILENCE_MS


class StandIn:
    """One process that waits; where it wins, a coordinator of its host begins, and it waits behind that one."""

    def __init__(self, world: StandInWorld, host: str) -> None:
        self.world = world
        self.host = host
        self.clock = FakeClock(START_MS)
        self._watch: Watch | None = None
        self._silent_epoch = 0

    def step(self) -> None:
        """Look once, or do what the last look led to."""
        if self._watch is None:
            self._try()
        elif self._watch.is_silent():
            self._silent_epoch, self._watch = self._watch.holder.epoch, None

    def _try(self) -> None:
        node = self.world.begin(self.host, silent_epoch=self._silent_epoch)
        self._silent_epoch = 0
        if node is None:
            return
        if node.holder is not None:
            candidate = Candidate(
                journal_id=self.world.journal_id, path="p", host=self.host, address=f"grpc+tls://{self.host}:0", pid=1
            )
            self._watch = Watch(node.holder, candidate, self._around())

    def _around(self) -> ElectionPorts:
        return ElectionPorts(advertisements=self.world, ping=self.world.ping, clock=self.clock, pause=lambda _: None)


class StandInWorld(LoopWorld):
    """A world with two hosts, each with a coordinator that waits."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self._advertisement: bytes | None = None
        self._advertisers: list[tuple[Node, Advertiser]] = []
        self._renewed_at_ms = 0
        self.stand_ins = [StandIn(self, host) for host in ("a", "b")]

    def read(self, key: str) -> bytes | None:
        """Read the advertisement, as a store would."""
        if self.troubled and self.random.random() < 0.1:
            raise JournalError("STORE_FAILED", path="p", doing="reading", reason="away.", next_step="Wait.")
        return self._advertisement

    def write(self, key: str, data: bytes) -> None:
        """Write it, unless the store is away."""
        if self.troubled and self.random.random() < 0.2:
            raise JournalError("STORE_FAILED", path="p", doing="writing", reason="away.", next_step="Wait.")
        self._advertisement = data

    def delete(self, keys: Iterable[str]) -> None:
        """Take it away."""
        self._advertisement = None

    def ping(self, address: str, timeout_s: float) -> Presence:
        """Ask an address; a network in trouble loses half of what is asked."""
        if self.troubled and self.random.random() < 0.5:
            return self.random.choice((Presence.GONE, Presence.SILENT))
        lives = any(node.address == address and node.alive and node.loop is not None for node in self.nodes)
        return Presence.SERVES if lives else Presence.GONE

    def begin(self, host: str, *, silent_epoch: int) -> Node | None:
        """Let a stand-in read the log, and claim where it may; None where too many work already."""
        self.nodes = [node for node in self.nodes if node.alive or node.busy]
        if sum(node.alive for node in self.nodes) >= NESTED_MAX:
            return None
        node = Node(self, len(self.answers), host=host, silent_epoch=silent_epoch)
        if node.loop is not None:
            self.nodes.append(node)
            self._advertise(node)
        return node

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass; advertisements are renewed from threads of their own, also those of a zombie."""
        super().advance(elapsed_ms)
        for stand_in in self.stand_ins:
            stand_in.clock.advance(elapsed_ms)
        if self.elapsed_ms - self._renewed_at_ms >= RENEWAL_S * 1000:
            self._renewed_at_ms = self.elapsed_ms
            self._advertisers = [(node, advertiser) for node, advertiser in self._advertisers if node.alive]
            for _, advertiser in self._advertisers:
                advertiser._renew()

    def drain(self, *, rounds: int = 4_000) -> None:
        """Let a stand-in take over by itself once nobody serves, before everything reaches its end."""
        self.troubled = False
        for node in self.nodes:
            node.alive = False
        self.nodes, began_ms, epoch = [], self.elapsed_ms, self.epoch
        while not self.nodes:
            assert self.elapsed_ms - began_ms <= TAKE_OVER_MOST_MS, "nobody takes over"
            self.advance(1_000)
            for stand_in in self.stand_ins:
                stand_in.step()
        super().drain(rounds=rounds)
        assert self.epoch == epoch + 1, "one that serves is left alone"

    def _elect(self) -> None:
        """Mostly leave it to the stand-ins, which look at this moment or a little later."""
        if not self.troubled:
            # The drain has its coordinator already.
            self.nodes[-1].alive = True
        elif self.random.random() < 0.2:
            super()._elect()
        else:
            for _ in range(self.random.randint(1, 8)):
                self.random.choice(self.stand_ins).step()

    def _trouble(self) -> None:
        super()._trouble()
        if self.random.random() < 0.3:
            # Only one of them slept.
            self.random.choice(self.stand_ins).clock.advance(self.random.choice((4_000, 60_000)))

    def _advertise(self, node: Node) -> None:
        advertisement = Advertisement(
            journal=self.journal_id,
            address=node.address,
            host=node.host,
            host_name=node.host,
            epoch=node.epoch,
            pid=1,
            renewed_at_ms=0,
        )

        def end(_newer: Advertisement) -> None:
            node.alive = False

        advertiser = Advertiser(self, advertisement, wall_ms=lambda: START_MS + self.elapsed_ms, deposed=end)
        self._advertisers.append((node, advertiser))
        advertiser._renew()
