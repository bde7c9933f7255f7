"""Connections that the page keeps: a bounded number, and first of all those that are being answered."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Most connections at one time. Where one more comes, the one that has waited longest for its request makes room.
CONNECTIONS_MAX = 256

#: Connections that are accepted in one go, before those that were ended have closed.
BACKLOG = 64


class BoundedListener(socket.socket):
    """A socket that listens, and knows which of its connections have not brought a request."""

    def __init__(self, listening: socket.socket) -> None:
        super().__init__(listening.family, listening.type, listening.proto, fileno=listening.detach())
        self._open: dict[int, _Connection] = {}
        #: Those that have brought no request, or whose answer is complete; the one that did so longest ago first.
        self._waiting: dict[int, _Connection] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and end another one where there are too many."""
        taken, address = super().accept()
        if len(self._open) >= CONNECTIONS_MAX and not self._end_one():
            taken.close()
            raise ConnectionAbortedError
        connection = _Connection(self, taken)
        number = connection.fileno()
        self._open[number] = self._waiting[number] = connection
        return connection, address

    def note(self, number: int, *, is_answered: bool) -> None:
        """Note whether a connection is being answered now."""
        if is_answered:
            self._waiting.pop(number, None)
        elif number in self._open:
            self._waiting.setdefault(number, self._open[number])

    def forget(self, connection: _Connection) -> None:
        """Note that a connection ends; its number may belong to another one when it is said again."""
        if self._open.get(connection.fileno()) is connection:
            del self._open[connection.fileno()]
            self._waiting.pop(connection.fileno(), None)

    def _end_one(self) -> bool:
        for connection in self._waiting.values():
            self.forget(connection)
            with suppress(OSError):
                # Below TLS: it may wait for the handshake. Its server meets the end, and closes it.
                connection.shutdown(socket.SHUT_RDWR)
            return True
        return False


class _Connection(socket.socket):
    """A connection that notes its end with its listener."""

    def __init__(self, listener: BoundedListener, taken: socket.socket) -> None:
        super().__init__(taken.family, taken.type, taken.proto, fileno=taken.detach())
        self._listener = listener

    def close(self) -> None:
        self._listener.forget(self)
        super().close()


class BoundedProtocol(H11Protocol):
    """HTTP over a connection of a `BoundedListener`, with which it notes requests and answers."""

    def __init__(self, listener: BoundedListener, **given: Any) -> None:
        super().__init__(**given)
        self._listener = listener
        self._number = -1

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # As in uvicorn.
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._number = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        """Pass a part of a request on, and note whether the request is complete."""
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._note()

    def _note(self) -> None:
        # None until the first request, against its type.
        request: Any = self.cycle
        is_whole = request is not None and not request.more_body
        self._listener.note(self._number, is_answered=is_whole and not request.response_complete)
