"""The process that reads one peer, seen from the coordinator: its messages, and the pipe they come by."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import msgspec
from pyroaring import BitMap64

from spark_queue.core.deciding.instances.replicating import Pulled
from spark_queue.errors import SparkQueueError, error
from spark_queue.journal.store import Store
from spark_queue.ports import PulledFiles
from spark_queue.replication.exchange import Step
from spark_queue.replication.peer_files import refused
from spark_queue.replication.peer_log import LogReplacedError

_LOG = logging.getLogger(__name__)

#: Most memory that reading a peer takes, in bytes; a row group of ours has 128 MiB, and is in memory some times over.
MEMORY_BYTES = 2 * 1024**3

#: Most processor time between two files that are opened, in seconds: a chunk of a log, or a row group, takes some.
CPU_S = 60

#: Longest silence of the process while it is awaited, in seconds: it says what it opens, and a store that hangs keeps it for ever.
SILENT_S = 600.0

#: Silence after which it is told that the process may have been stopped, in seconds.
QUIET_S = 30.0

#: Most files that are open at once.
FILES_MOST = 512

#: Most bytes of one thing that is handed over.
HANDED_BYTES = 64 * 1024**2


class Opens(msgspec.Struct, tag=True, frozen=True):
    """The process begins to do something with the peer's store, as errors say it."""

    doing: str


class Looks(msgspec.Struct, tag=True, frozen=True):
    """It asks for the `PullState`."""


class Meets(msgspec.Struct, tag=True, frozen=True):
    """It asks to wait until other peers are compared."""


class HandsOver(msgspec.Struct, tag=True, frozen=True):
    """It asks whether what it has read is taken."""

    pulled: Pulled
    files: tuple[PulledFiles, ...]


class Stepped(msgspec.Struct, tag=True, frozen=True):
    """A step has ended."""

    step: Step
    #: The peer's newest definitions, as they are stored, where they are others than before.
    definitions: dict[str, Any] | None


class Raised(msgspec.Struct, tag=True, frozen=True):
    """It has raised an error of ours, or another one, of which there is a text."""

    reason: SparkQueueError | None
    text: str = ""


class Replaced(msgspec.Struct, tag=True, frozen=True):
    """A step has found another log than it was reading."""


class Answers(msgspec.Struct, tag=True, frozen=True):
    """An answer to what was asked of it once, encoded."""

    value: msgspec.Raw


Said = Opens | Looks | Meets | HandsOver | Stepped | Raised | Replaced | Answers


@dataclass(frozen=True, slots=True)
class WantsStep:
    """The process is to take a step: what its puller is made of, where it has none, and what others have read since."""

    begins: tuple[Store, Store, Mapping[str, Any], str] | None
    others: Mapping[str, Mapping[str, Any]]
    tells_held: bool


@dataclass(frozen=True, slots=True)
class Asks:
    """The process is to call a function with a peer's store."""

    peer: str
    read: Callable[..., object]
    store: Store
    given: tuple[object, ...]


def encode(value: Any) -> Any:
    """Return a value as what msgspec knows; texts for facts of any other kind."""
    if isinstance(value, SparkQueueError):
        return value.code, dict(value.facts)
    return value.serialize() if isinstance(value, BitMap64) else str(value)


def decode(kind: type, value: Any) -> Any:
    """Make a value of what `encode` gave for it."""
    if kind is BitMap64 and isinstance(value, bytes):
        return BitMap64.deserialize(value)
    if kind is SparkQueueError:
        return error(*msgspec.convert(value, tuple[str, dict[str, Any]]))
    raise ValueError(f"{kind} is none of what is handed over")


ENCODER = msgspec.msgpack.Encoder(enc_hook=encode)


class Reader:
    """The process in which one peer is read; it starts with the first thing that is asked, and again after it died.

    It may have `share` times as much memory and CPU time as a puller, which reads a log chunk by chunk.
    """

    def __init__(self, peer: str, *, share: int = 1) -> None:
        self._peer = peer
        self._memory_bytes, self._cpu_s = share * MEMORY_BYTES, share * CPU_S
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._decoder: msgspec.msgpack.Decoder[Said] = msgspec.msgpack.Decoder(Said, dec_hook=decode)
        #: What it was doing last.
        self._doing = "its journal"

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._process is None else self._process.pid

    def send(self, what: object) -> None:
        """Tell it something; who died hears it no more, which the next `receive` tells."""
        if self._pipe is None:
            ours, theirs = socket.socketpair()
            with theirs:
                limits = map(str, (theirs.fileno(), self._memory_bytes, self._cpu_s, FILES_MOST))
                # By `-m` there were two of that module, and two of each of its types.
                command = [sys.executable, "-c", "from spark_queue.replication.sandbox import main; main()", *limits]
                # Others reserve more memory than they need.
                around = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
                self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=around)
            self._pipe = Connection(ours.detach())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.send_bytes(pickle.dumps(what))

    def receive(self) -> Said:
        """Return what it says next; raises what it has raised, and PEER_REFUSED where it died."""
        assert self._pipe is not None, "it was told something"
        while True:
            try:
                if not self._pipe.poll(QUIET_S):
                    self._tell_of_silence()
                    if not self._pipe.poll(SILENT_S - QUIET_S):
                        raise TimeoutError(f"it has said nothing for {SILENT_S:g} s")
                said = self._decoder.decode(self._pipe.recv_bytes(HANDED_BYTES))
            except (EOFError, OSError, msgspec.MsgspecError, ValueError) as reason:
                raise refused(self._peer, self._doing, self._death(reason)) from None
            match said:
                case Opens(doing=doing):
                    self._doing = doing
                case Raised(reason=raised, text=text):
                    raise raised or RuntimeError(text)
                case Replaced():
                    raise LogReplacedError
                case _:
                    return said

    def _tell_of_silence(self) -> None:
        _LOG.warning(
            "reading peer '%s' hangs: its process %s has been silent for %g s (%s). Its store hangs, or the process was stopped: "
            "continue it (kill -CONT), or wait until it is ended, %g s after its last sign of life",
            self._peer, self.pid, QUIET_S, self._doing, SILENT_S,
        )  # fmt: skip

    def _death(self, reason: Exception) -> str:
        process = self._process
        self.close()
        assert process is not None, "it was started"
        if process.returncode == -signal.SIGXCPU:
            return f"that takes more than {self._cpu_s} s of processor time"
        ended = f"exit code {process.returncode}, {reason!r:.200}"
        return f"the process that did it, which may have {self._memory_bytes // 1024**2} MiB of memory, has ended ({ended})"

    def close(self) -> None:
        """End it."""
        process, self._process, pipe, self._pipe = self._process, None, self._pipe, None
        if pipe is not None:
            pipe.close()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
            process.kill()
            process.wait()


_Answer = TypeVar("_Answer")


def ask(peer: str, kind: type[_Answer], read: Callable[..., _Answer], store: Store, *given: object, share: int = 1) -> _Answer:
    """Return what a function finds in a peer's store, called in a process of its own.

    `read` is a function of a module; it returns texts, numbers, and lists, tuples and tables of them. An error of it is raised
    here; PEER_REFUSED where it exceeds its share.
    """
    reader = Reader(peer, share=share)
    try:
        reader.send(Asks(peer, read, store, given))
        said = reader.receive()
    finally:
        reader.close()
    assert isinstance(said, Answers), "it is answered with what it finds"
    return msgspec.msgpack.decode(said.value, type=kind)
