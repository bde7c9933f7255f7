"""Version 1 of the wire, kept in git as bytes: each message is encoded today as it was, and read as what it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyarrow import flight

from spark_queue.coordinator.flight_messages import encode_result, read_action
from spark_queue.core.commands import Command
from spark_queue.protocol import wire
from spark_queue.protocol.proof import Introduction, Meeting, key_of
from tests.golden import FOLDER, FROZEN
from tests.golden.frames import TOKEN, frames, handshake, samples

GOLDEN: dict[str, str] = json.loads((FOLDER / "frames.json").read_text(encoding="utf-8"))
MESSAGES = sorted(each for each in GOLDEN if each.startswith(("call ", "reply ")))


def test_each_message_and_the_handshake_are_encoded_as_they_were() -> None:
    found = frames()
    for name, frame in GOLDEN.items():
        assert found.get(name) == frame, FROZEN.format(what=name)
    assert [name for name in found if name not in GOLDEN] == [], (
        "run `python -m tests.golden`, which adds the messages that are new"
    )


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_of_version_1_is_read_as_what_it_was(name: str) -> None:
    frame, wanted = bytes.fromhex(GOLDEN[name]), samples()[name]
    found: Any = wire.decode_request(frame) if isinstance(wanted, Command) else wire.read_answer(memoryview(frame))[0]
    assert found == wanted


@pytest.mark.parametrize("name", [each for each in MESSAGES if each.startswith("call ")])
def test_every_call_says_its_version(name: str) -> None:
    assert wire.decode_envelope(bytes.fromhex(GOLDEN[name])).version == 1


def test_the_messages_of_flight_around_a_call_are_those_of_its_library() -> None:
    body = bytes.fromhex(GOLDEN["call Ping"])
    kind, frame = read_action(_protobuf((1, GOLDEN["action"].encode()), (2, body)))
    assert (kind, bytes(frame)) == (flight.Action(GOLDEN["action"], body).type, body)
    reply = bytes.fromhex(GOLDEN["reply Done"])
    assert encode_result(reply) == _protobuf((1, reply)) == bytes.fromhex(GOLDEN["result around reply Done"])


def test_a_caller_of_version_1_is_known_and_believes_its_coordinator() -> None:
    meeting = Meeting(key=key_of(TOKEN), journal_id="uuid", location="place")
    introduction = Introduction.parse(GOLDEN["introduction"])
    assert introduction is not None
    assert meeting.knows(introduction)
    pong = wire.Pong(
        journal="uuid", epoch=1, pid=1, recovering=False, address="grpc://127.0.0.1:1", session="session", proof=GOLDEN["proof"]
    )  # fmt: skip
    assert meeting.believes(introduction, pong)
    assert handshake()["bearer"] == GOLDEN["bearer"]


def _protobuf(*fields: tuple[int, bytes]) -> bytes:
    """Return a message with fields of bytes, as protobuf has it."""
    found = bytearray()
    for number, value in fields:
        found.append(number << 3 | 2)
        size = len(value)
        while size > 127:
            found.append(size & 127 | 128)
            size >>= 7
        found += bytes([size]) + value
    return bytes(found)
