"""What is claimed by a filter, or without one: nothing, where the filter cannot be asked of all (R109, R110)."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import JournalError
from tests.fake_clock import FakeClock
from tests.scenario.instances import Consumer, Instance, exchange

LOST_MS = 31_000


@pytest.mark.parametrize(
    "command",
    [
        commands.SettleWhere(queue="WORK", where="kind = 1", outcome="acknowledge"),
        commands.SettleWhere(queue="WORK", where="kind = 1", outcome="expire"),
        commands.Purge(queue="WORK", where="kind = 1"),
    ],
)
def test_nothing_is_claimed_where_a_file_of_other_messages_is_gone(
    pair: tuple[Instance, Instance], clock: FakeClock, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    """A filter is asked of all that it may find before anything is recorded."""
    frankfurt, virginia = pair
    virginia.publish(3)
    exchange(*pair)
    frankfurt.decide(commands.ProxiedTransfer(queue="WORK", on=True))
    frankfurt.publish(2)
    Consumer(frankfurt).take(limit=0)
    frankfurt.miss(LOST_MS)

    def matches(segments: Any, expression: str, rows: BitMap64, *, columns: str, letters: Any) -> BitMap64:
        del segments, expression, columns, letters
        if rows.intersect(frankfurt.world.state.queues["WORK"].rows[State.AVAILABLE]):
            raise JournalError("MESSAGE_FILE_MISSING", path="p", file="f", reason="it is gone.", next_step="")
        return rows

    monkeypatch.setattr(frankfurt.world.state.traits, "matches", matches)
    before = frankfurt.world.state.next_record
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        frankfurt.world.engine.decide(command, now_ms=clock.wall_ms())
    assert (frankfurt.world.state.next_record, frankfurt.rows("remote")) == (before, [0, 1, 2])
