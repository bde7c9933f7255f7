"""Renewing a lease while its batch runs (DESIGN 7): every third of the period, and never a moment longer than needed."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

import pytest

from spark_queue.errors import CoordinatorError, LeaseError
from spark_queue.source.renewal import LeaseRenewer

#: Waits for a thread's signal; reached only when a test fails.
DEADLINE_S = 60.0

#: Renews every 5 ms.
PERIOD_MS = 15


class Coordinator:
    """Hears renewals, and refuses them when told to."""

    def __init__(self) -> None:
        self.heard: queue.Queue[int] = queue.Queue()
        self.refusal: Exception | None = None
        self.lease_period_ms = PERIOD_MS

    def renew(self, lease: int) -> int:
        self.heard.put(lease)
        if self.refusal is not None:
            raise self.refusal
        return self.lease_period_ms

    def next(self) -> int:
        return self.heard.get(timeout=DEADLINE_S)

    def is_silent(self) -> bool:
        """Return whether nothing is heard for many intervals."""
        try:
            self.heard.get(timeout=0.1)
        except queue.Empty:
            return True
        return False


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def renewer(coordinator: Coordinator) -> Iterator[LeaseRenewer]:
    made = LeaseRenewer(coordinator.renew)
    yield made
    made.stop()


def test_renewer_goes_on_until_it_is_released(coordinator: Coordinator, renewer: LeaseRenewer) -> None:
    renewer.hold(3, lease_period_ms=PERIOD_MS)
    assert [coordinator.next(), coordinator.next(), coordinator.next()] == [3, 3, 3]
    renewer.hold(None, lease_period_ms=PERIOD_MS)
    while not coordinator.heard.empty():
        coordinator.next()
    assert coordinator.is_silent() or coordinator.is_silent()


def test_renewer_takes_up_the_next_lease(coordinator: Coordinator, renewer: LeaseRenewer) -> None:
    renewer.hold(3, lease_period_ms=PERIOD_MS)
    assert coordinator.next() == 3
    renewer.hold(4, lease_period_ms=PERIOD_MS)
    while not coordinator.heard.empty():
        coordinator.next()
    # One for the old lease may be under way.
    heard = [coordinator.next() for _ in range(3)]
    assert heard[-1] == 4
    assert heard == sorted(heard)


def test_renewer_keeps_to_the_period_that_the_coordinator_answers(coordinator: Coordinator, renewer: LeaseRenewer) -> None:
    """The queue was altered while the lease was out."""
    coordinator.lease_period_ms = 3_600_000
    renewer.hold(3, lease_period_ms=PERIOD_MS)
    assert coordinator.next() == 3
    assert coordinator.is_silent()
    renewer.hold(4, lease_period_ms=PERIOD_MS)
    assert coordinator.next() == 4


def test_renewer_gives_up_when_the_lease_is_over(coordinator: Coordinator, renewer: LeaseRenewer) -> None:
    coordinator.refusal = LeaseError("SUBSCRIPTION_TAKEN", subscription="s", queue="q", newest=[2, 1], own=[1, 1])
    renewer.hold(3, lease_period_ms=PERIOD_MS)
    assert coordinator.next() == 3
    assert coordinator.is_silent()


def test_a_renewal_that_is_refused_gives_up_its_own_lease_only(coordinator: Coordinator) -> None:
    """The planner has proven it and holds the next one, while the refusal is on its way."""

    def renew(lease: int) -> int:
        coordinator.heard.put(lease)
        if lease == 3:
            made.hold(4, lease_period_ms=PERIOD_MS)
            raise LeaseError("SUBSCRIPTION_TAKEN", subscription="s", queue="q", newest=[2, 1], own=[1, 1])
        return PERIOD_MS

    made = LeaseRenewer(renew)
    made.hold(3, lease_period_ms=PERIOD_MS)
    assert [coordinator.next(), coordinator.next()] == [3, 4]
    made.stop()


def test_renewer_tries_again_when_the_coordinator_is_away(coordinator: Coordinator, renewer: LeaseRenewer) -> None:
    coordinator.refusal = CoordinatorError("COORDINATOR_UNAVAILABLE", path="j", reason="gone.", log="l")
    renewer.hold(3, lease_period_ms=PERIOD_MS)
    assert [coordinator.next(), coordinator.next()] == [3, 3]


def test_renewer_tries_again_whatever_a_renewal_fails_with(coordinator: Coordinator, renewer: LeaseRenewer) -> None:
    """A lease that nobody renews any more is delivered twice."""
    coordinator.refusal = MemoryError("no room")
    renewer.hold(3, lease_period_ms=PERIOD_MS)
    assert [coordinator.next(), coordinator.next()] == [3, 3]


def test_renewer_asks_more_often_while_the_coordinator_is_away(coordinator: Coordinator, renewer: LeaseRenewer) -> None:
    """Whoever takes over leaves the lease no more than an interval, and may do so just after an attempt."""
    coordinator.refusal = CoordinatorError("COORDINATOR_UNAVAILABLE", path="j", reason="gone.", log="l")
    interval_s = 5.0
    renewer.hold(3, lease_period_ms=int(3_000 * interval_s))
    assert coordinator.next() == 3
    began_s = time.monotonic()
    assert [coordinator.next() for _ in range(3)] == [3, 3, 3]
    assert time.monotonic() - began_s < interval_s
    coordinator.refusal = None
    coordinator.lease_period_ms = 3_600_000
    assert coordinator.next() == 3
    assert coordinator.is_silent()


def test_renewer_says_nothing_after_it_was_stopped(coordinator: Coordinator) -> None:
    renewer = LeaseRenewer(coordinator.renew)
    renewer.hold(3, lease_period_ms=PERIOD_MS)
    assert coordinator.next() == 3
    renewer.stop()
    coordinator.is_silent()
    assert coordinator.is_silent()
