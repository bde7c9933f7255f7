"""What a grant costs: how often it is found out what may be given to whom."""

from __future__ import annotations

from typing import Any

import pytest

from spark_queue.core.deciding import free_rows
from tests.scenario import Scenario

DEFINE = 'define\n  [message_types.json]\n  topics = ["T"]\n  [queues.Q]\n  underlying_topic = "T"'


@pytest.mark.parametrize("parked", [0, 1, 20])
def test_what_may_be_given_is_found_out_once_for_all_who_are_alike(monkeypatch: pytest.MonkeyPatch, parked: int) -> None:
    scenario, found = Scenario(), []
    scenario.run(DEFINE)
    for number in range(parked):
        scenario.run(f"planner p{number} Q/s{number}\nnext p{number} -> nothing")
    scenario.run("planner asker Q/a\npublish T 0..99")
    grantable = free_rows.grantable

    def count(*arguments: Any) -> Any:
        found.append(arguments)
        return grantable(*arguments)

    monkeypatch.setattr("spark_queue.core.deciding.granting.grantable", count)
    scenario.run("next asker")
    assert len(found) == 1
