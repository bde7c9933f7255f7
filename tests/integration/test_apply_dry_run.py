"""Whatever `apply` refuses, its dry run and the coordinator refuse with the same error, and none of them changes anything."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.client.changes import plan
from spark_queue.core import commands
from spark_queue.core.records import Kind
from spark_queue.errors import SparkQueueError
from spark_queue.protocol.tokens import token_hash
from spark_queue.protocol.user_files import TOKEN_VARIABLE
from spark_queue.replication.exchange import HEARS_MS
from tests.integration.coordinator_world import DEADLINE_S, Planner, World, request_id

Change = Callable[[dict[str, Any]], object]

DEFINITIONS: dict[str, Any] = {
    "journal": {"instance": "frankfurt"},
    "peers": {"virginia": {"journal": "/nowhere/virginia", "topics": ["SHARED"], "queues": ["SHARED"]}},
    "message_types": {
        "json": {"topics": ["ORDERS", "SHARED"]},
        "line": {"columns": "id BIGINT, item STRING", "topics": ["LINES"]},
    },
    "queues": {
        "WORK": {"underlying_topic": "ORDERS", "lease_period": "1h"},
        "IDLE": {"underlying_topic": "ORDERS", "dead_letter_queue": "FAILED"},
        "FAILED": {"message_type": "json"},
        "PLAIN": {"underlying_topic": "ORDERS"},
        "SHARED": {"underlying_topic": "SHARED"},
    },
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a journal with leased messages, a dead letter and a replicated queue."""
    place = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        patch.setenv("XDG_RUNTIME_DIR", str(place / "run"))
        made = World(place / "journal")
        try:
            journal = Journal(made.store.path)
            journal.apply(DEFINITIONS)
            journal.publish([{"id": 1, "item": "lamp"}], topic="LINES")
            journal.publish([{"value": "{}"}] * 3, topic="ORDERS")
            # Nothing enters before its peer was searched, or so long asked in vain.
            planner, polls = Planner(made), range(HEARS_MS // 1_000 + 10)
            assert next(filter(None, (planner.next(wait_ms=1_000).messages for _ in polls))) == 3
            journal.queue("IDLE").settle([0], outcome="expire")
            yield made
        finally:
            made.end()


def wanted(change: Change) -> dict[str, Any]:
    """Return other definitions."""
    file = copy.deepcopy(DEFINITIONS)
    change(file)
    return file


def queue(name: str, **keys: Any) -> Change:
    return lambda file: file["queues"][name].update(keys)


def without(table: str, name: str) -> Change:
    return lambda file: file[table].pop(name)


REFUSALS: dict[str, tuple[Change, dict[str, Any], str]] = {
    "no definition": (queue("IDLE", max_delivreies=3), {}, "UNKNOWN_KEY"),
    "an expression of a column that is none": (queue("IDLE", filter="amuont > 1"), {}, "EXPRESSION_INVALID"),
    "a reserved column": (lambda file: file["message_types"]["line"].update(columns="bookmark INT"), {}, "RESERVED_COLUMN"),
    "another type of a column": (lambda file: file["message_types"]["line"].update(columns="id INT"), {}, "MESSAGE_TYPE_CHANGED"),
    "a message type with messages goes": (without("message_types", "line"), {}, "DEFINITION_IN_USE"),
    "another name of the instance": (lambda file: file["journal"].update(instance="paris"), {}, "DEFINITION_IN_USE"),
    "a queue goes that nobody named": (without("queues", "PLAIN"), {}, "DEFINITION_IN_USE"),
    "a queue with leases goes": (without("queues", "WORK"), {"remove": ("WORK",)}, "DEFINITION_IN_USE"),
    "a queue with leases begins anew": (lambda file: file, {"reset": ("WORK",)}, "DEFINITION_IN_USE"),
    "a replicated queue begins anew": (lambda file: file, {"reset": ("SHARED",)}, "DEFINITION_IN_USE"),
    "a queue with dead letters begins anew": (lambda file: file, {"reset": ("FAILED",)}, "DEFINITION_IN_USE"),
    "what is no queue begins anew": (lambda file: file, {"reset": ("WROK",)}, "UNKNOWN_QUEUE"),
    "other semantics under leases": (queue("WORK", semantics="at-most-once"), {}, "DEFINITION_IN_USE"),
    "another order under leases": (queue("WORK", order_key="value"), {}, "DEFINITION_IN_USE"),
    "another source": (queue("PLAIN", underlying_topic="LINES"), {}, "DEFINITION_IN_USE"),
    "dead letters of another queue": (
        lambda file: (file["queues"]["IDLE"].pop("dead_letter_queue"), file["queues"]["PLAIN"].update(dead_letter_queue="FAILED")),
        {}, "DEFINITION_IN_USE",
    ),
}  # fmt: skip

#: What the coordinator knows nothing of: which queues somebody named is asked where the definitions are read.
OF_CALLERS = {"a queue goes that nobody named"}


@pytest.mark.drawn(6)
@pytest.mark.parametrize("refused", REFUSALS)
def test_a_dry_run_refuses_what_apply_and_the_coordinator_refuse(world: World, refused: str) -> None:
    change, options, code = REFUSALS[refused]
    file, journal, before = wanted(change), Journal(world.store.path), applied(world)
    tried = refusal(lambda: journal.apply(file, dry_run=True, **options))
    assert tried.code == code
    assert str(refusal(lambda: journal.apply(file, **options))) == str(tried)
    if refused not in OF_CALLERS:
        command = commands.Apply(
            journal=world.journal_id, request=request_id(), definitions=file, reset=tuple(options.get("reset", ()))
        )
        assert refusal(lambda: world.client().call(command, timeout_s=DEADLINE_S)).code == code
    assert applied(world) == before


def applied(world: World) -> int:
    return sum(record.kind == Kind.DEFINITIONS_APPLIED for record in world.records())


def refusal(ask: Callable[[], object]) -> SparkQueueError:
    with pytest.raises(SparkQueueError) as refused:
        ask()
    return refused.value


def test_a_dry_run_wants_the_right_that_apply_wants(
    tmp_path: Path, make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    rights = {"admin": [{"rights": ["administer"]}], "ops": [{"rights": ["change"]}]}
    principals = {name: {"token_hash": token_hash(name), "rights": rights[name]} for name in rights}
    monkeypatch.setenv(TOKEN_VARIABLE, "ops")
    journal = Journal(world.store.path)
    journal.apply({**world.definitions, "principals": principals})
    other = {**world.definitions, "principals": principals, "journal": {"retention": "1d"}}
    tried = refusal(lambda: journal.apply(other, dry_run=True))
    assert tried.code == "ACCESS_DENIED"
    assert str(refusal(lambda: journal.apply(other))) == str(tried)
    monkeypatch.setenv(TOKEN_VARIABLE, "admin")
    assert [str(change) for change in journal.apply(other, dry_run=True)] == ["change [journal] retention: none -> '1d'"]


def test_of_two_at_once_the_later_undoes_nothing_of_the_earlier(make_world: Callable[..., World]) -> None:
    """Its caller could not know of the change that comes between its look and the decision."""
    world = make_world()
    journal = Journal(world.store.path)

    def file(*names: str) -> dict[str, Any]:
        queues = {**world.definitions["queues"], **{name: {"underlying_topic": "ORDERS"} for name in names}}
        return {**world.definitions, "queues": queues}

    def plan_late(*given: Any, **keys: Any) -> Any:
        found = plan(*given, **keys)
        patch.undo()
        journal.apply(file("X"))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_queue.client.changes.plan", plan_late)
        refused = refusal(lambda: journal.apply(file("Y")))
    assert refused.code == "DEFINITIONS_CHANGED"
    assert applied(world) == 2
    assert [str(change) for change in journal.apply(file("Y"), remove=["X"])] == ["remove [queues.X]", "add [queues.Y]"]
