"""The port: the one method of Arrow Flight that calls come by, served by grpcio within bounds that hold for strangers, too."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from spark_queue.errors import CoordinatorError
from spark_queue.protocol import wire
from spark_queue.protocol.host import Bind

#: Most connections at one time; further ones are closed at once.
CONNECTIONS_MAX = 2_048

#: Descriptors that connections leave to the log, the journal's files and everything else.
DESCRIPTORS_KEPT = 512

#: Calls of one connection at one time; its caller waits with further ones.
STREAMS_MAX = 256

#: Threads that answer calls. A poll holds one for as long as it waits; a call that finds none free waits in line.
THREADS_MAX = 512

#: Calls that are answered or in line; further ones are refused.
CALLS_MAX = 4_096

#: How long a connection may be without a call, and how long its handshake may last, in milliseconds.
IDLE_MS = 60_000
HANDSHAKE_MS = 10_000

#: Room around an encoded request: a larger frame is refused by its first bytes, a smaller one by name.
_AROUND_BYTES = 64 * 1024
_SERVICE, _METHOD = "arrow.flight.protocol.FlightService", "DoAction"

#: Answers a call: given its message, which is read when it is asked for, as a Flight result.
Answer = Callable[[Iterator[bytes], Any], bytes]


def room_for_connections() -> int:
    """Raise the limit of descriptors as far as needed; return the number of connections that leaves enough for the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + DESCRIPTORS_KEPT
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, soft - min(DESCRIPTORS_KEPT, soft // 2))


def listen(bind: Bind, answer: Answer, *, connections_max: int) -> tuple[Any, int]:
    """Answer calls from now on; returns the server of the library, and the port."""
    address = bind.location()
    options = {
        # Two processes with one port would both be the journal's coordinator for some callers.
        "grpc.so_reuseport": 0,
        "grpc.max_allowed_incoming_connections": connections_max,
        "grpc.max_concurrent_streams": STREAMS_MAX,
        "grpc.max_connection_idle_ms": IDLE_MS,
        "grpc.server_handshake_timeout_ms": HANDSHAKE_MS,
        "grpc.max_receive_message_length": wire.FRAME_LIMIT_BYTES + _AROUND_BYTES,
        "grpc.max_send_message_length": -1,
        # Nothing is inflated: of the algorithms only the one that changes nothing.
        "grpc.compression_enabled_algorithms_bitset": 1,
        # Bytes that nobody has asked for yet stay within the first window of their stream, however fast they come.
        "grpc.http2.bdp_probe": 0,
    }
    server = grpc.server(_Threads(THREADS_MAX), options=tuple(options.items()), maximum_concurrent_rpcs=CALLS_MAX)
    # A stream of requests, though there is one: it is read when it is asked for. Of answers it would be one, too, and each would be
    # waited for until it has left.
    handlers = {_METHOD: grpc.stream_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    try:
        at = f"{bind.host}:{bind.port}"
        if bind.tls_cert is None or bind.tls_key is None:
            port = server.add_insecure_port(at)
        else:
            chain, key = Path(bind.tls_cert).read_bytes(), Path(bind.tls_key).read_bytes()
            port = server.add_secure_port(at, grpc.ssl_server_credentials(((key, chain),)))
    except (RuntimeError, OSError) as failure:
        # The library does not say the cause: nearly always somebody else listens there.
        raise CoordinatorError("ADDRESS_UNUSABLE", address=address, reason=f"{failure}.") from None
    server.start()
    return server, int(port)


class _Threads(ThreadPoolExecutor):
    """The threads that answer; where the host gives no further one, calls wait for those that are there."""

    def __init__(self, most: int) -> None:
        super().__init__(most, thread_name_prefix="call")
        # One there is from the start, or there is no coordinator.
        super().submit(int).result()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Put a call in line."""
        # The library counts a call until its future has ended, so the one that is returned must end also where none began at once.
        answered: Future[Any] = Future()

        def answer() -> None:
            try:
                answered.set_result(fn(*args, **kwargs))
            except BaseException as failure:  # noqa: BLE001 - the library logs it.
                answered.set_exception(failure)

        # It stands in line already when the thread is asked for; the library's own would end by this error, and serve nobody.
        with suppress(RuntimeError):
            super().submit(answer)
        return answered
