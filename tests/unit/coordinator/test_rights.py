"""Who may ask what: each right with each call, as one table says, and whose a subscription is (R12)."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from spark_queue.coordinator.rights import HOST, refusal_ahead
from spark_queue.core import commands, replies
from spark_queue.core.deciding import handlers
from spark_queue.core.definitions.keys import ADMINISTER, CHANGE, READ, RIGHTS, WRITE
from spark_queue.protocol import wire
from spark_queue.protocol.tokens import token_hash
from tests.records import detail_of
from tests.unit.coordinator.loop_world import DEFINITIONS, Planner, World

WHO = {"queue": "WORK", "subscription": "s"}
PLANNER = {**WHO, "incarnation": (1, 1), "call": 9}
RUN = replies.Run(incarnation=(1, 1), lease=0)

#: Of each command one that is well-formed, by its fields.
SAMPLES: dict[type[commands.Command], dict[str, Any]] = {
    commands.DrawIncarnation: WHO,
    commands.Attach: {**PLANNER, "ack_mode": "auto", "max_backlog": 5},
    commands.Next: {**PLANNER, "finished": 0, "limit": 5},
    commands.Rows: {**PLANNER, "lease": 0},
    commands.RowsTaken: {**PLANNER, "lease": 0},
    commands.Renew: {**PLANNER, "lease": 0},
    commands.Leave: PLANNER,
    commands.SettleHeld: {**WHO, "outcomes": (commands.OutcomeRows(outcome="acknowledge", ranges=((0, 1),), lease=1),)},
    commands.StartRun: WHO,
    commands.EndRun: {**WHO, "run": RUN},
    commands.Prove: {**WHO, "run": RUN},
    commands.Prepare: {**WHO, "run": RUN, "table": "lake/booked", "table_id": "t"},
    commands.Landed: {**WHO, "attempt": 1},
    commands.Fenced: {**WHO, "attempt": 1},
    commands.SinkUnreadable: {**WHO, "attempt": 1, "error": "gone"},
    commands.FindAttempts: {"queue": "WORK"},
    commands.Settle: {"queue": "WORK", "outcomes": (commands.OutcomeRows(outcome="acknowledge", ranges=((0, 1),)),)},
    commands.SettleWhere: {"queue": "WORK", "where": "id > 1", "outcome": "acknowledge"},
    commands.Purge: {"queue": "WORK"},
    commands.FindDeadLetters: {"queue": "WORK"},
    commands.Redrive: {"queue": "WORK", "ranges": ((0, 1),)},
    commands.Unsubscribe: WHO,
    commands.Pause: {"queue": "WORK"},
    commands.Unpause: {"queue": "WORK"},
    commands.ProxiedTransfer: {"queue": "WORK", "on": True},
    commands.Revive: {"queue": "WORK"},
    commands.Follow: {"message_type": "json"},
    commands.GiveUpFiles: {"message_type": "json"},
    commands.ForgetLost: {"message_type": "json"},
    commands.Apply: {"definitions": {}},
    commands.SkipLost: {"peer": "B"},
    commands.ResetPeer: {"peer": "B"},
    commands.ForgetPeer: {"peer": "B"},
    commands.DrainTo: {"peer": "B"},
    commands.ReturnWithout: {"peer": "B"},
    commands.Restored: {"origin": "o"},
    wire.Nudge: {"message_type": "json"},
    wire.AwaitPublish: {"message_type": "json", "after_version": 0, "wait_ms": 0},
    wire.Stop: {},
    wire.AskPeers: {},
    wire.CatchUp: {},
    wire.Ping: {},
}


def entry(*rights: str, queues: str = "WORK", **more: str) -> dict[str, Any]:
    return {"queues": queues, "rights": list(rights), **more}


def principal(*entries: dict[str, Any], token: str, **more: str) -> dict[str, Any]:
    return {"token_hash": token_hash(token), "rights": list(entries), **more}


ADMIN = principal({"rights": [ADMINISTER]}, token="admin")
PRINCIPALS = {
    "admin": ADMIN,
    READ: principal(entry(READ), token=READ),
    WRITE: principal(entry(WRITE), token=WRITE),
    CHANGE: principal(entry(CHANGE), token=CHANGE),
    ADMINISTER: principal({"rights": [ADMINISTER]}, token=ADMINISTER),
    "elsewhere": principal(entry(READ, WRITE, CHANGE, queues="^OTHER.*"), token="elsewhere"),
}


def make(principals: dict[str, Any] = PRINCIPALS) -> World:
    world = World({**DEFINITIONS, "principals": principals})
    world.act_as("admin")
    return world


@pytest.fixture
def guarded() -> World:
    """Make a journal with principals."""
    return make()


def code_of(reply: Any) -> str | None:
    return reply.code if isinstance(reply, wire.Failed) else None


def test_every_command_has_a_sample() -> None:
    """Whoever adds a command has its right tried, or this fails."""
    assert set(typing.get_args(wire.AnyRequest)) == set(SAMPLES)
    assert set(handlers.HANDLERS) == set(typing.get_args(commands.AnyCommand))
    assert all(each.subject in each.__struct_fields__ for each in SAMPLES if each.subject is not None)
    assert all(each.filter_field in each.__struct_fields__ for each in SAMPLES if each.filter_field is not None)


def test_the_right_of_each_command() -> None:
    """R12: what may be asked by whom, once more, since a command that says nothing needs the highest right."""
    of = {right: {each.__name__ for each in SAMPLES if each.right == right} for right in (*RIGHTS, None)}
    of_planners = "DrawIncarnation Attach Next Rows RowsTaken Renew Leave SettleHeld StartRun EndRun Prove Prepare".split()
    of_planners += ["AwaitPublish"]
    assert of[READ] == set(of_planners)
    by_hand = "Settle SettleWhere Purge FindDeadLetters Redrive Unsubscribe Pause Unpause".split()
    assert of[CHANGE] == {*by_hand, "Landed", "Fenced", "SinkUnreadable", "FindAttempts"}
    assert (of[WRITE], of[None]) == ({"Nudge"}, {"Ping"})


@pytest.mark.parametrize("right", [*RIGHTS, "elsewhere", None])
@pytest.mark.parametrize("command", [each for each in SAMPLES if each is not wire.Ping], ids=lambda each: each.__name__)
def test_each_right_with_each_call(guarded: World, command: type[commands.Command], right: str | None) -> None:
    """R12: a call is decided where its one right is there, and otherwise refused by name before anything changes."""
    guarded.act_as(right)
    before = len(guarded.records())
    reply = guarded.ask(command, **SAMPLES[command])
    # What is refused before it is read is refused in the end, and of what nobody may who has no right here, all is.
    told = {each: SAMPLES[command].get(each, "") for each in ("queue", "message_type")}
    about = wire.Envelope(1, kind=command.__name__, **told)
    early = refusal_ahead(guarded.loop.engine.state.definitions, guarded.who, about, now_ms=guarded.clock.wall_ms())
    assert early is None or wire.failed(early) == reply
    assert early is not None or right != "elsewhere" or code_of(reply) != "ACCESS_DENIED"
    if command.right == right or (right is None and command.is_hosts):
        assert code_of(reply) != "ACCESS_DENIED"
        return
    assert code_of(reply) == "ACCESS_DENIED"
    assert reply.facts["principal"] == (HOST if right is None else right)
    assert reply.facts["right"] == command.right
    assert reply.facts["what"] == ("the journal" if command.subject is None else reply.facts["what"])
    assert all(name in reply.facts["what"] for name in ([SAMPLES[command][command.subject]] if command.subject else []))
    assert len(guarded.records()) == before


@pytest.mark.parametrize("command", [each for each in SAMPLES if each is not wire.Ping], ids=lambda each: each.__name__)
def test_without_principals_the_one_token_has_every_right(world: World, command: type[commands.Command]) -> None:
    world.act_as(None)
    assert code_of(world.ask(command, **SAMPLES[command])) not in ("ACCESS_DENIED", "SUBSCRIPTION_OF_OTHER", "TOKEN_EXPIRED")


def test_the_first_principal_closes_everything_else(world: World) -> None:
    world.act_as(None)
    assert world.ask(commands.Pause, queue="WORK") == replies.Done()
    assert world.ask(commands.Apply, definitions={**DEFINITIONS, "principals": {"admin": ADMIN}}) == replies.Done()
    assert code_of(world.ask(commands.Unpause, queue="WORK")) == "ACCESS_DENIED"
    world.act_as("admin")
    assert world.ask(commands.Apply, definitions=DEFINITIONS) == replies.Done()
    world.act_as(None)
    assert world.ask(commands.Unpause, queue="WORK") == replies.Done()


@pytest.mark.parametrize(
    "principals",
    [
        {"a": principal(entry(READ, CHANGE), token="a")},
        {"a": principal({"rights": [ADMINISTER]}, token="a", expires="2999-01-01T00:00:00+00:00")},
    ],
    ids=["nobody administers", "the last one who does expires"],
)
def test_nobody_locks_everybody_out(guarded: World, principals: dict[str, Any]) -> None:
    reply = guarded.ask(commands.Apply, definitions={**DEFINITIONS, "principals": principals})
    assert code_of(reply) == "NOBODY_ADMINISTERS"


def test_a_token_that_has_expired_is_refused_by_name() -> None:
    world = make({"admin": ADMIN, "late": principal(entry(CHANGE), token="late", expires="1970-01-01T00:00:01+00:00")})
    world.act_as("late")
    reply = world.ask(commands.Pause, queue="WORK")
    assert code_of(reply) == "TOKEN_EXPIRED"
    assert reply.facts == {"principal": "late", "expired_at": "1970-01-01T00:00:01+00:00"}


def test_what_people_change_is_in_the_log_with_who_and_from_where(guarded: World) -> None:
    guarded.act_as(CHANGE)
    guarded.ask(commands.Pause, queue="WORK")
    guarded.publish(2)
    guarded.clock.advance(1_000)
    guarded.loop.step([])
    guarded.ask(commands.Purge, queue="WORK")
    guarded.act_as("admin")
    guarded.ask(commands.Apply, definitions={**DEFINITIONS, "principals": {"admin": ADMIN}})
    signed = [(record.kind, detail_of(record)["by"]) for record in guarded.records() if "by" in detail_of(record)]
    there = {"host": "10.0.0.7"}
    assert signed == [
        ("paused", {"principal": CHANGE, **there}),
        ("removed", {"principal": CHANGE, **there}),
        ("definitions_applied", {"principal": "admin", **there}),
    ]


def test_what_streams_do_is_not_signed_but_their_subscription_names_its_principal(guarded: World) -> None:
    guarded.act_as(READ)
    guarded.publish(2)
    Planner(guarded).next()
    assert not [record for record in guarded.records() if "by" in detail_of(record)]
    assert [detail_of(each)["principal"] for each in guarded.records() if each.kind == "subscribed"] == [READ]


def test_a_subscription_is_its_principals() -> None:
    """R12: another one with the same right neither speaks for it nor takes it over."""
    world = make({**PRINCIPALS, "second": principal(entry(READ), token="second")})
    world.act_as(READ)
    world.publish(4)
    planner = Planner(world)
    planner.next(limit=2)
    world.act_as("second")
    for command in (
        commands.Attach,
        commands.Next,
        commands.Rows,
        commands.RowsTaken,
        commands.Renew,
        commands.Leave,
        commands.StartRun,
        commands.SettleHeld,
    ):
        asked = {**SAMPLES[command], **({"incarnation": planner.incarnation} if "incarnation" in SAMPLES[command] else {})}
        reply = world.ask(command, **asked)
        assert code_of(reply) == "SUBSCRIPTION_OF_OTHER", command
    world.act_as(READ)
    assert planner.next(limit=2).messages == 2


def test_a_subscription_of_a_principal_that_is_gone_is_free(guarded: World) -> None:
    guarded.act_as(READ)
    Planner(guarded)
    second = {"admin": ADMIN, "second": principal(entry(READ), token="second")}
    guarded.act_as("admin")
    guarded.ask(commands.Apply, definitions={**DEFINITIONS, "principals": second})
    guarded.act_as("second")
    guarded.publish(1)
    assert Planner(guarded).next().messages == 1


def test_a_name_that_is_not_there_tells_of_no_queue_of_others() -> None:
    """R12: a pattern gives rights on names without a queue, and an error about one names the nearest."""
    queues = {"WORK": DEFINITIONS["queues"]["WORK"], "HR_PAYROLL": DEFINITIONS["queues"]["WORK"]}
    reader = principal(entry(READ, queues="^(W|W_.*|WORK)$"), token="reader")
    world = World({**DEFINITIONS, "queues": queues, "principals": {"admin": ADMIN, "reader": reader}})
    world.act_as("reader")

    def nearest_of(queue: str) -> str:
        reply = world.ask(commands.DrawIncarnation, queue=queue, subscription="s")
        assert code_of(reply) == "UNKNOWN_QUEUE"
        return str(reply.facts["nearest"])

    assert nearest_of("W_PAYROLL") == ""
    assert "'WORK'" in nearest_of("W_ORK")


def test_a_reader_settles_what_came_under_its_own_leases_and_nothing_else(guarded: World) -> None:
    """R12: reading includes the right to acknowledge, of what one was given."""
    guarded.publish(6)
    guarded.act_as(READ)
    lease = Planner(guarded).next(limit=3).lease

    def settle(first: int, until: int, lease: int | None, *, of_owner: bool = False) -> Any:
        said = commands.OutcomeRows(outcome="acknowledge", ranges=((first, until),), lease=lease)
        return guarded.ask(commands.Settle, queue="WORK", outcomes=(said,), of_owner=of_owner)

    assert settle(0, 2, lease) == replies.Settled(acknowledged=2)
    for first, until, named in ((0, 1, None), (2, 4, lease), (3, 4, lease), (2, 3, lease + 1), (0, 2**63, lease), (-1, 1, lease)):
        assert code_of(settle(first, until, named)) == "ACCESS_DENIED", (first, until, named)
    assert code_of(settle(2, 3, lease, of_owner=True)) == "ACCESS_DENIED", "what another instance owns is for people with `change`"


def test_a_poll_that_waits_is_refused_once_its_right_is_gone(guarded: World) -> None:
    guarded.act_as(READ)
    poll = Planner(guarded).next_call(wait_ms=1_000)
    guarded.loop.step([poll])
    assert poll.reply is None
    guarded.act_as("admin")
    guarded.ask(commands.Apply, definitions={**DEFINITIONS, "principals": {"admin": ADMIN}})
    guarded.publish(1)
    guarded.loop.step([])
    assert code_of(poll.reply) == "TOKEN_WITHDRAWN"


def test_a_poll_that_waits_is_refused_once_its_token_is_withdrawn(guarded: World) -> None:
    """R12: its principal and the right are still there, and the call came while the token was good."""
    guarded.act_as(READ)
    poll = Planner(guarded).next_call(wait_ms=1_000)
    guarded.loop.step([poll])
    guarded.act_as("admin")
    renewed = principal(entry(READ), token="another")
    guarded.ask(commands.Apply, definitions={**DEFINITIONS, "principals": {**PRINCIPALS, READ: renewed}})
    guarded.publish(1)
    guarded.loop.step([])
    assert code_of(poll.reply) == "TOKEN_WITHDRAWN"
    assert "granted" not in guarded.kinds()


def test_who_may_not_poll_gets_no_share() -> None:
    """A refused poll must not be known to fairness: it would keep messages back from who may have them."""
    world = make({**PRINCIPALS, "second": principal(entry(READ), token="second")})
    world.act_as(READ)
    mine = Planner(world, "mine")
    world.act_as("second")
    theirs = Planner(world, "theirs")
    world.publish(4)
    world.clock.advance(2_000)
    world.act_as("elsewhere")
    forged = theirs.next_call(limit=4)
    world.act_as(READ)
    granted = mine.next_call(limit=4)
    world.loop.step([forged, granted])
    assert code_of(forged.reply) == "ACCESS_DENIED"
    assert isinstance(granted.reply, replies.Granted)
    assert granted.reply.messages == 4
