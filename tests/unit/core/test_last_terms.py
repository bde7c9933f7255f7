"""Values that can rise no more: a peer may say them, and nobody is brought to write one beyond (DESIGN 17.3)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.records import COUNT_MAX
from spark_queue.core.state.ownership import MessageValue, Stage
from tests.fake_clock import FakeClock
from tests.records import value_told
from tests.scenario.instances import Consumer, Instance, ask


def test_what_a_peer_says_to_be_in_its_last_term_or_life_is_not_transferred_or_redriven(
    pair: tuple[Instance, Instance], clock: FakeClock
) -> None:
    """One more would be refused by everybody who pulls this instance, with all that stands behind it in its log."""
    frankfurt, _ = pair
    frankfurt.publish(3)
    said = {0: MessageValue(term=COUNT_MAX, owner="frankfurt"), 1: MessageValue(COUNT_MAX, Stage.DEAD, 1, "frankfurt")}
    news = [
        News(queue="WORK", message_type="json", rows={"uuid-of-frankfurt": BitMap64([row])},
             replicated=value_told(value, deliveries=0, cancels=0),
             reason="max_deliveries" if value.stage == Stage.DEAD else None)
        for row, value in said.items()
    ]  # fmt: skip
    pulled = Pulled(peer="virginia", journal="uuid-of-virginia", record=98, digest="", news=news)
    frankfurt.world.engine.pull(pulled, now_ms=clock.wall_ms())
    frankfurt.world.commit()
    ask(frankfurt, {"uuid-of-frankfurt": range(3)}, limit=9)
    assert (frankfurt.rows("available"), frankfurt.rows("remote")) == ([0], [2])
    redriven = frankfurt.decide(commands.Redrive(queue="WORK", ranges=((0, 3),)))
    assert (redriven.redriven, frankfurt.rows("dead")) == (0, [1])
    assert Consumer(frankfurt).take() == [0], "who owns it delivers it"
