"""What of a call is read and translated before the loop hears it, and only for who may ask (DESIGN 8)."""

from __future__ import annotations

import gc
import threading
from functools import partial

import msgspec
import pyarrow as pa
import pytest

from spark_queue.coordinator.inbox import ClosedError, Inbox
from spark_queue.coordinator.logins import Login
from spark_queue.coordinator.rights import refusal_ahead, translate_ahead
from spark_queue.coordinator.server import LARGE_BYTES, Admission
from spark_queue.core import commands, replies
from spark_queue.core.definitions import parsing
from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.expression import Wanted, program
from spark_queue.expression.program import Program
from spark_queue.journal import expressions
from spark_queue.protocol import wire

STORED = {
    "message_types": {"order": {"columns": "n BIGINT", "topics": ["ORDERS"]}},
    "queues": {"WORK": {"underlying_topic": "ORDERS"}},
    "principals": {
        "changer": {"token_hash": "a" * 64, "rights": [{"queues": "WORK", "rights": ["change"]}]},
        "stranger": {"token_hash": "b" * 64, "rights": [{"queues": "OTHER", "rights": ["change"]}]},
        "ops": {"token_hash": "c" * 64, "rights": [{"rights": ["administer"]}]},
    },
}  # fmt: skip
DEFINITIONS = parsing.parse(STORED)


def purge(where: str) -> commands.Purge:
    return commands.Purge(journal="j", request="r", queue="WORK", where=where)


def translated(call: commands.AnyCommand, principal: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what was translated of a call by the time that the loop is given it."""
    program._translated.cache_clear()
    texts: list[str] = []
    real = Program.__init__

    def made(self: Program, wanted: tuple[Wanted, ...], columns: pa.Schema) -> None:
        texts.extend(each.text for each in wanted)
        real(self, wanted, columns)

    monkeypatch.setattr(Program, "__init__", made)
    inbox, found = Inbox(), list[str]()
    admission = Admission(path="/journals/j", journal_id="j")
    admission.claimed(1)
    admission.open(inbox, partial(translate_ahead, DEFINITIONS))

    def serve() -> None:
        (heard,) = inbox.take(10.0)
        found.extend(texts)
        heard.answer(replies.Done())

    loop = threading.Thread(target=serve)
    loop.start()
    admission.answer(wire.encode(call), lambda: False, Login(principal, "here", "x"))
    loop.join()
    return found


def test_the_loop_finds_the_filter_of_a_call_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert translated(purge("n > 5"), "changer", monkeypatch) == ["n > 5"]
    stored = STORED | {"queues": {"WORK": {"underlying_topic": "ORDERS", "priority": "n + 1"}}}
    apply = commands.Apply(journal="j", request="r", definitions=stored)
    assert translated(apply, "ops", monkeypatch) == ["n + 1"]


def test_what_is_wrong_with_a_filter_is_found_ahead_too_and_told_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert translated(purge("n > 1e"), "changer", monkeypatch) == ["n > 1e"]
    # Once more would keep everybody else waiting: it is refused by what was found.
    monkeypatch.setattr(Program, "__init__", None)
    with pytest.raises(ConfigError, match="1e is no number"):
        expressions._check_command(purge("n > 1e"), DEFINITIONS.queue)


def test_who_may_not_ask_has_nothing_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert translated(purge("n > 6"), "stranger", monkeypatch) == []
    assert translated(purge("n > 6"), "nobody", monkeypatch) == []
    assert translated(commands.Apply(journal="j", request="r", definitions=STORED), "changer", monkeypatch) == []


#: More than may be decoded unseen.
LARGE = commands.Apply(journal="j", request="r", definitions={"queues": {str(name): {} for name in range(20_000)}})


def answer_of(frame: bytes | memoryview, login: Login) -> wire.AnyReply:
    """Return what a call gets by what it is about; a loop that has ended answers no other."""
    assert len(frame) > LARGE_BYTES
    admission, inbox = Admission(path="/journals/j", journal_id="j"), Inbox()
    admission.claimed(1)
    inbox.close()
    admission.open(inbox, refuse_ahead=partial(refusal_ahead, DEFINITIONS, now_ms=0))
    return admission.answer(frame, lambda: False, login)[0]


def test_what_a_large_call_holds_is_read_for_who_may_ask_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: some megabytes of empty maps are gigabytes, and nobody else is heard while they are made."""
    with pytest.raises(ClosedError):
        answer_of(wire.encode(LARGE), Login("ops", "here", "c" * 64))
    monkeypatch.setattr(wire, "decode_request", None)
    refused = [
        Login("changer", "here", "a" * 64),
        Login("ops", "here", "b" * 64),
        Login("nobody", "here", "c" * 64),
        Login(None, "here"),
    ]
    answers = [answer_of(wire.encode(LARGE), login) for login in refused]
    codes = [each.code for each in answers if isinstance(each, wire.Failed)]
    assert codes == ["ACCESS_DENIED", "TOKEN_WITHDRAWN", "TOKEN_WITHDRAWN", "ACCESS_DENIED"]


def test_a_large_call_that_is_refused_leaves_nothing() -> None:
    """What is raised keeps the frame in a cycle, for which the collector comes late."""
    gc.collect()
    gc.disable()
    try:
        frame = bytearray(wire.encode(LARGE))
        answer_of(memoryview(frame), Login("changer", "here", "a" * 64))
        # Nobody has a view of it any more.
        frame.clear()
    finally:
        gc.enable()


def test_a_call_is_what_its_envelope_says_though_it_says_two_things() -> None:
    """The last name of a map counts for the envelope; who decodes all of it must not build what the first one says."""
    for last, told in (("Ping", "Invalid value 'Apply'"), ("NoCall", "there is no call 'NoCall' here")):
        one = msgspec.msgpack.encode(
            {"version": 1, "journal": "j", "request": "r", "type": "Apply", "definitions": {}, "tipe": last}
        )
        with pytest.raises(CoordinatorError, match=rf"FRAME_MALFORMED.*{told}"):
            wire.decode_request(one.replace(b"tipe", b"type"))
