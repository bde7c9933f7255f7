"""A coordinator from its start to its end: listen, be elected, say where, recover, serve (DESIGN 6).

After a doubt nothing of this process may be answered or written any more, so it ends by `os._exit`; the next start cleans up
what is to be cleaned, as it does anyway.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import platform
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from spark_queue import tracing
from spark_queue.clock import SystemClock
from spark_queue.coordinator.election import WATCH_S, Candidate, ElectionPorts, Reign, elect, election_ports
from spark_queue.coordinator.flight_port import room_for_connections
from spark_queue.coordinator.inbox import Call, ClosedError, Inbox
from spark_queue.coordinator.logins import CallerTokens
from spark_queue.coordinator.logs import RefusalLog
from spark_queue.coordinator.loop import Loop, ReignEndedError
from spark_queue.coordinator.recovery import recover
from spark_queue.coordinator.rights import refusal_ahead, translate_ahead
from spark_queue.coordinator.server import Admission, Server
from spark_queue.coordinator.standby import LOOK_S, Waiting, wait_to_reign
from spark_queue.core.deciding.session import heard_of
from spark_queue.errors import CoordinatorError, SparkQueueError
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import Store
from spark_queue.ports import Clock, JournalPort
from spark_queue.protocol import user_files, wire
from spark_queue.protocol.discovery import Advertisement, Advertiser, read_advertisement
from spark_queue.protocol.host import Bind, StartOptions, host_id, location_of
from spark_queue.replication.exchange import ApplyPulled, EndedError, PullProgressQuery, PullState
from spark_queue.replication.pullers import Pullers

if TYPE_CHECKING:
    from spark_queue.coordinator.metrics import ProcessMetrics


_LOG = logging.getLogger(__name__)

#: How long a good end waits for replies to leave, in seconds.
FAREWELL_S = 5.0

#: How long an end in doubt waits for the replies that say why, in seconds.
SHORT_FAREWELL_S = 0.5

#: How long a coordinator that cannot recover stays to tell callers why, in seconds.
REFUSAL_S = 2.0

#: Exit code after a doubt.
EXIT_DOUBT = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The parts of a coordinator that come from outside."""

    open_journal: Callable[[Store], JournalPort] = open_journal
    clock: Clock = field(default_factory=SystemClock)
    host: str = field(default_factory=host_id)
    #: Its metrics, if somebody asked for them.
    metrics: ProcessMetrics | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Post:
    """A process that listens, and its means to be elected."""

    store: Store
    server: Server
    admission: Admission
    logins: CallerTokens
    candidate: Candidate
    ports: ElectionPorts
    metrics: ProcessMetrics | None


def serve(options: StartOptions, announce: Callable[[str], None], environment: Environment | None = None) -> NoReturn:
    """Serve a journal until the coordinator is stopped or idle; the end of a won reign is the end of the process.

    `announce` is called once with the own address, when it is certain to serve; it may still be recovering.
    """
    around = environment or Environment()
    store = Store(options.path, options.storage_options)
    journal = around.open_journal(store)
    post = _listen(options, store, around)
    with _listening(post):
        reign = elect(journal.control, post.candidate, post.ports)
    _begin(reign, journal, post, announce, ends_idle=options.ends_idle)


def stand_by(
    options: StartOptions,
    announce: Callable[[str], None],
    waits: Callable[[str], None],
    told_to_end: threading.Event,
    environment: Environment | None = None,
) -> NoReturn:
    """Serve a journal as `serve` does, as soon as nobody else does; until then callers hear that this one stands by.

    `waits` is called once with the address of the coordinator that serves. The waiting ends by `told_to_end`, since an exception
    of a signal handler is lost where it meets a call of Flight.
    """
    around, waiting = environment or Environment(), Waiting(waits, told_to_end)
    store = Store(options.path, options.storage_options)
    post = None
    while post is None:
        try:
            post = _listen(options, store, around)
        except CoordinatorError as refusal:
            if refusal.code != "COORDINATOR_SERVES":
                raise
            # The one that serves has this very port, which is free when it ends.
            waiting.pause(str(refusal.facts["address"]))
    with _listening(post):
        reign, journal = wait_to_reign(lambda: around.open_journal(store), post.candidate, post.ports, waiting)
    _begin(reign, journal, post, announce, ends_idle=options.ends_idle)


@contextlib.contextmanager
def _listening(post: _Post) -> Iterator[None]:
    """Let no server stand behind a process that is not elected."""
    try:
        yield
    except BaseException:
        post.server.shutdown()
        raise


def _listen(options: StartOptions, store: Store, around: Environment) -> _Post:
    refusals = RefusalLog(count=None if around.metrics is None else around.metrics.refused)
    admission = Admission(path=store.path, journal_id=options.journal_id, refused=refusals.refused)
    # One that was started on demand has callers, which must have got their token from elsewhere.
    token = user_files.token(store=store, makes_named=not options.ends_idle)
    _refuse_own_port(options.bind, store, options.journal_id, around)
    logins = CallerTokens(token)
    server = Server(
        bind=options.bind, logins=logins, journal_id=options.journal_id, admission=admission, location=lambda: location_of(store),
        connections_max=room_for_connections(),
    )  # fmt: skip
    candidate = Candidate(
        journal_id=options.journal_id, path=store.path, host=around.host, address=server.address, pid=os.getpid(),
        accept_clock=options.accept_clock,
    )  # fmt: skip
    return _Post(
        store=store, server=server, admission=admission, logins=logins, candidate=candidate,
        ports=election_ports(store, options.journal_id, around.clock), metrics=around.metrics,
    )  # fmt: skip


