"""Random calls of principals: whatever they ask, they are answered, and the reign goes on."""

from __future__ import annotations

import random
from typing import Any

import pytest

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands
from spark_queue.core.replies import Run
from spark_queue.errors import SparkQueueError
from spark_queue.protocol import wire
from tests.unit.coordinator.loop_world import World
from tests.unit.coordinator.test_hidden import make
from tests.unit.coordinator.test_rights import SAMPLES

#: Numbers at which something begins or ends, as far as a frame can hold them.
NUMBERS = (0, 1, -1, 2, 5, 10, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
TEXTS = ("", "s", "S", "WORK", "a/b", "x" * 300, "\x00", "é", "id > 1", "(", "auto", "explicit", "cancel", "expire", "acknowledge")
FILTERS = ("id > 1", "id > 3", "id", " ", "id > 'x'", "(" * 5_000, "NOT " * 5_000 + "id > 1")

#: What a queue may have; the calls of a world go to one of them.
QUEUES: tuple[dict[str, Any], ...] = ({}, {"semantics": "at-most-once"}, {"leasing": "strict"}, {"barrier": "id = 7"})

CALLS = 1_500


class Caller:
    """Somebody who asks anything."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # Not a secret.

    def request(self, journal: str) -> wire.AnyRequest:
        kind = self.draw.choice(
            [each for each in SAMPLES if not issubclass(each, commands.PeerCommand | commands.Apply | wire.Stop)]
        )
        names = [name for name in kind.__struct_fields__ if name not in ("journal", "request", "version")]
        fields = {name: self.value(name) for name in names}
        request = self.draw.choice(["the same", str(self.draw.random())])
        made: Any = kind(journal=journal, request=request, **fields)
        return wire.decode_request(wire.encode(made))

    def value(self, name: str) -> Any:
        draw = self.draw
        match name:
            case "queue":
                return draw.choice(["WORK"] * 9 + list(TEXTS))
            case "subscription":
                return draw.choice(["s"] * 9 + list(TEXTS))
            case "incarnation":
                return draw.choice([(1, 1), (1, 2), (draw.choice(NUMBERS), draw.choice(NUMBERS))])
            case "call" | "finished" | "after_version" | "limit" | "wait_ms" | "lease" | "max_backlog":
                return draw.choice([*NUMBERS, 1, 2, 3])
            case "run":
                return Run(incarnation=self.value("incarnation"), lease=self.value("lease"))
            case "ranges":
                far = [(draw.choice(NUMBERS), draw.choice(NUMBERS)) for _ in range(draw.randrange(3))]
                return tuple(draw.choice([far, [(draw.randrange(10), draw.randrange(11))]]))
            case "outcomes":
                return tuple(self.outcome() for _ in range(draw.randrange(3)))
            case "where" | "filter":
                return draw.choice(FILTERS)
            case "cancel" | "settle" | "available_now" | "on":
                return draw.random() < 0.5
            case "error":
                return draw.choice([None, "boom"])
            case "retry_after_ms" | "after":
                return draw.choice([None, *NUMBERS])
            case _:
                return draw.choice(TEXTS)

    def outcome(self) -> commands.OutcomeRows:
        outcome = self.draw.choice([*TEXTS, "acknowledge", "cancel", "expire"])
        rows = {name: self.value(name) for name in ("ranges", "retry_after_ms", "error")}
        return commands.OutcomeRows(outcome=outcome, lease=self.draw.choice([None, 1, 2, *NUMBERS]), **rows)


def serve(world: World, request: wire.AnyRequest) -> None:
    call = Call(request, lambda: False, world.who)
    world.loop.step([call])
    world.clock.advance(1_000)
    world.loop.step([])
    assert call.reply is not None, "everybody is answered"


@pytest.mark.parametrize("queue", QUEUES, ids=["plain", "at most once", "strict", "barriers"])
def test_whatever_is_asked_is_answered_and_the_reign_goes_on(queue: dict[str, Any]) -> None:
    world, caller = make(**queue), Caller(seed=len(str(queue)))
    for _ in range(CALLS):
        world.act_as(caller.draw.choice(["few", "all", "admin", None]))
        try:
            request = caller.request(world.journal_id)
        except SparkQueueError:
            # No frame can hold it, or no decoder takes it: it never comes so far.
            continue
        if not isinstance(request, wire.Ping):
            serve(world, request)
    # And what the log holds can be folded by the next reign.
    world.reign()
