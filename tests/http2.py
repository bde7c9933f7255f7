"""What anybody can say to a port of gRPC without a library of it: HTTP/2 frames, for tests of what strangers cost."""

from __future__ import annotations

import contextlib
import socket
import struct
import zlib
from functools import cache

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM = _ACK = 1
_END_HEADERS = 4
_INITIAL_WINDOW_SIZE = 4

#: Bytes of the body of one frame.
_FRAME_BYTES = 16_000


class Stranger:
    """A connection of HTTP/2 to a port of gRPC.

    Parameters
    ----------
    port : int
        The port, on loopback.
    speaks : bool
        Whether it says more than nothing.

    Raises
    ------
    ConnectionError
        The other side ends the connection at once.
    """

    def __init__(self, port: int, *, speaks: bool = True) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30.0)
        self._next_stream = 1
        self._initial_window = self._window = 65_535
        self._windows: dict[int, int] = {}
        #: Streams that the other side has ended.
        self.ended: set[int] = set()
        if not speaks:
            return
        try:
            self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
            # Its settings come first.
            self._take_frame()
        except OSError:
            self.close()
            raise

    def begin(self, method: str, **headers: str) -> int:
        """Send the headers of a call, and nothing of its body; returns its stream."""
        path = f"/arrow.flight.protocol.FlightService/{method}"
        said = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "l", "te": "trailers"}
        said |= {"content-type": "application/grpc"} | {name.replace("_", "-"): value for name, value in headers.items()}
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        # Each as a literal that is not kept (RFC 7541, 6.2.2), so that no table is needed.
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in said.items())
        self._socket.sendall(_frame(_HEADERS, _END_HEADERS, stream, block))
        self._windows[stream] = self._initial_window
        return stream

    def ends(self, stream: int) -> bool:
        """Wait for the other side to end a stream; returns False where it does not."""
        with contextlib.suppress(OSError):
            while stream not in self.ended:
                self._take_frame()
        return stream in self.ended

    def send(self, stream: int, message: bytes, *, is_compressed: bool = False) -> int:
        """Send a message, as fast as the other side takes it, until it is gone or refused; returns how many bytes went."""
        body, sent = struct.pack(">BI", is_compressed, len(message)) + message, 0
        with contextlib.suppress(OSError):
            while sent < len(body) and stream not in self.ended:
                size = min(_FRAME_BYTES, self._window, self._windows[stream])
                if size <= 0:
                    self._take_frame()
                    continue
                part = body[sent : sent + size]
                sent += len(part)
                self._window -= len(part)
                self._windows[stream] -= len(part)
                self._socket.sendall(_frame(_DATA, _END_STREAM if sent == len(body) else 0, stream, part))
        return sent

    def _take_frame(self) -> None:
        head = self._take(9)
        size, kind, flags, stream = int.from_bytes(head[:3]), head[3], head[4], int.from_bytes(head[5:])
        body = self._take(size)
        if kind == _SETTINGS and not flags & _ACK:
            for name, value in struct.iter_unpack(">HI", body):
                if name == _INITIAL_WINDOW_SIZE:
                    self._windows = {each: left + value - self._initial_window for each, left in self._windows.items()}
                    self._initial_window = value
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._socket.sendall(_frame(_PING, _ACK, 0, body))
        elif kind == _WINDOW_UPDATE and stream == 0:
            self._window += int.from_bytes(body)
        elif kind == _WINDOW_UPDATE and stream in self._windows:
            self._windows[stream] += int.from_bytes(body)
        elif kind == _GOAWAY:
            self.ended |= set(self._windows)
        elif kind == _RST_STREAM or (kind == _HEADERS and flags & _END_STREAM):
            self.ended.add(stream)

    def _take(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            part = self._socket.recv(size - len(taken))
            if not part:
                raise ConnectionError
            taken += part
        return taken

    def is_closed(self, *, within_s: float) -> bool:
        """Return whether the other side ends the connection within so many seconds."""
        self._socket.settimeout(within_s)
        try:
            while self._socket.recv(65_536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        """Leave."""
        self._socket.close()


@cache
def inflating(action: str, size_bytes: int) -> bytes:
    """Return an action of Flight of so many zeros, as gzip makes it small."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = [packer.compress(_field(1, len(action)) + action.encode() + _field(2, size_bytes))]
    packed += [packer.compress(bytes(1 << 20)) for _ in range(size_bytes >> 20)]
    return b"".join([*packed, packer.flush()])


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + body


def _text(text: str) -> bytes:
    data = text.encode()
    assert len(data) < 127, "a longer one has its length in several bytes"
    return bytes((len(data),)) + data


def _field(number: int, size: int) -> bytes:
    told = bytes((number << 3 | 2,))
    while size > 127:
        told, size = told + bytes((size & 127 | 128,)), size >> 7
    return told + bytes((size,))
