"""Reading one peer in a process of its own: its files cost no more than that process may have, whatever they are (DESIGN 17.3).

The process runs the puller. What that asks of the journal, and hands over, comes through a pipe, checked against its types; bytes
of the peer do not. Where the process dies, what it was reading is refused.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from spark_queue import allocator
from spark_queue.clock import SystemClock
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.errors import SparkQueueError
from spark_queue.journal.store import Store
from spark_queue.replication.exchange import ApplyPulled, PullState, Step
from spark_queue.replication.peer_files import refused
from spark_queue.replication.peer_log import LogReplacedError
from spark_queue.replication.peer_process import (
    ENCODER,
    Answers,
    Asks,
    HandsOver,
    Looks,
    Meets,
    Opens,
    Raised,
    Reader,
    Replaced,
    Said,
    Stepped,
    WantsStep,
)

if TYPE_CHECKING:
    from spark_queue.replication.puller import Puller

_LOG = logging.getLogger(__name__)


class SandboxedPuller:
    """A `Puller` in the process of a `Reader`."""

    def __init__(
        self, reader: Reader, own: Store, peer: Store, definitions: Definitions, definition: PeerDefinition, *,
        look: Callable[[], PullState], hand_over: Callable[[ApplyPulled], bool], read: dict[str, Definitions],
        meet: Callable[[], None],
    ) -> None:  # fmt: skip
        self._reader = reader
        self._begins: tuple[Store, Store, Mapping[str, Any], str] | None = (own, peer, dict(definitions.stored), definition.name)
        self._name = definition.name
        self._definitions = definitions
        self._look = look
        self._hand_over = hand_over
        self._read = read
        self._meet = meet
        #: What the process was told of other peers' definitions.
        self._told: dict[str, Definitions] = {}

    def step(self, *, tells_held: bool = False) -> Step:
        """Take over what the peer has committed since the last step; see `Puller`."""
        read = {name: each for name, each in list(self._read.items()) if name != self._name}
        others = {name: dict(each.stored) for name, each in read.items() if self._told.get(name) is not each}
        self._told = read
        self._reader.send(WantsStep(self._begins, others, tells_held))
        while True:
            said = self._reader.receive()
            if isinstance(said, Stepped):
                break
            self._reader.send(self._answer(said))
        self._begins = None
        if said.definitions is not None:
            self._read[self._name] = parsing.parse(said.definitions)
        return said.step

    def _answer(self, asked: Said) -> object:
        try:
            match asked:
                case Looks():
                    return self._look()
                case HandsOver(pulled=pulled, files=files):
                    return self._hand_over(ApplyPulled(pulled=pulled, definitions=self._definitions, files=files))
                case _:
                    return self._meet()
        except BaseException:
            # It waits for an answer that nobody gives any more.
            self._reader.close()
            raise


class _TellingStore(Store):
    """The peer's store, whose every use is told before it begins, and may take as long as any."""

    tell: Callable[[str], None]

    @contextlib.contextmanager
    def failures(self, doing: str, *, next_step: str = "Check the store, then try again.") -> Iterator[None]:
        """Tell what begins; see `Store`."""
        type(self).tell(doing)
        with super().failures(doing, next_step=next_step):
            yield


