"""What a planner says to the coordinator: numbered calls of one incarnation, renewals, a leave (DESIGN 7, P1, P6)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from spark_queue.client import coordinator_client
from spark_queue.clock import steady_s
from spark_queue.core import commands, replies
from spark_queue.errors import CallerError, CoordinatorError, LeaseError
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.settings.types import QueueStreamOptions
from spark_queue.source import planner as planner_module
from spark_queue.source.planner import QueuePlanner

PERIOD_MS = 60_000
COLUMNS = "value STRING"
ROWS: Any = object()
PIECES: Any = object()


class Client:
    """A connection that hears everything, and answers as a coordinator does."""

    made: list[Client]
    #: The columns of the message type.
    columns = COLUMNS

    def __init__(self, store: Any, journal_id: str, *, endpoint: Endpoint, start: bool = True) -> None:
        assert (store.path, store.storage_options, journal_id, endpoint.addresses) == ("/j", {"a": "b"}, "J", "grpc://far:1")
        self.start = start
        self.heard: list[Any] = []
        self.timeouts: list[float | None] = []
        self.closed = False
        self.lease = 7
        #: The places that come with a grant.
        self.pieces: Any = None
        #: Set once the word is there that rows were taken.
        self.told = threading.Event()
        self.refusal: Exception | None = None
        self.made.append(self)

    def call(self, request: Any, *, timeout_s: float | None = None) -> Any:
        self.heard.append(request)
        self.timeouts.append(timeout_s)
        if isinstance(request, commands.DrawIncarnation):
            return replies.Drawn(
                incarnation=(2, 5), lease_period_ms=PERIOD_MS, message_type="json", columns=self.columns, at_most_once=False
            )
        if isinstance(request, commands.Next):
            has_others = request.columns not in (None, self.columns)
            return replies.Granted(
                lease=request.finished if has_others else self.lease, messages=1, leased_until_ms=9,
                lease_period_ms=PERIOD_MS // 2, remaining_ms=PERIOD_MS // 2, columns=self.columns,
            )  # fmt: skip
        if isinstance(request, commands.RowsTaken):
            self.told.set()
        if isinstance(request, commands.Renew):
            return replies.Renewed(lease_period_ms=PERIOD_MS * 2)
        if isinstance(request, commands.Leave | commands.RowsTaken) and (refusal := type(self).made[0].refusal) is not None:
            raise refusal
        return replies.Done()

    def next_with_rows(self, request: Any) -> Any:
        return self.call(request), self.pieces

    def rows(self, request: Any) -> Any:
        self.heard.append(request)
        return ROWS

    def close(self) -> None:
        self.closed = True


class Renewer:
    """Notes what is held."""

    def __init__(self, renew: Any) -> None:
        self.renew = renew
        self.held: list[tuple[int | None, int] | str] = []

    def hold(self, lease: int | None, *, lease_period_ms: int) -> None:
        self.held.append((lease, lease_period_ms))

    def stop(self) -> None:
        self.held.append("stopped")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    Client.made, Client.columns = [], COLUMNS
    for module in (planner_module, coordinator_client):
        monkeypatch.setattr(module, "CoordinatorClient", Client)
    monkeypatch.setattr("spark_queue.source.planner.LeaseRenewer", Renewer)
    return Client


def seated(*, available_now: bool = False, columns: str | None = None) -> tuple[QueuePlanner, Client, Renewer]:
    options = QueueStreamOptions(
        journal="/j", storage={"a": "b"}, coordinator="grpc://far:1", queue="Q", subscription="s", ack_mode="explicit",
        max_backlog=9, filter="id > 1", columns=None, min_partitions=None,
    )  # fmt: skip
    planner = QueuePlanner(options, "J", columns=columns, available_now=available_now)
    renewer: Any = planner._renewer
    return planner, Client.made[0], renewer


def granted_with_rows() -> tuple[QueuePlanner, Client]:
    """Return a planner with lease 7, whose rows came with the grant."""
    planner, heard, _ = seated()
    heard.pieces = PIECES
    planner.next(finished=0, limit=3, wait_ms=1)
    return planner, heard


@pytest.mark.parametrize("available_now", [False, True])
def test_planner_attaches_with_what_it_drew_and_asks_for(client: type[Client], *, available_now: bool) -> None:
    _, heard, _ = seated(available_now=available_now)
    _, attach = heard.heard
    assert (attach.queue, attach.subscription, attach.incarnation, attach.call) == ("Q", "s", (2, 5), 1)
    assert (attach.ack_mode, attach.max_backlog, attach.filter) == ("explicit", 9, "id > 1")
    assert attach.available_now is available_now


def test_calls_are_numbered(client: type[Client]) -> None:
    """P1: a call that was overtaken is known by its number."""
    planner, heard, _ = seated()
    planner.next(finished=0, limit=3, wait_ms=1)
    assert planner.rows(7) is ROWS
    planner.next(finished=7, limit=4, wait_ms=2)
    _, attach, first, rows, second = heard.heard
    assert [each.call for each in (attach, first, rows, second)] == [1, 2, 3, 4]
    assert all(each.incarnation == (2, 5) for each in (first, rows, second))
    assert (first.finished, first.limit, first.wait_ms, rows.lease) == (0, 3, 1, 7)


def test_lease_is_renewed_from_its_grant_and_from_its_resume_and_not_when_nothing_is_there(client: type[Client]) -> None:
    planner, heard, renewer = seated()
    planner.rows(6)
    planner.next(finished=6, limit=1, wait_ms=0)
    heard.lease = 7
    planner.next(finished=7, limit=1, wait_ms=0)
    assert renewer.held == [(6, PERIOD_MS), (7, PERIOD_MS // 2), (None, PERIOD_MS // 2)]


def test_no_rows_come_without_values_of_columns_that_were_appended_since_the_load(client: type[Client]) -> None:
    """R61: each poll names the columns by which its rows are read, and one that has others is granted nothing."""
    planner, heard, renewer = seated(columns="value  string")
    planner.next(finished=0, limit=3, wait_ms=1)
    # The same in other words is no other, however often it changes.
    client.columns = "value string"
    assert planner.next(finished=0, limit=3, wait_ms=1).lease == 7
    client.columns += ", added BIGINT, more STRING"
    with pytest.raises(CallerError, match=r"COLUMNS_APPENDED.*'json' was given 'added', 'more' after"):
        planner.next(finished=7, limit=3, wait_ms=1)
    assert renewer.held == [(7, PERIOD_MS // 2)] * 2
    polls = [each for each in heard.heard if isinstance(each, commands.Next)]
    assert [each.columns for each in polls] == [COLUMNS, COLUMNS, "value string", "value string"]
    assert [each.call for each in polls] == [2, 3, 4, 5]


def test_a_stream_of_chosen_columns_keeps_them(client: type[Client]) -> None:
    planner, heard, _ = seated()
    client.columns += ", added BIGINT"
    planner.next(finished=0, limit=3, wait_ms=1)
    assert heard.heard[-1].columns is None


def test_a_stream_that_was_loaded_before_columns_were_appended_does_not_begin(client: type[Client]) -> None:
    client.columns += ", added BIGINT"
    with pytest.raises(CallerError, match="COLUMNS_APPENDED"):
        seated(columns=COLUMNS)
    assert [type(each) for each in client.made[0].heard] == [commands.DrawIncarnation]


def test_a_poll_that_finds_nothing_says_nothing_of_columns(client: type[Client]) -> None:
    planner, heard, _ = seated(columns=COLUMNS)
    client.columns, heard.lease = "", 5
    assert planner.next(finished=5, limit=3, wait_ms=1).lease == 5


def test_rows_that_came_with_a_grant_are_not_asked_for_and_stay_the_same(client: type[Client]) -> None:
    """P1, P3: that Spark has them is told beside its batch, once."""
    planner, heard = granted_with_rows()
    given = planner.rows(7)
    assert (given.lease, given.leased_until_ms, given.message_type, given.pieces) == (7, 9, "json", PIECES)
    assert planner.rows(7) is given
    assert heard.told.wait(10)
    _, _, asked, word = heard.heard
    assert isinstance(word, commands.RowsTaken)
    assert (word.lease, word.call, word.incarnation) == (7, asked.call + 1, (2, 5))


def test_rows_of_another_lease_or_of_one_that_may_have_ended_are_asked_for(
    client: type[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    planner, heard = granted_with_rows()
    assert planner.rows(6) is ROWS
    # One that goes on while the machine sleeps, as a lease does.
    until_s = steady_s() + PERIOD_MS / 2_000
    monkeypatch.setattr(planner_module, "steady_s", lambda: until_s)
    assert planner.rows(7) is ROWS
    assert not heard.told.is_set()
    planner.leave()
    assert client.made[1].heard[0].taken == 0


def test_a_leave_tells_of_rows_that_spark_was_given(client: type[Client]) -> None:
    """P6: the word by itself may come too late."""
    planner, _ = granted_with_rows()
    planner.rows(7)
    planner.leave()
    assert client.made[1].heard[0].taken == 7


def test_a_word_that_is_refused_ends_nothing(client: type[Client]) -> None:
    """It was overtaken: its lease is proven by then."""
    planner, heard = granted_with_rows()
    heard.refusal = LeaseError("STALE_CALL", subscription="s", call=1, newest=2)
    given = planner._given
    assert given is not None
    planner._tell(planner._numbered(commands.RowsTaken, lease=7))
    assert planner.rows(7) is given.rows


def test_renewal_has_no_number_and_waits_a_third_of_the_period_that_was_told_last(client: type[Client]) -> None:
    _, heard, renewer = seated()
    assert [renewer.renew(7), renewer.renew(7)] == [PERIOD_MS * 2] * 2
    assert [(each.lease, each.call, each.incarnation) for each in heard.heard[2:]] == [(7, 0, (2, 5))] * 2
    assert heard.timeouts[2:] == [PERIOD_MS / 3_000, PERIOD_MS * 2 / 3_000]


@pytest.mark.parametrize("heard_of", [True, False])
def test_leave_starts_no_coordinator_and_leaves_nothing_open(client: type[Client], *, heard_of: bool) -> None:
    planner, own, renewer = seated()
    if not heard_of:
        own.refusal = CoordinatorError("COORDINATOR_UNAVAILABLE", path="j", reason="gone.", log="l")
    planner.leave()
    _, last = client.made
    (leave,) = last.heard
    assert isinstance(leave, commands.Leave)
    assert (leave.incarnation, leave.call, last.start) == ((2, 5), 0, False)
    assert (last.timeouts[0] or 0) > 0
    assert renewer.held == ["stopped"]
    assert own.closed
    assert last.closed
