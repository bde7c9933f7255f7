"""What every run of the farm with two instances must see: a backlog that the other instance is given, and one that it claims.

Chance alone brings neither for sure: an owner at work gives nothing away, and one whose store is gone for a few seconds has hardly
anything left that the other knows of.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import Ownership
from tests.acceptance.farm.site import Site

#: Messages of a backlog, and how long the other instance may take until it has some of it, in seconds: a start of Spark, and until
#: a silent instance counts as lost.
BACKLOG, WITHIN_S = 300, 180.0

LOOK_AGAIN_S = 0.5


class Takeovers:
    """Lets one of two instances take over what the other has.

    Parameters
    ----------
    keep_running : callable
        Starts the consumers that do not run.
    allow_claims : callable
        Switches proxied transfer on both instances; returns whether both heard it.
    """

    def __init__(
        self, chance: random.Random, sites: Sequence[Site], *,
        keep_running: Callable[[], None], allow_claims: Callable[..., bool],
    ) -> None:  # fmt: skip
        self._owner, self._taker = chance.sample(sites, 2)
        self._keep_running = keep_running
        self._allow_claims = allow_claims

    def transfer(self) -> None:
        """Let the consumers of one instance stand still until the other was given some of its backlog (R104, R105)."""
        # What it publishes is to be in the queue, and its own.
        self._wait_until("the queue was as at first", self._begin_anew)
        before = _ownership(self._taker).came_from.total()
        self._owner.freeze()
        try:
            self._owner.publish(BACKLOG)
            # Those who stand still start no coordinator where one was killed just before.
            self._wait_until("the owner was served", self._owner.is_served)
            self._wait_until("something was transferred", lambda: _ownership(self._taker).came_from.total() > before)
        finally:
            self._owner.thaw()

    def claim(self) -> None:
        """Let the journal of one instance disappear while it has a backlog, until the other has claimed some of it (R108, R110)."""
        self._wait_until("the queue was as at first", self._begin_anew)
        self._wait_until("claims were allowed", lambda: self._allow_claims(on=True))
        self._owner.freeze()
        self._taker.freeze()
        try:
            self._owner.publish(BACKLOG)
            # Nobody takes anything, so all of it is known there in the end.
            self._wait_until("the backlog was pulled", lambda: len(self._taker.ledger().rows[State.REMOTE]) >= BACKLOG)
            # Who was away itself waits for an owner that can be read.
            self._wait_until("the taker had returned", lambda: not self._taker.is_returning())
            before = _ownership(self._taker).claimed
            self._owner.vanish()
            self._taker.thaw()
            self._wait_until("something was claimed", lambda: _ownership(self._taker).claimed > before)
        finally:
            if self._owner.is_lost:
                self._owner.come_back()
            self._taker.thaw()
            self._owner.thaw()

    def _begin_anew(self) -> bool:
        """Give both their first definitions; of messages with an order key each keeps its own."""
        return self._owner.alter() and self._taker.alter()

    def _wait_until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while not is_so():
            assert time.monotonic() < deadline_s, f"{WITHIN_S:.0f} s are over, and it did not happen that {what}"
            self._keep_running()
            threading.Event().wait(LOOK_AGAIN_S)


def _ownership(site: Site) -> Ownership:
    found = site.ledger().ownership
    assert found is not None, "the queue is replicated"
    return found
