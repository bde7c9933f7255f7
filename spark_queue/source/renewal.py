"""Renewing the lease of a running micro-batch from a thread of the planner's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from spark_queue.errors import LeaseError

_log = logging.getLogger(__name__)

#: Attempts in one interval while the coordinator is away: its successor leaves an open lease no more than one interval.
_ATTEMPTS = 10


class LeaseRenewer:
    """Renews at most one lease, every third of the lease period, until it is proven or another one is held.

    `renew` asks the coordinator to extend a lease, and returns the lease period of now, in milliseconds.
    """

    def __init__(self, renew: Callable[[int], int]) -> None:
        self._renew = renew
        self._interval_s = 0.0
        self._is_away = False
        self._lease: int | None = None
        self._stopped = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def hold(self, lease: int | None, *, lease_period_ms: int) -> None:
        """Renew `lease` from now on, instead of any other, or nothing; one lasts for `lease_period_ms` milliseconds."""
        with self._changed:
            held = (lease, lease_period_ms / 3_000)
            if (self._lease, self._interval_s) != held:
                self._lease, self._interval_s = held
                self._changed.notify()
        if self._thread is None and lease is not None:
            # A daemon: a planner that ends must not wait for it.
            self._thread = threading.Thread(target=self._run, name="sparkqueue-lease-renewal", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread for good."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                pause_s = self._interval_s / _ATTEMPTS if self._is_away else self._interval_s
                if self._changed.wait(pause_s if self._lease is not None else None):
                    continue
                lease = self._lease
            if lease is not None and not self._renewed(lease):
                self._give_up(lease)

    def _renewed(self, lease: int) -> bool:
        """Renew once; returns whether to go on with this lease."""
        try:
            # The queue may have been altered since the lease was granted.
            self._interval_s = self._renew(lease) / 3_000
            self._is_away = False
        except LeaseError as reason:
            _log.warning("lease %d is no longer renewed: %s", lease, reason)
            return False
        except Exception as reason:  # noqa: BLE001 - the thread is the only one; whatever it is, the lease needs the next attempt.
            # The lease stands for two more thirds of its period: the coordinator may be back by the next attempt.
            self._is_away = True
            _log.warning("lease %d could not be renewed; trying again at once: %s", lease, reason)
        return True

    def _give_up(self, lease: int) -> None:
        with self._changed:
            if self._lease == lease:
                self._lease = None
