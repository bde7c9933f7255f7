"""The pullers of a coordinator: one thread for each peer that is defined, as long as it is (DESIGN 17.3)."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from pyroaring import BitMap64

from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal.store import Store
from spark_queue.ports import Clock
from spark_queue.replication.beacon import RENEWAL_S, Beacon, BeaconThread, Hearing, read_beacon
from spark_queue.replication.exchange import (
    HEARS_MS,
    ApplyPulled,
    EndedError,
    Heard,
    HeardPeer,
    PullProgressQuery,
    PullReport,
    PullState,
    Step,
    may_pass,
)
from spark_queue.replication.peer_log import LogReplacedError
from spark_queue.replication.peer_process import Reader
from spark_queue.replication.peer_stores import peer_store
from spark_queue.replication.sandbox import SandboxedPuller

_LOG = logging.getLogger(__name__)

#: Longest pause after failures, in seconds.
_PAUSE_S = 30.0

#: How long a peer may fail before it counts as one that cannot be read, in seconds: a store may fail once.
_PASSES_WITHIN_S = 5.0

#: How long those who were compared wait between looks at the others, in seconds.
_MEETING_S = 0.02

#: How long whoever asks what a peer has may take to ask again, in seconds: until then each step tells it anew.
_ASKED_AGAIN_S = 30


def is_unreadable(trouble: BaseException | None, *, for_s: float) -> bool:
    """Return whether a peer cannot be read that has been in trouble for some time."""
    return trouble is not None and (for_s >= _PASSES_WITHIN_S or not may_pass(trouble))


class Pullers:
    """Pulls from the peers of a journal.

    What is asked is given to the loop, which answers; `EndedError` is raised where there is no loop any more.
    """

    def __init__(self, own: Store, ask: Callable[[PullProgressQuery | ApplyPulled], PullState | bool], clock: Clock) -> None:
        self.own = own
        self.ask = ask
        self._clock = clock
        self._definitions: Definitions | None = None
        #: The definitions of peers, by name, as far as they were read.
        self.read: dict[str, Definitions] = {}
        self._beacon: BeaconThread | None = None
        self._hearing = Hearing()
        #: How long the own beacon was not written; see `BeaconThread`.
        self._gaps: list[int | None] = []
        #: The instances that the own log tells of.
        self._known: frozenset[str] = frozenset()
        self._threads: dict[str, _PullThread] = {}

    def keep(self, definitions: Definitions, known: frozenset[str], *, shows_life: bool) -> None:
        """Pull from the peers that are defined now, and from no others, and hear of them and of the instances that are known.

        `shows_life` says whether the own beacon is written: others may count on this instance also where it names none of them
        any more.
        """
        self._known = known
        if definitions is self._definitions:
            return
        self._definitions, self.read = definitions, {}
        self._replace(definitions)
        if self._beacon is not None:
            self._beacon.end()
            self._beacon = None
        if shows_life and definitions.journal.instance is not None:
            self._beacon = BeaconThread(self.own, definitions.journal.instance, self._hearing.newest, self._clock, self._gaps)
            self._beacon.start()

    def _replace(self, definitions: Definitions) -> None:
        for thread in self._threads.values():
            thread.end()
        self._threads = {peer.name: _PullThread(self, definitions, peer) for peer in definitions.peers.values()}
        # Once all are known: each waits for all others.
        for thread in self._threads.values():
            thread.start()

    def restored(self) -> JournalError | None:
        """Return what tells that this journal was restored from a backup: a peer has pulled what its log does not have."""
        # Each is looked at once, since its thread may take it back between two looks.
        shown = [thread.restored for thread in self._threads.values()]
        found = [each for each in shown if each is not None]
        return min(found, key=lambda each: int(str(each.facts["since"])), default=None)

    def begin_anew(self) -> None:
        """Let each puller begin anew, and at once: what kept it from pulling may be over."""
        if self._definitions is not None:
            self._replace(self._definitions)

    def pulled_here(self) -> dict[str, int | None]:
        """Return the last record of the own journal that each peer has pulled, as far as it was read; see `Liveness`."""
        return {peer: thread.last.pulled_here for peer, thread in self._threads.items() if thread.last is not None}

    def there(self, peer: str, message_type: str) -> Mapping[str, BitMap64] | None:
        """Return what a peer has, as far as it was read; see `Liveness`."""
        held = self._threads[peer].held() if peer in self._threads else None
        return None if held is None else held.get(message_type, {})

    def look_soon(self) -> None:
        """Let the beacons be looked at now."""
        for thread in self._threads.values():
            thread.is_to_look.set()

    def heard(self) -> Heard:
        """Return who lives, by what was heard of until now."""
        threads, now_s, seen_own = dict(self._threads), time.monotonic(), self._hearing.seen_own()
        # Asked before what was seen: that may be newer.
        looked_s = min((thread.looked_s() for thread in threads.values()), default=now_s)
        peers = {
            name: HeardPeer(
                level_age_ms=None if thread.level_s is None else round((now_s - thread.level_s) * 1_000),
                is_readable=not thread.is_unreadable(),
                seen_own=seen_own.get(name, -1),
            )
            for name, thread in threads.items()
        }
        beacon = self._beacon
        own_age_ms, own_number = (None, None) if beacon is None else (beacon.age_ms(), beacon.number)
        return Heard(
            rises=self._hearing.rises(), look_age_ms=round((now_s - looked_s) * 1_000), peers=peers,
            own_age_ms=own_age_ms, own_number=own_number, own_gaps_ms=tuple(self._gaps),
        )  # fmt: skip

    def are_compared(self) -> bool:
        """Return whether the log of each peer that can be read was searched for what the own log has lost; see `restored`."""
        return self._definitions is not None and all(
            thread.has_shown() or thread.is_unreadable() for thread in self._threads.values()
        )

    def reports(self) -> dict[str, PullReport]:
        """Return how each peer is pulled, by name."""
        return {name: replace(thread.report, is_compared=thread.has_shown()) for name, thread in self._threads.items()}

    def hear(self, beacon: Beacon, *, own: str) -> str | None:
        """Take a beacon of a peer, by the name of this instance; returns what of it is not believed."""
        of_peers = (each.peers for each in list(self.read.values()))
        own_number = None if self._beacon is None else self._beacon.number
        return self._hearing.hear(beacon, own=own, own_number=own_number, known=self._known.union(self._threads, *of_peers))


class _PullThread(threading.Thread):
    """Runs a puller until it is told to end; after what went wrong it makes another, ever later."""

    def __init__(self, pullers: Pullers, definitions: Definitions, definition: PeerDefinition) -> None:
        super().__init__(name=f"pull-{definition.name}", daemon=True)
        self._pullers = pullers
        self._definitions = definitions
        self._definition = definition
        self._reader = Reader(definition.name)
        self._doubt: JournalError | None = None
        self._peer = definition.name
        self._told_to_end = threading.Event()
        self.report = PullReport()
        #: When the last step began that came to the end of the peer's log, by the monotonic clock; None before the first.
        self.level_s: float | None = None
        self.is_to_look = threading.Event()
        #: When the look at the beacon began that is under way, and the last one that has ended: none, at first.
        self._looks_s: float | None = None
        self._looked_s = 0.0
        #: Whether its log was searched for what the own log has lost, and what it has shown, until it shows it no more.
        self.is_compared = False
        self.restored: JournalError | None = None
        #: Whether a step goes on.
        self._is_stepping = False
        #: When the first of its failures in a row was, by the monotonic clock.
        self.fails_since_s = 0.0
        #: The last step that did not fail, and until when each is to tell what the peer has, by the monotonic clock.
        self.last: Step | None = None
        self._tells_held_until_s = 0.0

    def held(self) -> Mapping[str, Mapping[str, BitMap64]] | None:
        """Return what the peer had at the last step, by message type and origin; None where the steps from now on will tell."""
        self._tells_held_until_s = time.monotonic() + _ASKED_AGAIN_S
        return None if self.last is None else self.last.held

    def end(self) -> None:
        """Let it end after what it does."""
        self._told_to_end.set()
        self.is_to_look.set()

    def looked_s(self) -> float:
        """Return when the last look at the beacon began; one that gets no answer for a period has shown that there is none."""
        return time.monotonic() - RENEWAL_S if self._hangs() else self._looked_s

    def _hangs(self) -> bool:
        began_s = self._looks_s
        return began_s is not None and began_s < time.monotonic() - RENEWAL_S

    def check(self) -> None:
        """Raise `EndedError` once it is told to end: another may be pulling from the same peer."""
        if self.is_told_to_end():
            raise EndedError

    def is_told_to_end(self) -> bool:
        """Return whether it was told to end."""
        return self._told_to_end.is_set()

    def is_unreadable(self) -> bool:
        """Return whether its peer cannot be read now; one that is being read can, whatever became of the last step that ended."""
        # Where a look at its beacon gets no answer either, what goes on is no reading.
        fails_s = time.monotonic() - self.fails_since_s
        return self._hangs() or (not self._is_stepping and is_unreadable(self.report.trouble, for_s=fails_s))

    def has_shown(self) -> bool:
        """Return whether its peer's log was searched, or has shown something that the own log has lost."""
        return self.is_compared or self.restored is not None

    def run(self) -> None:
        """Pull, wait, and pull again."""
        threading.Thread(target=self._listen, name=f"beacon-of-{self._peer}", daemon=True).start()
        try:
            self._pull()
        finally:
            self._reader.close()

    def _find(self) -> Store:
        """Return the peer's store, with the options of now."""
        return peer_store(self._pullers.own, self._definition)

    def _made(self) -> SandboxedPuller:
        return SandboxedPuller(
            self._reader, self._pullers.own, self._find(), self._definitions, self._definition,
            look=self._look, hand_over=self._hand_over, read=self._pullers.read, meet=self._meet,
        )  # fmt: skip

    def _look(self) -> PullState:
        self.check()
        found = self._pullers.ask(PullProgressQuery(self._peer))
        assert isinstance(found, PullState), "a look is answered with what it asks for"
        return found

    def _hand_over(self, pull: ApplyPulled) -> bool:
        self.check()
        taken = self._pullers.ask(replace(pull, is_over=self.is_told_to_end)) is True
        if taken:
            self.report.count(pull)
        return taken

    def _meet(self) -> None:
        self.is_compared, self.restored = True, None
        until_s = time.monotonic() + HEARS_MS / 1_000
        while not self._pullers.are_compared() and time.monotonic() < until_s:
            self.check()
            time.sleep(_MEETING_S)

    def _pull(self) -> None:
        puller, failures = None, 0
        while not self.is_told_to_end():
            try:
                puller = puller or self._made()
                began_s, self._is_stepping = time.monotonic(), True
                self.last = puller.step(tells_held=began_s < self._tells_held_until_s)
                # What is wrong with one message type, or with a beacon, keeps nothing else from being pulled.
                self.level_s = began_s if self.last.is_at_end else self.level_s
                self.report.trouble, failures = self.last.trouble or self._doubt, 0
                self.is_compared, self.restored = True, None
            except EndedError:
                return
            except LogReplacedError:
                puller = None
                continue
            except BaseException as trouble:  # noqa: BLE001  # Also a panic of delta-rs: a thread that ended would count as level.
                if str(trouble) != str(self.report.trouble):
                    _LOG.warning("Peer '%s' is not pulled: %s", self._peer, trouble)
                if failures == 0:
                    self.fails_since_s = time.monotonic()
                if isinstance(trouble, JournalError) and trouble.code == "JOURNAL_RESTORED" and trouble.facts["peer"] == self._peer:
                    # What fails after it takes nothing of that back. What others have shown keeps this one from being taken, too.
                    self.restored = trouble
                puller, self.report.trouble, failures = None, trouble, failures + 1
            finally:
                self._is_stepping = False
            self._told_to_end.wait(min(_PAUSE_S, self._definition.pull_interval_ms / 1_000 * 2 ** min(failures, 10)))

    def _listen(self) -> None:
        """Look at the peer's beacon now and then, whatever pulling does: a long copy, or a pause, is no silence of the peer."""
        while not self.is_told_to_end():
            self.is_to_look.clear()
            self._looks_s = began_s = time.monotonic()
            # A store that cannot be found keeps it from being pulled, too, which says why.
            with contextlib.suppress(SparkQueueError, OSError):
                beacon = read_beacon(self._find())
                if beacon is not None and beacon.instance == self._peer:
                    self._hear(beacon)
            # As often as ever: a look that takes long, in which others may have missed it, is no gap.
            now_s = time.monotonic()
            self._looked_s, self._looks_s = max(began_s, now_s - RENEWAL_S), None
            self.is_to_look.wait(max(0, began_s + RENEWAL_S - now_s))

    def _hear(self, beacon: Beacon) -> None:
        reason = self._pullers.hear(beacon, own=str(self._definitions.journal.instance))
        doubt = None if reason is None else JournalError("BEACON_DOUBTED", peer=self._peer, reason=reason)
        if doubt is not None and str(doubt) != str(self._doubt):
            _LOG.warning("%s", doubt)
        self._doubt = doubt