class _Served:
    """The journal, as the puller in the process meets it."""

    def __init__(self, pipe: Connection, memory_bytes: int, cpu_s: int) -> None:
        self._pipe = pipe
        self._memory_bytes = memory_bytes
        self._cpu_s = cpu_s
        self._puller: Puller | None = None
        self._name = ""
        self._read: dict[str, Definitions] = {}
        self._told: Definitions | None = None
        self._doing = "its journal"
        _TellingStore.tell = self._tell

    def serve(self) -> None:
        """Do one thing after the other, until nobody asks for any more."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                self._say(self._done(self._pipe.recv()))

    def _done(self, asked: WantsStep | Asks) -> Said:
        try:
            if isinstance(asked, WantsStep):
                return self._step(asked)
            self._name, store = asked.peer, _TellingStore(asked.store.path, asked.store.storage_options)
            return Answers(msgspec.Raw(ENCODER.encode(asked.read(store, *asked.given))))
        except LogReplacedError:
            return Replaced()
        except SparkQueueError as reason:
            return Raised(reason)
        except MemoryError:
            return Raised(refused(self._name, self._doing, f"that takes more than {self._memory_bytes // 1024**2} MiB of memory"))
        except Exception as reason:  # noqa: BLE001  # Whatever it is, it is this peer's trouble.
            _LOG.exception("Reading peer '%s' raised.", self._name)
            return Raised(None, f"{reason!r:.500}")

    def _step(self, asked: WantsStep) -> Stepped:
        if asked.begins is not None:
            self._begin(*asked.begins)
        assert self._puller is not None, "it was begun"
        self._read.update((name, parsing.parse(stored)) for name, stored in asked.others.items())
        step, newest = self._puller.step(tells_held=asked.tells_held), self._read.get(self._name)
        is_new, self._told = newest is not self._told, newest
        return Stepped(step, dict(newest.stored) if newest is not None and is_new else None)

    def _begin(self, own: Store, peer: Store, stored: Mapping[str, Any], name: str) -> None:
        # Who asks for less than all of it need not load what copies.
        from spark_queue.replication.puller import Puller  # noqa: PLC0415 - as said above.
        from spark_queue.replication.validation import Fit  # noqa: PLC0415 - as said above.

        definitions = parsing.parse(stored)
        self._name, self._read, self._told = name, {}, None
        self._puller = Puller(
            own, _TellingStore(peer.path, peer.storage_options), definitions, definitions.peers[name], look=self._look,
            hand_over=self._hand_over, clock=SystemClock(), fit=Fit(definitions, definitions.peers[name], self._read),
            meet=self._wait_for_others,
        )  # fmt: skip

    def _look(self) -> PullState:
        found = self._ask(Looks())
        assert isinstance(found, PullState), "a look is answered with what it asks for"
        return found

    def _wait_for_others(self) -> None:
        self._ask(Meets())

    def _hand_over(self, pull: ApplyPulled) -> bool:
        return self._ask(HandsOver(pull.pulled, tuple(pull.files))) is True

    def _ask(self, what: Said) -> object:
        self._say(what)
        return self._pipe.recv()

    def _tell(self, doing: str) -> None:
        renew_time(self._cpu_s)
        if doing != self._doing:
            self._doing = doing
            self._say(Opens(doing))

    def _say(self, what: Said) -> None:
        try:
            self._pipe.send_bytes(ENCODER.encode(what))
        except (BrokenPipeError, ConnectionResetError):
            # Who asked is gone.
            raise SystemExit from None


def renew_time(cpu_s: int) -> None:
    """Let this process take so much processor time from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _bound(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + cpu_s)


def limit(memory_bytes: int, files_most: int) -> None:
    """Bound what this process may have, as far as the system knows such limits: macOS knows none of memory that holds."""
    with contextlib.suppress(ValueError, OSError):
        _bound(resource.RLIMIT_DATA, memory_bytes)
    _bound(resource.RLIMIT_NOFILE, files_most)
    _bound(resource.RLIMIT_CORE, 0)
    # Whoever serves others on this host comes first, also where memory is short; not every system lets a process say so.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with contextlib.suppress(OSError):
        os.nice(5)


def _bound(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main() -> None:
    """Read a peer; the arguments are the descriptor of the pipe, and most bytes of memory, seconds and open files."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    allocator.leave_pandas_out()
    descriptor, memory_bytes, cpu_s, files_most = map(int, sys.argv[1:])
    with Connection(descriptor) as pipe:
        limit(memory_bytes, files_most)
        _Served(pipe, memory_bytes, cpu_s).serve()
