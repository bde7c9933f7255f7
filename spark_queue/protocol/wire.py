"""Messages between callers and the coordinator: versioned, size-limited msgspec structs; never pickle.

The commands and replies of the core, and requests to a coordinator as a process. Every request names its journal and
carries a request id; repeated after a lost reply, it gets the same answer.

A call is one Flight action `ACTION` whose body is an encoded request. Its one result is an answer: the size of the encoded reply,
that reply, and behind it an Arrow IPC stream where rows come with it. A result more would be two more switches of threads at both
ends.

Requests and replies as frames: size first, then version, then form; an unfit one is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

import msgspec

from spark_queue.core.commands import COMMAND_VERSION, AnyCommand, Command
from spark_queue.core.definitions.keys import READ, WRITE
from spark_queue.core.replies import CoreReply, Reply
from spark_queue.errors import CoordinatorError, SparkQueueError, error

#: Type of the one Flight action that carries every call.
ACTION = "sparkqueue.call"

#: Largest encoded request or reply, in bytes.
FRAME_LIMIT_BYTES = 64 * 1024 * 1024

#: Bytes of the size of a reply.
_SIZE_BYTES = 4

#: Longest wait inside one call (DESIGN 6), in milliseconds.
LONG_POLL_LIMIT_MS = 5_000


class Ping(Command, frozen=True, kw_only=True):
    """Is somebody there? Answered with `Pong`."""

    right = None
    is_hosts = True


class Nudge(Command, frozen=True, kw_only=True):
    """Messages were published. Answered with `Done`."""

    # Its caller may write to a queue of the message type of the log.
    right = WRITE
    subject = "message_type"

    message_type: str
    #: The version of its log that has them, behind which nobody need look now; None for the whole log.
    log_version: int | None = None


class AwaitPublish(Command, frozen=True, kw_only=True):
    """Wait until the log of a message type goes on after a version. Answered with `LogHead`.

    Where it goes on no further nobody looks at the control log before the answer (P7): it promises nothing, and its caller looks at
    the message log itself every minute.
    """

    # Its caller may read a queue of the message type.
    right = READ
    subject = "message_type"

    message_type: str
    after_version: int
    wait_ms: int


class LogHead(Reply, frozen=True, kw_only=True):
    """The newest version of a message log that the coordinator has read; the asker's own where it goes on no further."""

    head: int


class Stop(Command, frozen=True, kw_only=True):
    """End the coordinator in good order. Answered with `Done`."""

    # The user who runs the process could end it by a signal as well.
    is_hosts = True


class AskPeers(Command, frozen=True, kw_only=True):
    """How are the peers pulled? Answered with `PeersTold`."""


class CatchUp(Command, frozen=True, kw_only=True):
    """Read the logs of followed tables on, and copy what is due of their files. Answered with `CaughtUp`, before that is done."""


class CaughtUp(Reply, frozen=True, kw_only=True):
    """How far the followed tables are read and relocated."""

    #: Files of which messages are still to be copied, or let go.
    files: int
    #: What keeps the table of a message type from being read further, or messages from being copied, by the name of the type.
    troubles: dict[str, str]
    #: Whether each of these files was tried, so that to wait longer brings nothing.
    tried: bool


class PeerTold(msgspec.Struct, frozen=True, kw_only=True):
    """How one peer is pulled, as only a running coordinator knows."""

    #: Since its beacon has risen last, or since the coordinator began.
    silent_ms: int
    #: Messages copied since the coordinator began, or had new definitions.
    rows_copied: int
    bytes_copied: int
    #: The trouble that keeps it from being pulled.
    trouble: str | None


class PeersTold(Reply, frozen=True, kw_only=True):
    """How each peer is pulled, by name."""

    peers: dict[str, PeerTold]


class Pong(Reply, frozen=True, kw_only=True):
    """The coordinator that serves, and whether it still recovers."""

    journal: str
    epoch: int
    pid: int
    recovering: bool
    #: The address of the coordinator as it says itself, the name of its process, whether the caller is a principal and so has to
    #: send its token, and the proof of all three (`spark_queue.protocol.tokens`); empty for a caller with a token.
    address: str = ""
    session: str = ""
    wants_token: bool = False
    proof: str = ""


