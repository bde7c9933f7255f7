"""Bugs in how a stand-in judges silence, in what it answers, and in how callers go from one address to the next (DESIGN 15.16)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STAND_IN = ("tests/unit/coordinator/test_standby.py",)
_CALLER = ("tests/unit/client/test_coordinator_client.py",)

STANDING_BY = (
    Mutant(
        "a stand-in takes its own sleep for silence",
        "passed_ms = min(now_ms - self._looked_at_ms, LOOK_MOST_MS)", "passed_ms = now_ms - self._looked_at_ms", _STAND_IN,
    ),
    Mutant(
        "a stand-in deposes one that it never looked after",
        "if last is not None and last.epoch != silent_epoch:", "if last is not None and not silent_epoch:", _STAND_IN,
    ),
    Mutant(
        "a stand-in that reads nothing takes the other for silent",
        "            self._unheard_ms = self._unrenewed_ms = 0\n            return\n", "            return\n", _STAND_IN,
    ),
    Mutant(
        "one that answers and does not reach the store serves for ever",
        "return self._renews and self._unrenewed_ms >= STUCK_MS", "return False", _STAND_IN,
    ),
    Mutant(
        "one that stands by passes for one that serves",
        "if not self._epoch:\n            # A ping", "if False:\n            # A ping", ("tests/unit/coordinator/test_server.py",),
    ),
    Mutant(
        "a caller stays with one that stands by",
        'if reply.code == "COORDINATOR_STANDS_BY":', "if not reply.code:",
        _CALLER,
    ),
    Mutant(
        "a caller asks the address again that it lost",
        "            self._connection = None\n            self._turn += 1\n", "            self._connection = None\n", _CALLER,
    ),
    Mutant(
        "a lease is renewed no sooner while the coordinator is away",
        "            self._is_away = True\n", "", ("tests/unit/source/test_renewal.py",),
    ),
)  # fmt: skip
