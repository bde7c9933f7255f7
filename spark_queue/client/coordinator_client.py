"""The calling side: find the journal's coordinator or start one, ask, and ask again after a failure until the time is over."""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import msgspec
import pyarrow as pa

from spark_queue import forks
from spark_queue.core import commands, replies
from spark_queue.core.definitions.keys import ADMINISTER, CHANGE
from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.journal.store import ADVERTISEMENT_KEY, Store
from spark_queue.protocol import user_files, wire
from spark_queue.protocol.connection import Connection, ConnectionLostError, Presence
from spark_queue.protocol.discovery import Advertisement, read_advertisement
from spark_queue.protocol.endpoint import LOCAL, Endpoint
from spark_queue.protocol.host import (
    StartOptions,
    host_id,
    is_loopback,
    keeps_secrets,
    location_of,
    tells_no_address,
    user_and_host,
)

_LOG = logging.getLogger(__name__)

#: How long one attempt waits for an answer beyond the long poll that it asked for, in seconds. A coordinator that is only
#: busy finds the same request again; a stopped one is left sooner.
ATTEMPT_S = 4.0

#: The same for new definitions, which may let everything that was ever published enter a new queue, and for filters, which
#: may have to read every message in a queue.
APPLY_ATTEMPT_S = 20.0

#: How long a nudge may take, in seconds; it only saves the coordinator a look at the log.
NUDGE_S = 1.0

#: How long a ping waits, in seconds.
PING_S = 1.0

#: How long a call goes on where its caller does not say, in seconds.
CALL_S = 30.0

#: How much longer it goes on while a coordinator is started here, or recovers, in seconds: that is no silence.
START_S = 60.0

#: The same where a stand-in may take over meanwhile, which it does within 20 s.
FOLLOW_S = 60.0

#: How long to wait before all addresses are tried again, in seconds.
SEARCH_S = 0.25

_PAUSE_S = (0.02, 0.1)

