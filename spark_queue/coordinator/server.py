"""The listening side: a token on every call, before anything of it is read, and the admission that calls pass before the loop."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import grpc
import pyarrow as pa

from spark_queue.coordinator.flight_messages import encode_result, read_action
from spark_queue.coordinator.flight_port import CONNECTIONS_MAX, listen
from spark_queue.coordinator.inbox import Call, ClosedError, Inbox
from spark_queue.coordinator.logins import CallerTokens, Login, address_of
from spark_queue.coordinator.proofs import Proofs
from spark_queue.errors import CoordinatorError, JournalError, SparkQueueError
from spark_queue.protocol import wire
from spark_queue.protocol.connection import LOCATION_HEADER, PLACE_REFUSAL, TOKEN_REFUSAL
from spark_queue.protocol.host import Bind
from spark_queue.protocol.proof import PROOF_HEADER, Introduction

_ACTION_NOT_OURS = "this address speaks only " + wire.ACTION

#: Calls whose token may be known later that are read at one time, and how long sending the message may last, in seconds.
UNKNOWN_MAX = 4
UNKNOWN_READ_S = 2.0

#: The same for others, which is as long as callers wait for an answer; and for each of a crowd that is slow at once, so that
#: threads are left for other calls. Both in seconds, as is the time between two looks.
READ_S = 20.0
CROWDED_READ_S = 2.0
CROWD = 64
_SWEEP_S = 1.0

#: Frames larger than this, in bytes, are looked at before they are decoded, and decoded one at a time: the values need many
#: times their size.
LARGE_BYTES = 16 * 1024

#: Does the part of a call's work on its own thread that the loop need not do.
Prepare = Callable[[Login | None, wire.AnyRequest], None]

#: Refuses a call by its envelope, before its body is decoded.
RefuseAhead = Callable[[Login | None, wire.Envelope], SparkQueueError | None]

#: Hears of calls that are refused.
Refused = Callable[[wire.AnyRequest | None, str], None]


class Admission:
    """The checks that every call passes before the loop: well-formed, of this version, for this journal.

    Pings are answered here, also while the loop is busy: they say that the process lives, and nothing of its queues. Until
    `claimed` every call is refused, since this one stands by; from then until `open` every other call, since the coordinator still
    recovers, or after `refuse` with the trouble that keeps it from that.
    """

    def __init__(self, *, path: str, journal_id: str, refused: Refused = lambda *_: None) -> None:
        self._path = path
        self._journal_id = journal_id
        #: Called with each call that is refused.
        self.refused = refused
        self._epoch = 0
        self._inbox: Inbox | None = None
        self._prepare: Prepare = lambda *_: None
        self._refuse_ahead: RefuseAhead = lambda *_: None
        self._decodes_large = threading.Lock()
        self._refusal: SparkQueueError = CoordinatorError("COORDINATOR_STANDS_BY", path=path)

    def claimed(self, epoch: int) -> None:
        """Say from now on which epoch answers."""
        self._epoch = epoch
        self._refusal = CoordinatorError("COORDINATOR_RECOVERING", path=self._path)

    def open(self, inbox: Inbox, prepare: Prepare = lambda *_: None, refuse_ahead: RefuseAhead = lambda *_: None) -> None:
        """Let calls through, each prepared, or refused ahead, before the loop hears it."""
        # The trouble that may have kept it from recovering is over.
        self.claimed(self._epoch)
        self._prepare, self._refuse_ahead, self._inbox = prepare, refuse_ahead, inbox

    def refuse(self, trouble: SparkQueueError) -> None:
        """Refuse every call from now on with the trouble that keeps the coordinator from recovering."""
        self._refusal = trouble

    def answer_unknown(self, frame: bytes | memoryview) -> wire.AnyReply | None:
        """Return the reply to a possible principal, while principals are unknown; None for a caller that means another journal.

        Only the envelope is read: a stranger must not cost more than that, nor choose words of the log.
        """
        try:
            envelope = wire.decode_envelope(frame)
        except SparkQueueError:
            return None
        if envelope.journal != self._journal_id:
            return None
        if envelope.kind == wire.Ping.__name__ and self._epoch:
            # That it lives, and nothing of its process or its reign.
            return wire.Pong(journal=self._journal_id, epoch=0, pid=0, recovering=True)
        # Neither the journal's place nor its trouble: this may be a stranger.
        code = "COORDINATOR_RECOVERING" if self._epoch else "COORDINATOR_STANDS_BY"
        return self._refuse(None, wire.failed(CoordinatorError(code, path=self._journal_id)))

    def answer(
        self, frame: bytes | memoryview, abandoned: Callable[[], bool], who: Login | None = None
    ) -> tuple[wire.AnyReply, pa.Table | None]:
        """Return the reply to a frame, waiting for the loop, which decides about the rights of `who`."""
        request = None
        try:
            if len(frame) <= LARGE_BYTES:
                request = wire.decode_request(frame)
            elif (early := self._refuse_ahead(who, wire.decode_envelope(frame))) is None:
                with self._decodes_large:
                    request = wire.decode_request(frame)
            else:
                # It is not raised: with where that was it would keep the frame, and so itself.
                return self._refuse(None, wire.failed(early)), None
            if request.journal != self._journal_id:
                raise JournalError("JOURNAL_MISMATCH", expected=request.journal, path=self._path, found=self._journal_id)
        except SparkQueueError as refusal:
            return self._refuse(request, wire.failed(refusal)), None
        if isinstance(request, wire.Ping):
            return self._pong(), None
        if self._inbox is None or (who is not None and who.is_early):
            return self._refuse(request, wire.failed(self._refusal)), None
        self._prepare(who, request)
        call = Call(request, abandoned, who)
        self._inbox.submit(call)
        call.wait()
        if call.reply is None:
            raise ClosedError
        return self._refuse(request, call.reply) if isinstance(call.reply, wire.Failed) else call.reply, call.pieces

    def answer_introduction(self, frame: bytes | memoryview) -> wire.Pong | wire.Failed | None:
        """Return the reply to a caller that wants a proof, and so may only ask whether somebody is here; None for all else.

        That caller has the key: one of another version is told so, and not that its token was refused.
        """
        try:
            envelope = wire.decode_envelope(frame)
        except SparkQueueError as refusal:
            return self._refuse(None, wire.failed(refusal)) if refusal.code == "VERSIONS_DIFFER" else None
        return self._pong() if (envelope.kind, envelope.journal) == (wire.Ping.__name__, self._journal_id) else None

    def _pong(self) -> wire.Pong | wire.Failed:
        if not self._epoch:
            # A ping is not refused.
            return wire.failed(self._refusal)
        return wire.Pong(journal=self._journal_id, epoch=self._epoch, pid=os.getpid(), recovering=self._inbox is None)

    def _refuse(self, request: wire.AnyRequest | None, reply: wire.Failed) -> wire.Failed:
        self.refused(request, reply.code)
        return reply


class Reads:
    """The calls whose message is still to come. Slow ones are sent away: each holds a thread."""

    def __init__(self) -> None:
        #: When each began, and how long it may last, in seconds.
        self._waits: dict[Any, tuple[float, float]] = {}
        self._ended = threading.Event()
        threading.Thread(target=self._sweep_until_ended, name="reads", daemon=True).start()

    def read(self, messages: Iterator[bytes], context: Any, *, within_s: float) -> memoryview:
        """Read the message of a call: now it comes into memory."""
        self._waits[context] = time.monotonic(), within_s
        try:
            return _read_frame(messages, context)
        finally:
            del self._waits[context]

    def end(self) -> None:
        """Send nobody away any more."""
        self._ended.set()

    def _sweep_until_ended(self) -> None:
        while not self._ended.wait(_SWEEP_S):
            waits = self._waits.copy()
            most_s = READ_S if len(waits) <= CROWD else CROWDED_READ_S
            for context, (begun_s, within_s) in waits.items():
                if time.monotonic() - begun_s >= min(within_s, most_s):
                    context.cancel()


class Server:
    """Carries frames between the port and the admission."""

    def __init__(
        self,
        *,
        bind: Bind,
        logins: CallerTokens,
        journal_id: str,
        admission: Admission,
        location: Callable[[], str],
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._bind = bind
        self._admission = admission
        self._logins = logins
        self._refusal = f"{TOKEN_REFUSAL}{journal_id}"
        self._proofs = Proofs(journal_id, logins, location)
        self._reads = Reads()
        self._reads_of_unknown = threading.BoundedSemaphore(UNKNOWN_MAX)
        self._listening, self.port = listen(bind, self._answer, connections_max=connections_max)

    @property
    def address(self) -> str:
        """The address that callers use."""
        scheme = "grpc" if self._bind.tls_cert is None else "grpc+tls"
        return f"{scheme}://{self._bind.host}:{self.port}"

    def shutdown(self, farewell_s: float = 0.0) -> None:
        """Accept no further call, and give those that are being answered so many seconds."""
        self._listening.stop(farewell_s).wait(farewell_s)
        self._reads.end()

    def _answer(self, messages: Iterator[bytes], context: Any) -> bytes:
        """Answer one call; its caller is checked before any of its message is read."""
        headers = {name: str(value) for name, value in context.invocation_metadata()}
        # Before the token: another user's copy must not be kept from having a coordinator.
        if headers.get(LOCATION_HEADER) != self._proofs.location():
            _end(context, grpc.StatusCode.FAILED_PRECONDITION, PLACE_REFUSAL)
        try:
            reply, pieces = self._answer_caller(headers, messages, context)
        except ClosedError:
            _end(context, grpc.StatusCode.UNAVAILABLE, "the coordinator is ending")
        return encode_result(_encode_reply(reply), b"" if pieces is None else _stream(pieces))

    def _answer_caller(
        self, headers: Mapping[str, str], messages: Iterator[bytes], context: Any
    ) -> tuple[wire.AnyReply, pa.Table | None]:
        # Before anything is looked up: principals may become known at any moment, and an answer by less is not final.
        is_early = not self._logins.knows_principals
        if PROOF_HEADER in headers:
            return self._answer_introduced(headers[PROOF_HEADER], messages, context, is_early=is_early), None
        given, address = headers.get("authorization", "").encode(), address_of(context.peer())
        # The token itself, which opens all journals of its user, is nothing that a caller may send.
        is_own = self._proofs.stands_for_token(given)
        # A principal may run the coordinator, and is held to its rights all the same.
        principal = self._logins.principal_of(self._logins.own_header if is_own else given)
        if principal is not None:
            return self._answer_known(messages, context, Login(principal[0], address, principal[1]))
        if is_own:
            return self._answer_known(messages, context, Login(None, address, is_early=is_early))
        return self._answer_stranger(messages, context, may_be_known_later=is_early and self._logins.is_principals(given)), None

    def _answer_introduced(self, header: str, messages: Iterator[bytes], context: Any, *, is_early: bool) -> wire.AnyReply:
        """Prove to a caller with a key of this coordinator that it has it, too."""
        introduction = Introduction.parse(header)
        meeting = None if introduction is None else self._proofs.meeting(introduction)
        if introduction is None or meeting is None:
            is_principal = introduction is not None and introduction.is_principal
            return self._answer_stranger(messages, context, may_be_known_later=is_early and is_principal)
        reply = self._admission.answer_introduction(self._reads.read(messages, context, within_s=READ_S))
        if isinstance(reply, wire.Pong):
            return self._proofs.prove(meeting, introduction, reply, self.address)
        return self._turn_away(context) if reply is None else reply

    def _answer_known(self, messages: Iterator[bytes], context: Any, who: Login) -> tuple[wire.AnyReply, pa.Table | None]:
        frame = self._reads.read(messages, context, within_s=READ_S)
        return self._admission.answer(frame, lambda: not context.is_active(), who)

    def _answer_stranger(self, messages: Iterator[bytes], context: Any, *, may_be_known_later: bool) -> wire.AnyReply:
        reply = self._answer_unknown(messages, context) if may_be_known_later else None
        return self._turn_away(context) if reply is None else reply

    def _turn_away(self, context: Any) -> NoReturn:
        self._logins.refused(address_of(context.peer()))
        self._admission.refused(None, "UNAUTHENTICATED")
        _end(context, grpc.StatusCode.UNAUTHENTICATED, self._refusal)

    def _answer_unknown(self, messages: Iterator[bytes], context: Any) -> wire.AnyReply | None:
        """Answer possible principals, while principals are unknown: few at a time, and no slow ones, since any of them may lie."""
        if not self._reads_of_unknown.acquire(blocking=False):
            _end(context, grpc.StatusCode.UNAVAILABLE, "too many ask who may be known later")
        try:
            return self._admission.answer_unknown(self._reads.read(messages, context, within_s=UNKNOWN_READ_S))
        finally:
            self._reads_of_unknown.release()


def _end(context: Any, code: Any, text: str) -> NoReturn:
    """End a call without an answer."""
    context.abort(code, text)
    raise AssertionError("the library has raised")


def _read_frame(messages: Iterator[bytes], context: Any) -> memoryview:
    """Read the message of a call: now it comes into memory."""
    try:
        kind, frame = read_action(next(messages, b""))
    except ValueError:
        kind, frame = "", memoryview(b"")
    if kind != wire.ACTION:
        _end(context, grpc.StatusCode.INVALID_ARGUMENT, _ACTION_NOT_OURS)
    return frame


def _encode_reply(reply: wire.AnyReply) -> bytes:
    try:
        return wire.encode_answer(reply)
    except SparkQueueError as refusal:
        return wire.encode_answer(wire.failed(refusal))


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
