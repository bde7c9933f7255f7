"""Messages beyond the target depth of their owner, and acknowledgements that came before their turn (R83, R84)."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.state.ownership import MessageValue, Stage
from spark_queue.verification.of_state import of_state
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.records import value_told
from tests.scenario.instances import QUEUES, Consumer, Instance, exchange
from tests.scenario.traits import PublishedMessage

QUEUES_WITH_DEPTH: dict[str, dict[str, Any]] = {**QUEUES, "WORK": {**QUEUES["WORK"], "target_queue_depth": 1_000}}

#: Messages of which only the last are of the kind that the other instance works on.
MESSAGES = [PublishedMessage(topic="T")] * 1_010 + [PublishedMessage(topic="T", attributes={"kind": "b"})] * 2


@pytest.fixture
def deep(clock: FakeClock) -> tuple[Instance, Instance]:
    """Make two instances; the first owns more than its target depth, and the other has no target."""
    frankfurt = Instance("frankfurt", ["virginia"], clock, queues=QUEUES_WITH_DEPTH)
    virginia = Instance("virginia", ["frankfurt"], clock)
    frankfurt.world.publish("json", MESSAGES)
    frankfurt.world.commit()
    exchange(frankfurt, virginia)
    return frankfurt, virginia


def acknowledge(instance: Instance, first: int, until: int) -> None:
    rows = commands.OutcomeRows(outcome="acknowledge", ranges=((first, until),))
    instance.decide(commands.Settle(queue="WORK", outcomes=(rows,)))


def check(*instances: Instance) -> None:
    for each in instances:
        assert of_state(each.world.state) == []
        assert digest(each.world.folded()) == digest(each.world.state)


@pytest.mark.parametrize("end", ["transferred", "dead", "redriven"])
def test_an_acknowledgement_before_its_turn_counts_also_when_another_claims_the_message(
    deep: tuple[Instance, Instance], clock: FakeClock, end: str
) -> None:
    """R83: gone is the greater stage of its life; a later life has nothing to do with it."""
    frankfurt, virginia = deep
    for queue in ("WORK", "FAILED"):
        virginia.decide(commands.ProxiedTransfer(queue=queue, on=True))
    acknowledge(frankfurt, 1_010, 1_011)
    waiting = Consumer(virginia, filter_sql="kind = b")
    virginia.miss(31_000)
    assert waiting.take(limit=1) == [1_010], "it was claimed"
    if end != "transferred":
        rows = commands.OutcomeRows(outcome="expire", ranges=((1_010, 1_011),))
        virginia.decide(commands.Settle(queue="WORK", outcomes=(rows,)))
    if end == "redriven":
        virginia.decide(commands.Redrive(queue="WORK", ranges=((1_010, 1_011),)))
    exchange(*deep)
    found = MessageValue(1, Stage.PRESENT, 0, "virginia") if end == "redriven" else MessageValue(0, Stage.GONE)
    assert [each.value("WORK", 1_010) for each in deep] == [found, found]
    assert (virginia.rows("available", "FAILED"), frankfurt.rows("remote", "FAILED")) == ([], [])
    check(*deep)


def test_an_acknowledgement_before_its_turn_is_of_its_life(deep: tuple[Instance, Instance]) -> None:
    """R83: what another instance has redriven since is not ended by it."""
    frankfurt, _ = deep
    acknowledge(frankfurt, 1_010, 1_011)
    redriven = MessageValue(1, Stage.PRESENT, 0, "virginia")
    rows = {"uuid-of-frankfurt": BitMap64([1_010])}
    news = News(queue="WORK", message_type="json", rows=rows, replicated=value_told(redriven), reason="redriven")
    pulled = Pulled(peer="virginia", journal="uuid-of-virginia", record=99, digest="", news=[news])
    frankfurt.world.engine.pull(pulled, now_ms=frankfurt.world.now_ms)
    frankfurt.world.commit()
    assert frankfurt.value("WORK", 1_010) == redriven
    check(frankfurt)
