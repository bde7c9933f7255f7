"""Without principals the log names the user and the host that asked for a change (R12)."""

from __future__ import annotations

import getpass
import platform
from typing import Any

import pytest

from spark_queue.coordinator.logins import Login
from spark_queue.coordinator.rights import caller_of
from spark_queue.core import commands, replies
from spark_queue.core.commands import Asker
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.protocol.tokens import new_token, token_hash
from spark_queue.views.control_rows import record_page
from tests.unit.client.test_coordinator_client import HERE, client, hinted, host  # noqa: F401 - `host` is a fixture.
from tests.unit.dashboard.dashboard_world import DashboardWorld

TYPES: dict[str, Any] = {"message_types": {"json": {"topics": ["T"]}}, "queues": {"WORK": {"underlying_topic": "T"}}}
ANN = {"principals": {"ann": {"token_hash": token_hash(new_token()), "rights": [{"rights": ["administer"]}]}}}
OWNER = Login(principal=None, address="127.0.0.1")
PAUSE = commands.Pause(queue="WORK", asker=Asker(user="bob", host="laptop" * 100))


def definitions(**more: Any) -> Definitions:
    return parsing.parse({**TYPES, **more})


def test_a_change_is_signed_by_who_asks_where_there_are_no_principals() -> None:
    caller = caller_of(definitions(), OWNER, PAUSE)
    assert caller is not None
    assert caller.signature() == {"user": "bob", "host": ("laptop" * 100)[:256]}
    assert (
        caller_of(
            definitions(),
            OWNER,
            commands.Next(queue="WORK", subscription="s", incarnation=(1, 1), call=1, finished=0, limit=1, asker=PAUSE.asker),
        )
        is None
    )
    assert caller_of(definitions(), OWNER, commands.Pause(queue="WORK")) is None
    # A principal is who it is, whatever its caller says.
    known = caller_of(definitions(**ANN), Login(principal="ann", address="10.0.0.9"), PAUSE)
    assert known is not None
    assert known.signature() == {"principal": "ann", "host": "10.0.0.9"}
    assert caller_of(definitions(**ANN), OWNER, PAUSE) is None


def test_the_calling_side_says_who_asks_for_a_change(host: Any) -> None:  # noqa: F811 - the fixture.
    host.hint, host.answers = hinted(), {HERE: [replies.Done()]}
    client().call(commands.Pause(queue="Q"))
    client().call(commands.Leave(queue="Q", subscription="s", incarnation=(1, 1), call=0))
    assert [each.asker for each in host.requests] == [Asker(user=getpass.getuser(), host=platform.node()), None]


@pytest.mark.parametrize("command", [commands.Pause(queue="BILLING"), commands.Purge(queue="BILLING")])
def test_the_log_tells_user_and_host_as_people_read_it(tmp_path: Any, command: Any) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(3, 1)
    caller = commands.Caller(principal=None, user="bob", host="laptop", signs=True)
    world.engine.decide(command, now_ms=world.at(2), caller=caller)
    world.commit()
    (row,) = record_page(world.opened.record_rows(), queue="BILLING", kind=None, by_people=True, before=None).rows
    assert row.who == "user bob, host laptop"
    assert row.text.endswith(" by bob (laptop)")
