"""The listening side: Arrow Flight on one address, a token on every call, and the admission that calls pass before the loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import flight

from spark_queue.coordinator.inbox import Call, ClosedError, Inbox
from spark_queue.coordinator.logins import Login, Logins, address_of
from spark_queue.coordinator.proofs import Proofs
from spark_queue.errors import CoordinatorError, JournalError, SparkQueueError
from spark_queue.protocol import codec, wire
from spark_queue.protocol.connection import LOCATION_HEADER, PROVES, TOKEN_REFUSAL
from spark_queue.protocol.proof import PROOF_HEADER, Introduction, Meeting
from spark_queue.protocol.start_options import Bind

_ACTION_NOT_OURS = "this address speaks only " + wire.ACTION
_LOCATION_NOT_OURS = "its journal is at another place: one is a copy of the other"

#: Size of the parts in which an Arrow stream is sent, in bytes; Flight results are messages of limited size.
_PART_BYTES = 4 * 1024 * 1024


#: Does on a call's own thread what the loop need not do.
Prepare = Callable[[Login | None, wire.AnyRequest], None]

#: Hears of calls that are refused.
Refused = Callable[[wire.AnyRequest | None, str], None]


class Admission:
    """What every call passes before the loop: it must be well-formed, of this version and for this journal.

    Pings are answered here, also while the loop is busy: they say that the process lives, not what the queues hold. Until
    `claimed` every call is told that this one stands by. From then until `open` every other call is told that the coordinator
    still recovers, or after `refuse` why it cannot.

    Parameters
    ----------
    refused : callable
        Told of each call that is refused: the request, None where it could not be understood, and the code.
    """

    def __init__(self, *, path: str, journal_id: str, refused: Refused = lambda *_: None) -> None:
        self._path = path
        self._journal_id = journal_id
        #: Told of each call that is refused.
        self.refused = refused
        self._epoch = 0
        self._inbox: Inbox | None = None
        self._prepare: Prepare = lambda *_: None
        self._refusal: SparkQueueError = CoordinatorError("COORDINATOR_STANDS_BY", path=path)

    def claimed(self, epoch: int) -> None:
        """Say from now on which epoch answers."""
        self._epoch = epoch
        self._refusal = CoordinatorError("COORDINATOR_RECOVERING", path=self._path)

    def open(self, inbox: Inbox, prepare: Prepare = lambda *_: None) -> None:
        """Let calls through, each after what can be done for it before the loop hears it."""
        self._prepare, self._inbox = prepare, inbox

    def refuse(self, trouble: SparkQueueError) -> None:
        """Tell every caller from now on what keeps the coordinator from recovering."""
        self._refusal = trouble

    def answer_unknown(self, frame: bytes | memoryview) -> wire.AnyReply | None:
        """Return the reply to somebody who may be a principal, while nobody knows; None for who means another journal.

        Only what the call is about is read: a stranger must not cost more than that, nor choose what stands in the log.
        """
        try:
            envelope = codec.decode_envelope(frame)
        except SparkQueueError:
            return None
        if envelope.journal != self._journal_id:
            return None
        if envelope.kind == wire.Ping.__name__ and self._epoch:
            return wire.Pong(journal=self._journal_id, epoch=self._epoch, pid=os.getpid(), recovering=True)
        # Not where the journal is, nor what may be wrong with it: this may be a stranger.
        code = "COORDINATOR_RECOVERING" if self._epoch else "COORDINATOR_STANDS_BY"
        return self._refuse(None, codec.failed(CoordinatorError(code, path=self._journal_id)))

    def answer(
        self, frame: bytes, abandoned: Callable[[], bool], who: Login | None = None
    ) -> tuple[wire.AnyReply, pa.Table | None]:
        """Return the reply to a frame, waiting for the loop, which decides whether `who` may ask that.

        Raises
        ------
        ClosedError
            When the coordinator is ending.
        """
        request = None
        try:
            request = codec.decode_request(frame)
            if request.journal != self._journal_id:
                raise JournalError("JOURNAL_MISMATCH", expected=request.journal, path=self._path, found=self._journal_id)
        except SparkQueueError as refusal:
            return self._refuse(request, codec.failed(refusal)), None
        if isinstance(request, wire.Ping):
            return self._pong(), None
        if self._inbox is None:
            return self._refuse(request, codec.failed(self._refusal)), None
        self._prepare(who, request)
        call = Call(request, abandoned, who)
        self._inbox.submit(call)
        call.wait()
        if call.reply is None:
            raise ClosedError
        return self._refuse(request, call.reply) if isinstance(call.reply, wire.Failed) else call.reply, call.pieces

    def answer_introduction(self, frame: bytes | memoryview) -> wire.Pong | wire.Failed | None:
        """Return the reply to who wants a proof, and so may only ask whether somebody is here; None for all else."""
        try:
            envelope = codec.decode_envelope(frame)
        except SparkQueueError:
            return None
        return self._pong() if (envelope.kind, envelope.journal) == (wire.Ping.__name__, self._journal_id) else None

    def _pong(self) -> wire.Pong | wire.Failed:
        if not self._epoch:
            # Who only asks who serves is not refused.
            return codec.failed(self._refusal)
        return wire.Pong(journal=self._journal_id, epoch=self._epoch, pid=os.getpid(), recovering=self._inbox is None)

    def _refuse(self, request: wire.AnyRequest | None, reply: wire.Failed) -> wire.Failed:
        self.refused(request, reply.code)
        return reply


class Server(flight.FlightServerBase):
    """Carries frames between Flight and the admission. Never call `shutdown` inside a handler: it would wait for itself.

    Parameters
    ----------
    logins : Logins
        Tells callers by their tokens.
    location : callable
        Tells where the journal's path leads now (`location_of`): a copy may have taken the original's place.
    """

    def __init__(self, *, bind: Bind, logins: Logins, journal_id: str, admission: Admission, location: Callable[[], str]) -> None:
        self._bind = bind
        self._admission = admission
        self._logins = logins
        self._refusal = f"{TOKEN_REFUSAL}{journal_id}{PROVES}"
        self._proofs = Proofs(journal_id, logins, location)
        options: dict[str, Any] = {"middleware": {"caller": _CallerCheck(logins, self._proofs)}}
        address = bind.location()
        try:
            if bind.tls_cert is not None and bind.tls_key is not None:
                options["tls_certificates"] = [(Path(bind.tls_cert).read_bytes(), Path(bind.tls_key).read_bytes())]
            super().__init__(address, **options)
        except (pa.ArrowException, OSError) as failure:
            # Flight does not say what: nearly always somebody else listens there.
            raise CoordinatorError("ADDRESS_UNUSABLE", address=address, reason=f"{failure}.") from None

    @property
    def address(self) -> str:
        """The address that callers use."""
        scheme = "grpc" if self._bind.tls_cert is None else "grpc+tls"
        return f"{scheme}://{self._bind.host}:{self.port}"

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[Any]:
        """Answer one call."""
        if action.type != wire.ACTION:
            raise flight.FlightServerError(_ACTION_NOT_OURS)
        caller = context.get_middleware("caller")
        try:
            if isinstance(caller, _Stranger):
                reply, pieces = self._answer_stranger(caller, memoryview(action.body), context), None
            elif isinstance(caller, _Introduced):
                reply, pieces = self._answer_introduced(caller, memoryview(action.body), context), None
            else:
                principal, given = (caller.name, caller.token_hash) if isinstance(caller, _Principal) else (None, None)
                who = Login(principal, address_of(context.peer()), given)
                reply, pieces = self._admission.answer(action.body.to_pybytes(), context.is_cancelled, who)
        except ClosedError:
            raise flight.FlightUnavailableError("the coordinator is ending") from None
        yield flight.Result(pa.py_buffer(_encode_reply(reply)))
        if pieces is not None:
            yield from (flight.Result(part) for part in _stream_parts(pieces))

    def _answer_introduced(self, caller: _Introduced, frame: memoryview, context: flight.ServerCallContext) -> wire.AnyReply:
        reply = self._admission.answer_introduction(frame)
        if isinstance(reply, wire.Pong):
            return self._proofs.prove(caller.meeting, caller.introduction, reply, self.address)
        return self._unauthenticated(context) if reply is None else reply

    def _answer_stranger(self, caller: _Stranger, frame: bytes | memoryview, context: flight.ServerCallContext) -> wire.AnyReply:
        reply = self._admission.answer_unknown(frame) if caller.may_be_known_later else None
        return self._unauthenticated(context) if reply is None else reply

    def _unauthenticated(self, context: flight.ServerCallContext) -> NoReturn:
        self._logins.refused(address_of(context.peer()))
        self._admission.refused(None, "UNAUTHENTICATED")
        raise flight.FlightUnauthenticatedError(self._refusal)


class _Principal(flight.ServerMiddleware):
    """A call with the token of a principal."""

    def __init__(self, name: str, token_hash: str) -> None:
        super().__init__()
        self.name = name
        self.token_hash = token_hash


class _Stranger(flight.ServerMiddleware):
    """A call with a token that nobody has, or that nobody knows yet."""

    def __init__(self, *, may_be_known_later: bool) -> None:
        super().__init__()
        self.may_be_known_later = may_be_known_later


class _Introduced(flight.ServerMiddleware):
    """A call without a token, of somebody who has a key of this coordinator and wants a proof that it has it, too."""

    def __init__(self, meeting: Meeting, introduction: Introduction) -> None:
        super().__init__()
        self.meeting = meeting
        self.introduction = introduction


class _CallerCheck(flight.ServerMiddlewareFactory):
    """Tells who calls; nothing for the user who runs the coordinator."""

    def __init__(self, logins: Logins, proofs: Proofs) -> None:
        self._logins = logins
        self._proofs = proofs

    def start_call(
        self,
        info: flight.CallInfo,  # noqa: ARG002  # Flight's.
        headers: dict[str, list[str] | list[bytes]],
    ) -> flight.ServerMiddleware | None:
        # Before the token: another user's copy must not be kept from having a coordinator. Older callers do not say where.
        meant = headers.get(LOCATION_HEADER)
        if meant is not None and meant[0] != self._proofs.location():
            raise flight.FlightServerError(_LOCATION_NOT_OURS)
        introduced = headers.get(PROOF_HEADER)
        if introduced is not None:
            return self._introduced(str(introduced[0]))
        given = str(headers.get("authorization", [""])[0]).encode()
        is_hidden = self._proofs.stands_for_token(given)
        if is_hidden:
            given = self._logins.own_header
        # A principal may run the coordinator, and is held to its rights all the same.
        principal = self._logins.principal_of(given)
        if principal is not None:
            return _Principal(*principal)
        if self._logins.is_own(given):
            if not is_hidden:
                self._proofs.was_given_token()
            return None
        return _Stranger(may_be_known_later=self._logins.may_be_known_later(given))

    def _introduced(self, header: str) -> flight.ServerMiddleware:
        introduction = Introduction.parse(header)
        meeting = None if introduction is None else self._proofs.meeting(introduction)
        if introduction is None or meeting is None:
            is_early = introduction is not None and introduction.is_principal and not self._logins.knows_principals
            return _Stranger(may_be_known_later=is_early)
        return _Introduced(meeting, introduction)


def _encode_reply(reply: wire.AnyReply) -> bytes:
    try:
        return codec.encode(reply)
    except SparkQueueError as refusal:
        return codec.encode(codec.failed(refusal))


def _stream_parts(table: pa.Table) -> Iterator[pa.Buffer]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream = sink.getvalue()
    return (stream.slice(start, min(_PART_BYTES, stream.size - start)) for start in range(0, stream.size, _PART_BYTES))
