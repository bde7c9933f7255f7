"""Requests and replies as frames: size first, then version, then form; what does not fit is refused by name."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from spark_queue.core.commands import COMMAND_VERSION, Command
from spark_queue.core.replies import Reply
from spark_queue.errors import CoordinatorError, SparkQueueError, error
from spark_queue.protocol.wire import FRAME_LIMIT_BYTES, AnyReply, AnyRequest, Failed


class Envelope(msgspec.Struct, frozen=True):
    """What every version of a request has, read first so that another version is refused by its number."""

    version: int
    journal: str = ""
    #: The name of its class.
    kind: str = msgspec.field(name="type", default="")


_Message = TypeVar("_Message")

_encoder = msgspec.msgpack.Encoder(enc_hook=str)
_envelope_decoder = msgspec.msgpack.Decoder(Envelope)
_request_decoder: msgspec.msgpack.Decoder[AnyRequest] = msgspec.msgpack.Decoder(AnyRequest)
_reply_decoder: msgspec.msgpack.Decoder[AnyReply] = msgspec.msgpack.Decoder(AnyReply)


def encode(message: Command | Reply) -> bytes:
    """Encode a request or reply as one frame.

    Raises
    ------
    CoordinatorError
        FRAME_TOO_LARGE, or FRAME_MALFORMED for a text or number that no frame can hold.
    """
    try:
        frame = _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError) as reason:
        raise CoordinatorError("FRAME_MALFORMED", reason=f"{reason}.") from None
    _check_size(frame)
    return frame


def decode_request(frame: bytes | memoryview) -> AnyRequest:
    """Read a request.

    Raises
    ------
    CoordinatorError
        FRAME_TOO_LARGE, or FRAME_MALFORMED for what is no request of this version.
    """
    decode_envelope(frame)
    return _decode(_request_decoder, frame)


def decode_envelope(frame: bytes | memoryview) -> Envelope:
    """Read what a request is about and nothing else: the rest, which may be millions of values, is only passed over.

    Raises
    ------
    CoordinatorError
        FRAME_TOO_LARGE, or FRAME_MALFORMED for what is no request of this version.
    """
    _check_size(frame)
    envelope = _decode(_envelope_decoder, frame)
    if envelope.version != COMMAND_VERSION:
        reason = f"it is of version {envelope.version}, and the coordinator speaks version {COMMAND_VERSION}."
        raise CoordinatorError("FRAME_MALFORMED", reason=reason)
    return envelope


def decode_reply(frame: bytes) -> AnyReply:
    """Read a reply.

    Raises
    ------
    CoordinatorError
        FRAME_MALFORMED for what is no reply of this version.
    """
    return _decode(_reply_decoder, frame)


def failed(refusal: SparkQueueError) -> Failed:
    """Make the reply that carries an error."""
    return Failed(code=refusal.code, facts=dict(refusal.facts))


def raise_failed(reply: AnyReply) -> None:
    """Raise the error that a `Failed` reply carries; any other reply passes.

    Raises
    ------
    SparkQueueError
        The error, as the class that its code has in the catalogue.
    """
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
