"""What of a call is read and translated before the loop hears it, and only for who may ask (DESIGN 8)."""

from __future__ import annotations

import threading
from functools import partial

import pyarrow as pa
import pytest

from spark_queue.coordinator.commands import refusal_ahead, translate_ahead
from spark_queue.coordinator.inbox import ClosedError, Inbox
from spark_queue.coordinator.logins import Login
from spark_queue.coordinator.server import LARGE_BYTES, Admission
from spark_queue.core import commands, replies
from spark_queue.core.definitions import parsing
from spark_queue.errors import ConfigError
from spark_queue.expression import Wanted, program
from spark_queue.expression.program import Program
from spark_queue.journal import traits
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
        traits._check_command(purge("n > 1e"), DEFINITIONS.queue)


def test_who_may_not_ask_has_nothing_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert translated(purge("n > 6"), "stranger", monkeypatch) == []
    assert translated(purge("n > 6"), "nobody", monkeypatch) == []
    assert translated(commands.Apply(journal="j", request="r", definitions=STORED), "changer", monkeypatch) == []


@pytest.mark.parametrize(("principal", "is_read"), [("changer", False), ("ops", True)])
def test_what_a_large_call_holds_is_read_for_who_may_ask_that(
    monkeypatch: pytest.MonkeyPatch, principal: str, is_read: bool
) -> None:
    """R12: some megabytes of empty maps are gigabytes, and nobody else is heard while they are made."""
    apply = commands.Apply(journal="j", request="r", definitions={"queues": {str(name): {} for name in range(100_000)}})
    admission = Admission(path="/journals/j", journal_id="j")
    admission.claimed(1)
    inbox = Inbox()
    inbox.close()
    admission.open(inbox, refuse_ahead=partial(refusal_ahead, DEFINITIONS))
    frame, login = wire.encode(apply), Login(principal, "here", "x")
    assert len(frame) > LARGE_BYTES
    if is_read:
        with pytest.raises(ClosedError):
            admission.answer(frame, lambda: False, login)
        return
    monkeypatch.setattr(wire, "decode_request", None)
    reply, _ = admission.answer(frame, lambda: False, login)
    assert isinstance(reply, wire.Failed)
    assert reply.code == "ACCESS_DENIED"
