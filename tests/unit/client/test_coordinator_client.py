"""The calling side: whom it asks, how often, how long, and when it starts a coordinator (DESIGN 6)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from spark_queue import Journal
from spark_queue.client import coordinator_client as client_module
from spark_queue.client.coordinator_client import APPLY_ATTEMPT_S, ATTEMPT_S, CALL_S, FOLLOW_S, START_S, CoordinatorClient
from spark_queue.core import commands, replies
from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.journal.store import ADVERTISEMENT_KEY, Store
from spark_queue.protocol import user_files, wire
from spark_queue.protocol.connection import ConnectionLostError, Presence
from spark_queue.protocol.discovery import Advertisement
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.protocol.host import host_id

HERE, STARTED = "grpc://127.0.0.1:1", "grpc://127.0.0.1:2"
UNKNOWN = wire.failed(ConfigError("UNKNOWN_QUEUE", queue="Q", nearest=""))
DEPOSED = CoordinatorError("COORDINATOR_DEPOSED", epoch=1, path="p", reason="r")


class World:
    """A host on which coordinators answer as they are told, and whose time passes only in calls and pauses."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.hint: Any = None
        #: What an address answers, one after the other; the last one for ever. A number is so many seconds of silence.
        self.answers: dict[str, list[Any]] = {}
        self.starts: list[Any] = []
        self.asked: list[tuple[str, float]] = []
        self.requests: list[Any] = []
        self.pinged: list[str] = []
        self.locked = 0
        #: Of each connection, whether it is asked before a token is sent there.
        self.guarded: list[bool] = []

    def connect(self, address: str, journal_id: str, place: str, _: Callable[[], str], check_sends: Any) -> Any:
        assert (journal_id, place) == ("J", "bucket/journal")
        self.guarded.append(check_sends is not None)

        def call(request: Any, *, timeout_s: float) -> Any:
            self.asked.append((address, timeout_s))
            self.requests.append(request)
            queue = self.answers[address]
            answer = queue.pop(0) if len(queue) > 1 else queue[0]
            if isinstance(answer, tuple):
                seconds, answer = answer
                self.now_s += seconds
            if isinstance(answer, float):
                self.now_s += min(answer, timeout_s)
                raise ConnectionLostError("silence", presence=Presence.SILENT)
            return answer, []

        def ping(*, timeout_s: float) -> Presence:
            self.pinged.append(address)
            return Presence.SERVES if address in self.answers else Presence.GONE

        return SimpleNamespace(address=address, call=call, ping=ping, close=lambda: None)

    def launch(self, orders: Any, *, timeout_s: float) -> str:
        assert (orders.path, orders.journal_id) == ("s3://bucket/journal", "J")
        assert timeout_s >= 0
        outcome = self.starts.pop(0)
        if isinstance(outcome, tuple):
            seconds, outcome = outcome
            self.now_s += min(seconds, timeout_s)
            if seconds > timeout_s:
                raise CoordinatorError("COORDINATOR_UNAVAILABLE", path="p", reason="it did not report.", log="l")
        if isinstance(outcome, Exception):
            self.now_s += 1
            raise outcome
        return str(outcome)

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds

    @contextmanager
    def lock(self, journal_id: str, *, timeout_s: float) -> Iterator[None]:
        assert 0 < timeout_s <= CALL_S + START_S
        self.locked += 1
        yield


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(client_module, "Connection", made.connect)
    monkeypatch.setattr("spark_queue.client.launcher.launch", made.launch)
    monkeypatch.setattr(client_module, "read_advertisement", lambda store, journal_id: made.hint)
    monkeypatch.setattr(user_files, "start_lock", made.lock)
    monkeypatch.setattr(client_module, "time", SimpleNamespace(monotonic=lambda: made.now_s, sleep=made.sleep))
    return made


def hinted(address: str = HERE, *, host: str | None = None) -> Any:
    return SimpleNamespace(address=address, host=host or host_id())


def client(**options: Any) -> CoordinatorClient:
    return CoordinatorClient(Store("s3://bucket/journal"), "J", **options)


