"""Frames: what fits passes unchanged, everything else is refused by name (DESIGN 6, RPC)."""

from __future__ import annotations

import msgspec
import pytest

from spark_queue.core import commands, replies
from spark_queue.errors import CallerError, CoordinatorError, LeaseError
from spark_queue.protocol import wire

REQUESTS = [
    wire.Ping(journal="j", request="r"),
    wire.AskPeers(journal="j", request="r"),
    commands.Attach(
        journal="j",
        request="r",
        queue="Q",
        subscription="s",
        incarnation=(3, 1),
        call=1,
        ack_mode="auto",
        max_backlog=7,
        available_now=True,
    ),
    commands.Next(
        journal="j", request="r", queue="Q", subscription="s", incarnation=(3, 1), call=2, finished=4, limit=100, wait_ms=50
    ),
    commands.EndRun(
        journal="j",
        request="r",
        queue="Q",
        subscription="s",
        run=replies.Run(incarnation=(3, 1), lease=5),
        outcomes=(commands.OutcomeRows(outcome="cancel", ranges=((0, 4), (9, 10)), retry_after_ms=5, error="boom"),),
    ),
    commands.Apply(journal="j", request="r", definitions={"queues": {"Q": {"max_deliveries": 3}}}, reset=("Q",)),
]


def arrived(reply: wire.AnyReply) -> wire.AnyReply:
    """Send a reply over the wire, with nothing beside it."""
    found, rows = wire.read_answer(memoryview(wire.encode_answer(reply)))
    assert not rows
    return found


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_request_survives_the_wire(request_: wire.AnyRequest) -> None:
    assert wire.decode_request(wire.encode(request_)) == request_


def test_a_refusal_arrives_as_the_error_it_was() -> None:
    refusal = LeaseError("STALE_CALL", subscription="s", call=1, newest=2)
    reply = arrived(wire.failed(refusal))
    with pytest.raises(LeaseError, match="Call 1 of subscription 's' is older than call 2") as caught:
        wire.raise_failed(reply)
    assert caught.value.facts == refusal.facts


def test_facts_that_the_wire_has_no_form_for_arrive_as_text() -> None:
    reply = arrived(wire.failed(CallerError("UNKNOWN_COLUMN", where=ValueError("x"), column="c", nearest="", columns="")))
    with pytest.raises(CallerError, match="no column 'c' in x"):
        wire.raise_failed(reply)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        b"\x80",
        b"not a frame",
        wire.encode(replies.Done()),
        msgspec.msgpack.encode({"version": 1, "type": "Nonsense"}),
    ],
    ids=["empty", "invalid", "empty map", "text", "a reply", "unknown type"],
)
def test_what_is_no_request_is_malformed(frame: bytes) -> None:
    with pytest.raises(CoordinatorError, match="FRAME_MALFORMED"):
        wire.decode_request(frame)


def test_deeply_nested_input_is_malformed_and_harmless() -> None:
    with pytest.raises(CoordinatorError, match="FRAME_MALFORMED"):
        wire.decode_request(b"\x91" * 1_000_000)


def test_another_version_is_refused_by_its_number_before_its_form_is_read() -> None:
    frame = msgspec.msgpack.encode({"version": 2, "type": "OfTomorrow"})
    with pytest.raises(CoordinatorError, match=r"VERSIONS_DIFFER.*has version 2, and .* knows version 1 only"):
        wire.decode_request(frame)


def test_a_frame_over_the_limit_is_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = wire.encode(REQUESTS[0])
    monkeypatch.setattr(wire, "FRAME_LIMIT_BYTES", len(frame) - 1)
    with pytest.raises(CoordinatorError, match="FRAME_TOO_LARGE"):
        wire.encode(REQUESTS[0])
    with pytest.raises(CoordinatorError, match=f"A call of {len(frame)} bytes is over the limit of {len(frame) - 1} bytes"):
        wire.decode_request(frame)


@pytest.mark.parametrize("body", [{"text": "a\udc80b"}, {"number": 10**30}], ids=["no text", "a number too large"])
def test_what_no_frame_can_hold_is_refused_by_name(body: dict[str, object]) -> None:
    with pytest.raises(CoordinatorError, match="FRAME_MALFORMED"):
        wire.encode(commands.Apply(journal="j", request="r", definitions=body))