#: After how many more objects the collector of cycles looks at new ones, and after how many looks at older ones. By default it
#: looks some times within each poll, now and then at all that is known of all queues: with 10,000 a sixth of the processor time.
_COLLECTOR = (50_000, 20, 20)


def _begin(reign: Reign, journal: JournalPort, post: _Post, announce: Callable[[str], None], *, ends_idle: bool) -> NoReturn:
    gc.set_threshold(*_COLLECTOR)
    candidate = post.candidate
    post.admission.claimed(reign.epoch)
    advertisement = Advertisement(
        journal=candidate.journal_id, address=candidate.address, host=candidate.host, host_name=platform.node(),
        epoch=reign.epoch, pid=candidate.pid, renewed_at_ms=0,
    )  # fmt: skip
    advertiser = Advertiser(post.store, advertisement, wall_ms=post.ports.clock.wall_ms, deposed=_end_deposed)
    # Before the starter goes on: callers that waited behind it must find the advertisement.
    advertiser.start()
    announce(candidate.address)
    _reign(reign, journal, post, advertiser, ends_idle=ends_idle)


def start_metrics(options: StartOptions) -> tuple[ProcessMetrics | None, str | None]:
    """Make the metrics of this process, None where nobody asks for them; and the address to scrape, if there is one."""
    if options.metrics is None and not tracing.is_configured("METRICS"):
        return None, None
    from spark_queue.coordinator import metrics  # noqa: PLC0415 - nobody else pays for it.

    return metrics.start(options)


def _refuse_own_port(bind: Bind, store: Store, journal_id: str, around: Environment) -> None:
    """Refuse to listen where the journal's coordinator does, in its own words: Flight would not name the owner of the port."""
    newest = read_advertisement(store, journal_id)
    if newest is None or (newest.host, newest.address) != (around.host, bind.location()):
        return
    if around.clock.wall_ms() - newest.renewed_at_ms < WATCH_S * 1000:
        with contextlib.suppress(OSError), socket.create_connection((bind.host, bind.port), timeout=LOOK_S):
            raise CoordinatorError("COORDINATOR_SERVES", path=store.path, address=newest.address)


def _reign(reign: Reign, journal: JournalPort, post: _Post, advertiser: Advertiser, *, ends_idle: bool) -> NoReturn:
    try:
        inbox = Inbox()
        _stop_on_signals(inbox)
        pullers = Pullers(post.store, partial(_ask, inbox), SystemClock())
        if post.metrics is not None:
            journal.control = post.metrics.measured(journal.control)
        loop = _recover(reign, journal, inbox, post.admission, pullers=pullers, ends_idle=ends_idle)
        post.logins.know(lambda: loop.engine.state.definitions)
        advertiser.know(lambda: heard_of(loop.engine.sessions))
        post.admission.open(
            inbox,
            lambda who, request: translate_ahead(loop.engine.state.definitions, who, request),
            lambda who, about: refusal_ahead(loop.engine.state.definitions, who, about, now_ms=reign.clock.now_ms()),
        )
        if post.metrics is not None:
            post.metrics.serves(open_journal(post.store), inbox)
        _LOG.info("Epoch %d serves %s at %s.", reign.epoch, journal.path, post.server.address)
        loop.run()
        for call in inbox.close():
            call.answer(None)
        advertiser.end()
        _LOG.info("Epoch %d ends cleanly.", reign.epoch)
        _exit(0, post.server, FAREWELL_S)
    except ReignEndedError:
        _LOG.exception("Epoch %d ends: a command failed halfway. The next coordinator recovers from the log.", reign.epoch)
        _exit(EXIT_DOUBT, post.server, SHORT_FAREWELL_S)
    except BaseException:  # noqa: BLE001  # Any doubt ends the process (DESIGN 3.5).
        _LOG.exception("Epoch %d ends in doubt. The next coordinator recovers from the log.", reign.epoch)
        _exit(EXIT_DOUBT)


def _ask(inbox: Inbox, request: PullProgressQuery | ApplyPulled) -> PullState | bool:
    call = Call(request, lambda: False)
    try:
        inbox.submit(call)
    except ClosedError:
        raise EndedError from None
    call.wait()
    if call.reply is not None:
        wire.raise_failed(call.reply)
    if call.pulled is None:
        raise EndedError
    return call.pulled


def _recover(reign: Reign, journal: JournalPort, inbox: Inbox, admission: Admission, *, pullers: Pullers, ends_idle: bool) -> Loop:
    try:
        return recover(reign, journal, inbox, pullers=pullers, ends_idle=ends_idle)
    except SparkQueueError as trouble:
        # The next coordinator would fail in the same way, so callers hear why before this one ends.
        admission.refuse(trouble)
        time.sleep(REFUSAL_S)
        raise


def _stop_on_signals(inbox: Inbox) -> None:
    def stop(number: int, _frame: Any) -> None:
        _LOG.info("Stopping on signal %d.", number)
        try:
            inbox.submit(Call(wire.Stop(journal="", request="signal"), lambda: False))
        except ClosedError:
            _LOG.info("It is ending already.")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _end_deposed(newer: Advertisement) -> None:
    _LOG.error("Epoch %d has begun at %s; this reign is over.", newer.epoch, newer.address)
    _exit(EXIT_DOUBT)


def _exit(code: int, server: Server | None = None, farewell_s: float = 0.0) -> NoReturn:
    if server is not None:
        server.shutdown(farewell_s)
    logging.shutdown()
    os._exit(code)