class Failed(Reply, frozen=True, kw_only=True):
    """The request was refused: an error of `spark_queue.errors` by its code and facts."""

    code: str
    facts: dict[str, Any]


AnyRequest = AnyCommand | Ping | Nudge | AwaitPublish | Stop | AskPeers | CatchUp
AnyReply = CoreReply | Pong | LogHead | PeersTold | CaughtUp | Failed


class Envelope(msgspec.Struct, frozen=True):
    """The fields that every version of a request has, read first so that another version is refused by its number."""

    version: int
    journal: str = ""
    #: The name of its class.
    kind: str = msgspec.field(name="type", default="")
    #: The queue or message type that it is about; empty for a request about something else.
    queue: str = ""
    message_type: str = ""


_Message = TypeVar("_Message")

_encoder = msgspec.msgpack.Encoder(enc_hook=str)
_envelope_decoder = msgspec.msgpack.Decoder(Envelope)
#: The types of requests, by name.
REQUESTS: Mapping[str, type[AnyRequest]] = {each.__name__: each for each in get_args(AnyRequest)}
_request_decoders = {name: msgspec.msgpack.Decoder(each) for name, each in REQUESTS.items()}
_reply_decoder: msgspec.msgpack.Decoder[AnyReply] = msgspec.msgpack.Decoder(AnyReply)


def encode(message: Command | Reply) -> bytes:
    """Encode a request or reply as one frame."""
    try:
        frame = _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError) as reason:
        raise CoordinatorError("FRAME_MALFORMED", reason=f"{reason}.") from None
    _check_size(frame)
    return frame


def decode_request(frame: bytes | memoryview) -> AnyRequest:
    """Read a request, of the type in its envelope: a frame may name it twice."""
    kind = decode_envelope(frame).kind
    if kind not in REQUESTS:
        raise CoordinatorError("FRAME_MALFORMED", reason=f"there is no call '{kind}' here.")
    return _decode(_request_decoders[kind], frame)


def decode_envelope(frame: bytes | memoryview) -> Envelope:
    """Read the envelope of a request and nothing else: the rest, which may be millions of values, is only passed over."""
    _check_size(frame)
    envelope = _decode(_envelope_decoder, frame)
    if envelope.version != COMMAND_VERSION:
        raise CoordinatorError("VERSIONS_DIFFER", given=envelope.version, known=COMMAND_VERSION, journal=envelope.journal)
    return envelope


def encode_answer(reply: Reply) -> bytes:
    """Encode a reply as the beginning of an answer, which the Arrow stream beside it follows where there is one."""
    frame = encode(reply)
    return len(frame).to_bytes(_SIZE_BYTES, "big") + frame


def read_answer(answer: memoryview) -> tuple[AnyReply, bytes]:
    """Read an answer: its reply, and the Arrow stream beside it, which may be empty."""
    begin = _SIZE_BYTES + int.from_bytes(answer[:_SIZE_BYTES], "big")
    return _decode(_reply_decoder, answer[_SIZE_BYTES:begin]), bytes(answer[begin:])


def failed(refusal: SparkQueueError) -> Failed:
    """Make the reply that carries an error."""
    return Failed(code=refusal.code, facts=dict(refusal.facts))


def raise_failed(reply: AnyReply) -> None:
    """Raise the error that a `Failed` reply carries; any other reply passes."""
    if isinstance(reply, Failed):
        raise error(reply.code, reply.facts)


def _decode(decoder: msgspec.msgpack.Decoder[_Message], frame: bytes | memoryview) -> _Message:
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as reason:
        raise CoordinatorError("FRAME_MALFORMED", reason=f"{reason}.") from None


def _check_size(frame: bytes | memoryview) -> None:
    size_bytes = memoryview(frame).nbytes
    if size_bytes > FRAME_LIMIT_BYTES:
        raise CoordinatorError("FRAME_TOO_LARGE", size=size_bytes, limit=FRAME_LIMIT_BYTES)
