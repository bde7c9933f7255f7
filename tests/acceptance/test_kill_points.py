"""Every part of a stateful query killed with SIGKILL at every named point of a micro-batch: the counts stay exact (P1 to P7).

Some pairs are elsewhere: planner and coordinator in fn in `test_source_kills`, a whole executor in read in
`test_local_cluster`, and the JVM between sink write and proof in the demo. A Python worker has no part in a grant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.farm.drill import Drill, expected_counts
from tests.acceptance.farm.gates import BEFORE_GRANT, COMMITTED, GRANTED, IN_FN, IN_READ, SINK_WRITTEN
from tests.integration.source_journal import end_coordinator

pytestmark = pytest.mark.spark

#: Each row is one driver's life, or several where the driver or its JVM dies: only those start Spark again.
PAIRS = {
    "planner": (BEFORE_GRANT, GRANTED, IN_READ, SINK_WRITTEN, COMMITTED),
    "coordinator": (BEFORE_GRANT, GRANTED, IN_READ, SINK_WRITTEN, COMMITTED),
    "worker": (IN_READ, IN_FN, SINK_WRITTEN, COMMITTED),
    "driver": (BEFORE_GRANT, GRANTED, IN_READ, IN_FN, SINK_WRITTEN, COMMITTED),
    "jvm": (BEFORE_GRANT, GRANTED, IN_READ, IN_FN, COMMITTED),
}

#: Pairs that every test run goes through; `make nightly` goes through all.
SHORT_FORM = {("planner", GRANTED), ("coordinator", SINK_WRITTEN), ("worker", IN_READ), ("driver", SINK_WRITTEN), ("jvm", IN_FN)}


def pairs() -> Iterator[Any]:
    """Yield every victim with every point it is killed at; what is not of the short form is marked slow."""
    for victim, points in PAIRS.items():
        for point in points:
            yield pytest.param(victim, point, marks=() if (victim, point) in SHORT_FORM else pytest.mark.slow)


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    """Yield one queue and its consumer for the whole file: state grows over all kills."""
    drill = Drill(tmp_path_factory.mktemp("drill"))
    try:
        drill.publish()
        drill.drain()
        yield drill
    finally:
        drill.end()
        end_coordinator(drill.journal)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("victim", "point"), list(pairs()))
def test_a_kill_at_a_named_point_loses_and_doubles_nothing(drill: Drill, victim: str, point: str) -> None:
    driver, granted = drill.consumer.driver, drill.history("granted")
    drill.gates.close(point, after_lease=granted[-1]["lease"])
    if point != BEFORE_GRANT:
        drill.publish()
    came = drill.wait_for(point)
    check_where(drill, point, len(granted))
    below = drill.consumer.processes()
    drill.kill(victim, came)
    drill.gates.open(point)
    if point == BEFORE_GRANT:
        drill.publish()
    if victim in ("driver", "jvm"):
        drill.consumer.wait_for_end(below)
        drill.start()
    drill.drain()
    assert drill.acknowledged() == list(range(drill.published))
    assert drill.counts() == expected_counts(drill.published)
    # Nobody but the driver itself or its JVM takes the driver along.
    assert (drill.consumer.driver is driver) == (victim not in ("driver", "jvm"))
    assert drill.consumer.driver.poll() is None


def check_where(drill: Drill, point: str, grants: int) -> None:
    """Check that the log, the checkpoint and the lease are as the point says."""
    granted = drill.history("granted")
    assert len(granted) == grants + (point != BEFORE_GRANT)
    lease = granted[-1]["lease"]
    if point == COMMITTED:
        drill.wait_for_proof(lease)
    else:
        assert drill.is_proven(lease) == (point == BEFORE_GRANT)
    assert drill.offsets_name(lease) == (point != GRANTED)


def test_state_and_sink_equal_those_of_a_run_without_kills(drill: Drill) -> None:
    assert drill.undisturbed_counts() == drill.counts() == expected_counts(drill.published)