#: Refusals that say "not this coordinator, or not yet": the same request is sent again.
_PASSING = frozenset({"COORDINATOR_RECOVERING", "COORDINATOR_DEPOSED", "COORDINATOR_STANDS_BY"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRanges:
    """The reading plan of a lease: pieces of message files, oldest first.

    Columns of `pieces`: ``path STRING`` (relative to the message table), ``first_row BIGINT`` (row within the file), ``rows
    BIGINT``, ``bookmark BIGINT`` (of the first row), ``delivery_count INT``, ``cancel_count INT``, ``is_barrier BOOL``; of an
    instance ``origin STRING`` and ``origin_bookmark BIGINT`` (of the first row); where the queue has an order key ``keys
    ARRAY<UINT64>``, the hash of the key of each row, NULL for a row without one.
    """

    message_type: str
    lease: int
    leased_until_ms: int
    pieces: pa.Table = field(repr=False)


class CoordinatorClient:
    """Calls the coordinator of one journal, which may change between two calls. Safe to share between threads.

    Where `endpoint` has addresses, the one of them that serves is followed, and no coordinator is searched or started.

    A child that is forked after a call is refused: Flight would wait in it for threads that it does not have.
    """

    def __init__(self, store: Store, journal_id: str, *, endpoint: Endpoint = LOCAL, start: bool = True) -> None:
        self._store = store
        self._journal_id = journal_id
        self._endpoint = endpoint
        #: Chooses the one of several addresses that is tried next.
        self._turn = 0
        self._start = start
        self._connection: Connection | None = None
        self._is_ended = False
        self._finding = threading.Lock()

    def call(self, request: wire.AnyRequest, *, timeout_s: float | None = None) -> wire.AnyReply:
        """Send a request and return its reply.

        It is given the journal's id, and an id of its own where it has none. The same request is sent again when no answer
        comes, so it may arrive more than once; the coordinator answers a repeat as it answered the first.
        """
        return self._ask(request, timeout_s)[0]

    def rows(self, request: commands.Rows, *, timeout_s: float | None = None) -> RowRanges:
        """Ask for the rows of a lease."""
        reply, rows = self._ask(request, timeout_s)
        head, pieces = cast(replies.RowsOf, reply), pa.ipc.open_stream(rows).read_all()
        return RowRanges(message_type=head.message_type, lease=head.lease, leased_until_ms=head.leased_until_ms, pieces=pieces)

    def next_with_rows(self, request: commands.Next) -> tuple[replies.Granted, pa.Table | None]:
        """Ask for a lease, and return the pieces of its rows with the answer, as those of `rows`, where they came with it."""
        reply, rows = self._ask(request, None)
        return cast(replies.Granted, reply), pa.ipc.open_stream(rows).read_all() if rows else None

    def nudge(self, message_type: str, version: int | None = None) -> bool:
        """Tell the coordinator of a publish, at a version of its log, and return whether there is one to be told.

        It would find out by itself a little later, so nothing is raised.
        """
        is_known = False
        try:
            is_known = self._connection is not None or self._endpoint.addresses is not None
            is_known = is_known or read_advertisement(self._store, self._journal_id) is not None
            if is_known:
                self.call(wire.Nudge(message_type=message_type, log_version=version), timeout_s=NUDGE_S)
        except Exception as reason:  # noqa: BLE001  # The rows are published all the same, and the caller must learn that.
            _LOG.debug("The coordinator was not notified: %s", reason)
        return is_known

    def forget_past(self) -> None:
        """Delete an advertisement at whose address nobody serves the journal, as a backup has it."""
        if self._endpoint.addresses is None and self._advertised_address() is None:
            self._store.delete([ADVERTISEMENT_KEY])

    def close(self) -> None:
        """Let go of the connection; a later call opens a new one."""
        self._connection = None

    def end(self) -> None:
        """Let go of the connection for good: calls under way are not tried again, and start no coordinator."""
        self._is_ended = True
        self.close()

    def _ask(self, request: wire.AnyRequest, timeout_s: float | None) -> tuple[wire.AnyReply, bytes]:
        # Before any lock: another thread may have held it at the fork.
        forks.check_process()
        # Whoever says how long has reasons.
        grace_s = START_S if timeout_s is None and self._endpoint.addresses is None and self._start else 0.0
        if timeout_s is None:
            timeout_s = FOLLOW_S if "," in (self._endpoint.addresses or "") else CALL_S
        request = msgspec.structs.replace(
            request, journal=self._journal_id, request=request.request or uuid.uuid4().hex, asker=_asker(request)
        )
        deadline_s = time.monotonic() + timeout_s
        reason = ""
        while (left_s := deadline_s - time.monotonic()) > 0 and not self._is_ended:
            began_s = time.monotonic()
            connection = self._connect(deadline_s + grace_s)
            asked_s = time.monotonic()
            started_s = min(grace_s, asked_s - began_s)
            deadline_s, grace_s = deadline_s + started_s, grace_s - started_s
            attempt_s = _attempt_s(request)
            try:
                answer = connection.call(request, timeout_s=min(left_s, attempt_s))
            except ConnectionLostError as lost:
                # Silence in an attempt that the call's end cut short tells less than the failure before.
                if lost.presence is not Presence.SILENT or left_s >= attempt_s or not reason:
                    reason = f"{connection.address} did not answer: {lost}."
                self._lose(connection)
            else:
                reply = answer[0]
                if not (isinstance(reply, wire.Failed) and reply.code in _PASSING):
                    wire.raise_failed(reply)
                    return answer
                reason = f"{connection.address} answered {reply.code}."
                if reply.code == "COORDINATOR_STANDS_BY":
                    self._lose(connection)
                elif reply.code == "COORDINATOR_RECOVERING":
                    recovering_s = min(grace_s, time.monotonic() - asked_s)
                    deadline_s, grace_s = deadline_s + recovering_s, grace_s - recovering_s
            pause_s = random.uniform(*_PAUSE_S)  # noqa: S311  # Spreads callers; nothing secret depends on it.
            time.sleep(min(pause_s, max(0.0, deadline_s - time.monotonic())))
        raise self._unavailable(reason or "nobody answered.")

    def _connect(self, deadline_s: float) -> Connection:
        """Return the open connection, or find the coordinator; one thread searches while the others wait for it."""
        connection = self._connection
        if connection is not None:
            return connection
        if not self._finding.acquire(timeout=max(0.0, deadline_s - time.monotonic())):
            raise self._unavailable("another thread is still starting it.")
        try:
            if self._connection is None:
                self._connection = self._open(self._find(deadline_s))
            return self._connection
        finally:
            self._finding.release()

    def _lose(self, connection: Connection) -> None:
        # Not closed here: another thread may be inside a call on it. The last one to let go closes it.
        if self._connection is connection:
            self._connection = None
            self._turn += 1

    def _find(self, deadline_s: float) -> str:
        """Return an address that answered just now, starting a coordinator when there is none."""
        if self._endpoint.addresses is not None:
            addresses = self._endpoint.uris()
            return addresses[0] if len(addresses) == 1 else self._serving_of(addresses, deadline_s)
        address = self._advertised_address()
        if address is not None:
            return address
        if not self._start:
            raise self._unavailable("none is running, and this call does not start one.")
        try:
            with user_files.start_lock(self._journal_id, timeout_s=deadline_s - time.monotonic()):
                # The holder of the lock before has probably started one.
                return self._advertised_address() or self._launch(deadline_s)
        except OSError as failure:
            # A host without memory, descriptors or room on its disk may have them again.
            raise self._unavailable(f"this host could not start it: {failure}.") from failure

    def _serving_of(self, addresses: tuple[str, ...], deadline_s: float) -> str:
        """Return the address that serves, beginning after the one that was lost, and wait for a stand-in to take over."""
        while time.monotonic() < deadline_s:
            for _ in addresses:
                address = addresses[self._turn % len(addresses)]
                if self._serves(address):
                    return address
                self._turn += 1
            time.sleep(SEARCH_S)
        raise self._unavailable(f"none of {', '.join(addresses)} serves.")

    def _launch(self, deadline_s: float) -> str:
        # Most calls find a coordinator that serves.
        from spark_queue.client import launcher  # noqa: PLC0415 - as said above.

        store = self._store
        options = StartOptions(path=store.path, storage_options=dict(store.storage_options), journal_id=self._journal_id)
        while True:
            try:
                return launcher.launch(options, timeout_s=max(0.0, deadline_s - time.monotonic()))
            except CoordinatorError as refusal:
                # A caller on another host was faster: the next coordinator finds that one alive.
                if refusal.code != "COORDINATOR_DEPOSED" or time.monotonic() >= deadline_s:
                    raise
                _LOG.info("Lost an election: %s", refusal)

    def _advertised_address(self) -> str | None:
        advertised = read_advertisement(self._store, self._journal_id)
        try:
            if advertised is not None and _reachable(advertised) and self._serves(advertised.address):
                return advertised.address
        except ConfigError as refusal:
            if not tells_no_address(refusal):
                raise
        return None

    def _serves(self, address: str) -> bool:
        connection = self._open(address)
        try:
            return connection.ping(timeout_s=PING_S) is Presence.SERVES
        finally:
            connection.close()

    def _open(self, address: str) -> Connection:
        # A coordinator that was started here, too, may give the address of another one, which it found in the journal.
        token, is_found = partial(self._endpoint.token, self._store), self._endpoint.addresses is None
        check_sends = partial(self._endpoint.check_sends, self._store) if is_found else None
        return Connection(address, self._journal_id, location_of(self._store), token, check_sends)

    def _unavailable(self, reason: str) -> CoordinatorError:
        log = str(user_files.log_path(self._journal_id, location_of(self._store)))
        return CoordinatorError("COORDINATOR_UNAVAILABLE", path=self._store.path, reason=reason, log=log)


def call_once(
    store: Store,
    journal_id: str,
    request: wire.AnyRequest,
    *,
    endpoint: Endpoint = LOCAL,
    start: bool = True,
    timeout_s: float | None = None,
) -> wire.AnyReply:
    """Make one call, starting a coordinator when none answers, and let go of the connection."""
    client = CoordinatorClient(store, journal_id, endpoint=endpoint, start=start)
    try:
        return client.call(request, timeout_s=timeout_s)
    finally:
        client.close()


def _reachable(advertised: Advertisement) -> bool:
    # Loopback of another host would lead to a stranger here; where a token would cross the network in clear, none of ours listens.
    return keeps_secrets(advertised.address) and (advertised.host == host_id() or not is_loopback(advertised.address))


def _asker(request: wire.AnyRequest) -> commands.Asker | None:
    """Return the asker of a change, as the log names it where there are no principals; streams sign nothing."""
    if request.right not in (CHANGE, ADMINISTER):
        return None
    user, host = user_and_host()
    return commands.Asker(user=user, host=host)


def _attempt_s(request: wire.AnyRequest) -> float:
    if isinstance(request, commands.Next):
        return ATTEMPT_S + request.wait_ms / 1000
    return APPLY_ATTEMPT_S if request.is_long else ATTEMPT_S
