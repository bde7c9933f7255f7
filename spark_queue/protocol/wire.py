"""What travels between callers and the coordinator: versioned, size-limited msgspec structs; never pickle.

The commands and replies of the core, and what is asked of a coordinator as a process. Every request names its journal and
carries a request id; repeated after a lost reply, it gets the same answer.

A call is one Flight action `ACTION` whose body is an encoded request. Its first result is an encoded reply; further results,
if any, are consecutive pieces of one Arrow IPC stream.
"""

from __future__ import annotations

from typing import Any

import msgspec

from spark_queue.core.commands import AnyCommand, Command
from spark_queue.core.replies import CoreReply, Reply

#: Type of the one Flight action that carries every call.
ACTION = "sparkqueue.call"

#: Largest encoded request or reply, in bytes.
FRAME_LIMIT_BYTES = 64 * 1024 * 1024

#: Longest wait inside one call (DESIGN 6), in milliseconds.
LONG_POLL_LIMIT_MS = 1_000


class Ping(Command, frozen=True, kw_only=True):
    """Is somebody there? Answered with `Pong`."""


class Nudge(Command, frozen=True, kw_only=True):
    """Messages were published. Answered with `Done`."""

    message_type: str


class Stop(Command, frozen=True, kw_only=True):
    """End the coordinator in good order. Answered with `Done`."""


class AskPeers(Command, frozen=True, kw_only=True):
    """How are the peers pulled? Answered with `PeersTold`."""


class PeerTold(msgspec.Struct, frozen=True, kw_only=True):
    """How one peer is pulled, as only a running coordinator knows."""

    #: Since its beacon has risen last, or since the coordinator began.
    silent_ms: int
    #: What was copied of its messages since the coordinator began, or had new definitions.
    rows_copied: int
    bytes_copied: int
    #: What keeps it from being pulled.
    trouble: str | None


class PeersTold(Reply, frozen=True, kw_only=True):
    """How each peer is pulled, by name."""

    peers: dict[str, PeerTold]


class Pong(Reply, frozen=True, kw_only=True):
    """Who serves, and whether it still recovers."""

    journal: str
    epoch: int
    pid: int
    recovering: bool
    #: The address of the coordinator as it says itself, the name of its process, whether the caller is a principal and so has to
    #: send its token, and the proof of all three (`spark_queue.protocol.proof`); empty for who asked with a token.
    address: str = ""
    session: str = ""
    wants_token: bool = False
    proof: str = ""


class Failed(Reply, frozen=True, kw_only=True):
    """The request was refused: an error of `spark_queue.errors` by its code and facts."""

    code: str
    facts: dict[str, Any]


AnyRequest = AnyCommand | Ping | Nudge | Stop | AskPeers
AnyReply = CoreReply | Pong | PeersTold | Failed
