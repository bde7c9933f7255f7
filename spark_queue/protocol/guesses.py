"""A bound on tries at tokens."""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable

from spark_queue.clock import SystemClock
from spark_queue.ports import Clock

_LOG = logging.getLogger(__name__)

#: Wrong tokens of an address that are looked at however fast they come, and the time for each further one, in milliseconds.
FREE_GUESSES = 5
GUESS_MS = 2_000

#: Addresses that are remembered; the one that guessed longest ago is forgotten first.
ADDRESSES_MAX = 1_024


class GuessLimit:
    """Counts wrong tokens by address; safe to be asked by any thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: The time at which the wrong tokens of an address would have ended if they had come one by one, and their number.
        self._until: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def looked_at(self, address: str, is_right: Callable[[], bool]) -> bool | None:
        """Return whether a token is right; None where it was not looked at: too many of its address were wrong.

        A wait before the answer would not do: a guesser opens further connections meanwhile, and sees which one is let in.
        """
        place = _place_of(address)
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            until_ms, count = self._until.get(place, (0, 0))
            if until_ms - now_ms > (FREE_GUESSES - 1) * GUESS_MS:
                return None
            if is_right():
                return True
            self._until[place] = max(until_ms, now_ms) + GUESS_MS, count + 1
            self._until.move_to_end(place)
            if len(self._until) > ADDRESSES_MAX:
                self._until.popitem(last=False)
        if count & (count + 1) == 0:
            # The first, the second, the fourth and so on: a flood must not fill the log.
            _LOG.warning("A token from %s is wrong; %d in all from there.", address, count + 1)
        return False


def _place_of(address: str) -> str:
    """Return whom an address belongs to: a host with IPv6 has as many as it likes of one network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if parsed.version == 4 else str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