def request(kind: Any = commands.Pause, **fields: Any) -> Any:
    return kind(queue="Q", **fields)


def test_hinted_coordinator_is_asked_if_it_answers_and_its_connection_is_kept(host: World) -> None:
    host.hint, host.answers = hinted(), {HERE: [replies.Done()]}
    asking = client()
    assert [asking.call(request()) for _ in range(2)] == [replies.Done()] * 2
    assert (host.pinged, [address for address, _ in host.asked], host.locked) == ([HERE], [HERE] * 2, 0)


@pytest.mark.parametrize("address", ["grpc://[bad", "nonsense"])
def test_a_hint_that_is_no_address_keeps_nobody_from_a_coordinator(
    host: World, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def connect(asked: str, journal_id: str, place: str, token: Callable[[], str], check: Any) -> Any:
        if asked == address:
            raise ConfigError("BAD_VALUE", key="coordinator", where="the call", value=address, expected="HOST:PORT")
        return host.connect(asked, journal_id, place, token, check)

    monkeypatch.setattr(client_module, "Connection", connect)
    host.hint, host.answers, host.starts = hinted(address, host="another"), {STARTED: [replies.Done()]}, [STARTED]
    assert client().call(request()) == replies.Done()


def test_a_call_names_the_journal_and_an_id_of_its_own_which_it_keeps_when_it_is_made_again(host: World) -> None:
    host.hint, host.answers = hinted(), {HERE: [4.0, replies.Done()]}
    asking = client()
    for _ in range(2):
        asking.call(request())
    first, again, second = host.requests
    assert first == again
    assert {each.journal for each in host.requests} == {"J"}
    assert len({first.request, second.request, ""}) == 3


@pytest.mark.parametrize("hint", [None, hinted("grpc://127.0.0.1:9"), hinted(host="another")], ids=["none", "silent", "elsewhere"])
def test_one_is_started_under_the_lock_where_none_answers(host: World, hint: Any) -> None:
    """A loopback address that another host hints at leads to a stranger, even if somebody answers there."""
    host.hint, host.answers, host.starts = hint, {STARTED: [replies.Done()], HERE: [UNKNOWN]}, [STARTED]
    assert client().call(request()) == replies.Done()
    assert ([address for address, _ in host.asked], host.locked) == ([STARTED], 1)
    assert all(host.guarded), "whoever was started may tell of somebody whom the journal names"


def test_whoever_waited_for_the_lock_finds_what_the_other_started(host: World, monkeypatch: pytest.MonkeyPatch) -> None:
    host.answers = {HERE: [replies.Done()]}

    @contextmanager
    def lock(journal_id: str, *, timeout_s: float) -> Iterator[None]:
        host.hint = hinted()
        yield

    monkeypatch.setattr(user_files, "start_lock", lock)
    assert client().call(request()) == replies.Done()


def test_hint_of_another_host_is_followed_where_its_address_leads_there(host: World) -> None:
    host.hint, host.answers = hinted("grpc+tls://10.0.0.7:1", host="another"), {"grpc+tls://10.0.0.7:1": [replies.Done()]}
    assert client().call(request()) == replies.Done()


def test_hint_that_would_let_the_token_cross_the_network_in_clear_is_not_followed(host: World) -> None:
    """Whoever can write the hint must not get the tokens of all callers."""
    host.hint, host.answers = hinted("grpc://10.0.0.7:1", host="another"), {"grpc://10.0.0.7:1": [replies.Done()]}
    with pytest.raises(CoordinatorError, match="COORDINATOR_UNAVAILABLE"):
        client(start=False).call(request())
    assert not host.asked


def test_caller_that_starts_none_says_so(host: World) -> None:
    with pytest.raises(CoordinatorError, match="COORDINATOR_UNAVAILABLE.*does not start one"):
        client(start=False).call(request())


def test_coordinator_elsewhere_is_neither_searched_nor_started(host: World) -> None:
    host.answers = {"grpc://far:1": [replies.Done()]}
    assert client(endpoint=Endpoint("grpc://far:1")).call(request()) == replies.Done()
    assert (host.pinged, host.locked, host.guarded) == ([], 0, [False])


def test_of_several_addresses_the_one_that_serves_is_asked_and_kept(host: World) -> None:
    host.answers = {"grpc+tls://b:1": [replies.Done()]}
    asking = client(endpoint=Endpoint("a:1, b:1"))
    assert [asking.call(request()) for _ in range(2)] == [replies.Done()] * 2
    assert (host.pinged, len(host.asked), host.locked) == (["grpc+tls://a:1", "grpc+tls://b:1"], 2, 0)


def test_one_that_is_lost_or_stands_by_is_left_for_the_next_with_the_same_request(host: World) -> None:
    stands_by = wire.failed(CoordinatorError("COORDINATOR_STANDS_BY", path="p"))
    host.answers = {"grpc+tls://a:1": [replies.Done(), 4.0, stands_by], "grpc+tls://b:1": [stands_by, replies.Done()]}
    asking = client(endpoint=Endpoint("a:1,b:1"))
    asking.call(request())
    host.requests.clear()
    assert asking.call(request()) == replies.Done()
    assert [address[-3] for address, _ in host.asked] == ["a", "a", "b", "a", "b"]
    assert len({each.request for each in host.requests}) == 1


def test_callers_wait_for_a_stand_in_to_take_over_and_not_for_ever(host: World) -> None:
    host.answers = {}
    asking = client(endpoint=Endpoint("a:1,b:1"))
    began_s = host.now_s
    with pytest.raises(CoordinatorError, match=r"COORDINATOR_UNAVAILABLE.*none of grpc\+tls://a:1, grpc\+tls://b:1 serves"):
        asking.call(request())
    assert host.now_s - began_s == pytest.approx(FOLLOW_S, abs=1)
    assert len(host.pinged) < 1_000


def test_an_address_that_is_none_is_refused(host: World) -> None:
    with pytest.raises(ConfigError, match="BAD_VALUE.*coordinator"):
        client(endpoint=Endpoint("a:1,")).call(request())


def test_lost_election_is_tried_again_and_any_other_failure_of_a_start_is_told(host: World) -> None:
    host.answers, host.starts = {STARTED: [replies.Done()]}, [DEPOSED, DEPOSED, STARTED]
    assert client().call(request()) == replies.Done()
    host.starts = [CoordinatorError("COORDINATOR_ELSEWHERE", path="p", host="h", pid=7, address="grpc://127.0.0.1:1", age_s=1)]
    with pytest.raises(CoordinatorError, match="COORDINATOR_ELSEWHERE"):
        client().call(request())
    host.starts = [DEPOSED] * 9
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        client().call(request(), timeout_s=3)
    assert len(host.starts) == 6


def test_a_host_that_cannot_start_a_process_is_told_as_one_that_has_none(host: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever renews a lease tries again: there may be memory, or descriptors, by then."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("spark_queue.client.launcher.launch", refuse)
    with pytest.raises(CoordinatorError, match="COORDINATOR_UNAVAILABLE.*could not start it: .*Too many open files"):
        client().call(request())


def test_silence_and_a_coordinator_that_is_not_there_yet_are_asked_again_and_a_refusal_is_told_at_once(host: World) -> None:
    recovering = wire.Failed(code="COORDINATOR_RECOVERING", facts={})
    host.hint, host.answers = hinted(), {HERE: [0.5, recovering, wire.failed(DEPOSED), replies.Done()]}
    assert client().call(request()) == replies.Done()
    assert len(host.asked) == 4
    # Only silence has the coordinator looked for anew.
    assert len(host.pinged) == 2
    host.answers = {HERE: [UNKNOWN]}
    with pytest.raises(ConfigError, match="UNKNOWN_QUEUE"):
        client().call(request())
    assert len(host.asked) == 5


def test_nobody_waits_longer_than_asked_for(host: World) -> None:
    host.hint, host.answers = hinted(), {HERE: [100.0]}
    began_s = host.now_s
    with pytest.raises(CoordinatorError, match="COORDINATOR_UNAVAILABLE.*did not answer: silence"):
        client().call(request(), timeout_s=10)
    assert host.now_s - began_s == pytest.approx(10)
    *full, last = [timeout_s for _, timeout_s in host.asked]
    assert full == [ATTEMPT_S] * 2
    assert last < ATTEMPT_S


def test_silence_of_an_attempt_that_is_cut_short_does_not_hide_why_the_others_failed(host: World) -> None:
    host.hint, host.answers = hinted(), {HERE: [wire.Failed(code="COORDINATOR_RECOVERING", facts={}), 100.0]}
    with pytest.raises(CoordinatorError, match="COORDINATOR_UNAVAILABLE.*answered COORDINATOR_RECOVERING"):
        client().call(request(), timeout_s=ATTEMPT_S / 2)


@pytest.mark.parametrize(
    ("asked", "attempt_s"),
    [
        (request(commands.Next, subscription="s", incarnation=(1, 1), call=1, finished=0, limit=1, wait_ms=2_500), ATTEMPT_S + 2.5),
        (commands.Apply(journal="J", request="r", definitions={}), APPLY_ATTEMPT_S),
        (request(commands.Purge), APPLY_ATTEMPT_S),
        (request(), ATTEMPT_S),
    ],
)
def test_attempt_waits_as_long_as_its_request_may_take(host: World, asked: Any, attempt_s: float) -> None:
    host.hint, host.answers = hinted(), {HERE: [replies.Done()]}
    client().call(asked)
    assert host.asked == [(HERE, attempt_s)]


def test_closed_client_finds_the_coordinator_anew(host: World) -> None:
    host.hint, host.answers = hinted(), {HERE: [replies.Done()]}
    asking = client()
    for _ in range(2):
        asking.call(request())
        asking.close()
    assert host.pinged == [HERE] * 2


RECOVERING = wire.failed(CoordinatorError("COORDINATOR_RECOVERING", path="p"))
LOST = wire.failed(DEPOSED)


def test_the_start_and_the_recovery_of_a_coordinator_are_no_silence(host: World) -> None:
    host.starts, host.answers = [(50.0, STARTED)], {STARTED: [(29.0, LOST), replies.Done()]}
    assert client().call(request()) == replies.Done()
    host.hint, host.answers = hinted(), {HERE: [(20.0, RECOVERING), (25.0, RECOVERING), (29.0, LOST), replies.Done()]}
    assert client().call(request()) == replies.Done()


@pytest.mark.parametrize(("seconds", "options"), [(START_S + CALL_S + 1, {}), (31.0, {"timeout_s": 30.0})])
def test_a_start_that_takes_too_long_is_told(host: World, seconds: float, options: dict[str, float]) -> None:
    host.starts, host.answers = [(seconds, STARTED)], {STARTED: [replies.Done()]}
    with pytest.raises(CoordinatorError, match="COORDINATOR_UNAVAILABLE"):
        client().call(request(), **options)


def test_a_coordinator_that_recovers_for_ever_is_left(host: World) -> None:
    host.hint, host.answers = hinted(), {HERE: [(3.0, RECOVERING)]}
    with pytest.raises(CoordinatorError, match="COORDINATOR_RECOVERING"):
        client().call(request())
    assert CALL_S + START_S <= host.now_s - 1_000 < CALL_S + START_S + 4


@pytest.mark.parametrize("serves", [True, False])
def test_what_a_backup_says_of_its_coordinator_goes_unless_somebody_serves_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, serves: bool
) -> None:
    journal = Journal.create(str(tmp_path / "shop"))
    journal_id, place = journal.journal_id(), Path(journal.path, ADVERTISEMENT_KEY)
    told = Advertisement(journal=journal_id, address=HERE, host=host_id(), host_name="h", epoch=1, pid=1, renewed_at_ms=0)
    place.write_bytes(msgspec.json.encode(told))
    monkeypatch.setattr(CoordinatorClient, "_serves", lambda *_: serves)
    monkeypatch.setattr(client_module, "call_once", lambda *_, **__: replies.Done())
    journal.mark_restored(after=0)
    assert place.exists() == serves
