"""The server and the tokens of principals, over the wire (R12)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from spark_queue.coordinator.inbox import Call, Inbox
from spark_queue.coordinator.logins import CallerTokens, Login
from spark_queue.coordinator.server import Admission, Server
from spark_queue.core import replies
from spark_queue.core.definitions import parsing
from spark_queue.errors import CoordinatorError
from spark_queue.protocol import user_files, wire
from spark_queue.protocol.connection import Connection, Presence
from spark_queue.protocol.host import Bind
from spark_queue.protocol.tokens import new_token, token_hash

TOKEN = new_token()
NUDGE = wire.Nudge(journal="j", request="r", message_type="json")
DEFINITIONS = parsing.parse({"principals": {"ops": {"token_hash": token_hash(TOKEN), "rights": [{"rights": ["administer"]}]}}})


class Served:
    """A server whose calls are answered by a thread, which keeps who made them."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.logins = CallerTokens("own", pause=self.waits.append)
        self.admission = Admission(path="/journals/j", journal_id="j")
        self.server = Server(bind=Bind(), logins=self.logins, journal_id="j", admission=self.admission, location=lambda: "p")
        self.inbox = Inbox()

    def recover(self) -> None:
        self.admission.claimed(1)
        self.logins.know(lambda: DEFINITIONS)
        self.admission.open(self.inbox)

    def ask(self, token: str) -> Call:
        calls: list[Call] = []

        def answer() -> None:
            (call,) = self.inbox.take(10.0)
            calls.append(call)
            call.answer(replies.Done())

        thread = threading.Thread(target=answer)
        thread.start()
        reply, _ = self.connection(token).call(NUDGE, timeout_s=60.0)
        thread.join()
        assert reply == replies.Done()
        return calls[0]

    def connection(self, token: str) -> Connection:
        return Connection(self.server.address, "j", "p", lambda: token)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    served = Served()
    yield served
    # A call that nobody answered would keep its thread, and so this process.
    for call in served.inbox.close():
        call.answer(None)
    served.server.shutdown()


def test_a_call_carries_whose_token_it_has_and_where_it_came_from(served: Served) -> None:
    served.recover()
    assert served.ask(TOKEN).who == Login("ops", "127.0.0.1", token_hash(TOKEN))
    assert served.ask("own").who == Login(None, "127.0.0.1")


def test_a_token_that_nobody_has_is_refused_counted_and_slowed(served: Served) -> None:
    served.recover()
    for _ in range(5):
        with pytest.raises(CoordinatorError, match="UNAUTHENTICATED"):
            served.connection(new_token()).call(NUDGE, timeout_s=60.0)
    assert served.logins.failed == 5
    assert served.waits == [0.05, 0.1]


@pytest.mark.parametrize("refusal", [None, "TOKEN_EXPIRED", "TOKEN_WITHDRAWN"])
def test_a_refused_token_is_read_again_and_the_call_made_with_the_new_one(served: Served, refusal: str | None) -> None:
    """R12: a stream goes on when its token is replaced, whether the old one is unknown by now or was refused by name."""
    served.recover()
    old = new_token() if refusal is None else "own"
    tokens = [old, TOKEN]
    connection = Connection(served.server.address, "j", "p", lambda: tokens.pop(0))
    answers: list[wire.AnyReply] = [] if refusal is None else [wire.Failed(code=refusal, facts={"principal": "ops"})]
    seen: list[Login | None] = []

    def answer() -> None:
        for reply in (*answers, replies.Done()):
            (call,) = served.inbox.take(10.0)
            seen.append(call.who)
            call.answer(reply)

    thread = threading.Thread(target=answer)
    thread.start()
    assert connection.call(NUDGE, timeout_s=60.0)[0] == replies.Done()
    thread.join()
    assert seen[-1] == Login("ops", "127.0.0.1", token_hash(TOKEN))
    assert tokens == []


def test_a_refused_token_that_has_not_changed_is_tried_once(served: Served) -> None:
    served.recover()
    with pytest.raises(CoordinatorError, match="UNAUTHENTICATED"):
        served.connection("a guess").call(NUDGE, timeout_s=60.0)
    assert served.logins.failed == 1


@pytest.mark.parametrize(
    ("epoch", "code", "presence"),
    [(0, "COORDINATOR_STANDS_BY", Presence.GONE), (3, "COORDINATOR_RECOVERING", Presence.SERVES)],
    ids=["stands by", "recovers"],
)
def test_before_it_serves_a_principal_is_told_why_not_and_a_stranger_is_refused(
    served: Served, epoch: int, code: str, presence: Presence
) -> None:
    """Nobody knows the principals yet; who recovers must not be taken for gone, nor who stands by for the one that serves."""
    if epoch:
        served.admission.claimed(epoch)
    reply, _ = served.connection(TOKEN).call(NUDGE, timeout_s=60.0)
    assert isinstance(reply, wire.Failed)
    assert (reply.code, reply.facts) == (code, {"path": "j"})
    assert served.connection(TOKEN).ping(timeout_s=60.0) is presence
    with pytest.raises(CoordinatorError, match="UNAUTHENTICATED"):
        served.connection("a guess").ping(timeout_s=60.0)
    assert Connection(served.server.address, "other", "p", lambda: TOKEN).ping(timeout_s=60.0) is Presence.GONE


@pytest.mark.parametrize(
    ("lookup", "token"),
    [("principal_of", "own"), ("keys_of_principals", TOKEN)],
    ids=["the own token, which a principal may have", "a principal who asks for a proof"],
)
def test_who_was_looked_up_before_it_recovered_is_told_to_ask_again(
    served: Served, monkeypatch: pytest.MonkeyPatch, lookup: str, token: str
) -> None:
    """R12: whoever starts a coordinator by a principal's token has its rights, and is not refused for those of the host."""
    served.admission.claimed(1)
    served.admission.refuse(CoordinatorError("COORDINATOR_UNAVAILABLE", path="/journals/j", reason="a store was away.", log="l"))
    looked_up = getattr(served.logins, lookup)

    def look_up(*asked: bytes) -> object:
        found = looked_up(*asked)
        found = found if found is None or isinstance(found, tuple) else list(found)
        if not served.logins.knows_principals:
            served.recover()
        return found

    monkeypatch.setattr(served.logins, lookup, look_up)
    reply, _ = served.connection(token).call(NUDGE, timeout_s=10.0)
    assert isinstance(reply, wire.Failed)
    assert reply.code == "COORDINATOR_RECOVERING"
    assert served.logins.knows_principals
    assert served.ask(token).who is not None


def test_what_somebody_unknown_asks_is_not_read_and_chooses_nothing_in_the_log() -> None:
    """Millions of ranges would cost a stand-in gigabytes, whoever sends them."""
    refused: list[tuple[wire.AnyRequest | None, str]] = []
    admission = Admission(path="/journals/j", journal_id="j", refused=lambda request, code: refused.append((request, code)))
    unreadable = {"type": "Redrive", "version": 1, "journal": "j", "queue": "WORK", "ranges": "what no decoder would take"}
    reply = admission.answer_unknown(msgspec.msgpack.encode(unreadable))
    assert isinstance(reply, wire.Failed)
    assert reply.code == "COORDINATOR_STANDS_BY"
    assert refused == [(None, "COORDINATOR_STANDS_BY")]
    assert admission.answer_unknown(msgspec.msgpack.encode({**unreadable, "version": 2})) is None


def test_the_token_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv(user_files.TOKEN_VARIABLE, f" {TOKEN}\n")
    assert user_files.token() == TOKEN
    assert not (tmp_path / "spark_queue").exists()
