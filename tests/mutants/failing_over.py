"""Bugs where publishers fail over: a message that its publisher gave to several instances is one message."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WORLDS = "tests/simulation/test_failing_over.py"
_SCENARIOS = ("tests/unit/core/test_scenarios.py",)
_FAIL_OVER = ("tests/unit/core/test_naming.py", *_SCENARIOS, "tests/unit/core/test_origins.py", _WORLDS)
_REPEATS = ("tests/unit/replication/test_repeats.py",)

FAILING_OVER = (
    Mutant(
        "a further name brings no value",
        "    changed = ledger.ownership.lesser(ledger.rows, rows, value)\n", "    changed = BitMap64()\n", _FAIL_OVER,
    ),
    Mutant(
        "a further name makes its instance the owner, whatever has happened",
        "    changed = ledger.ownership.lesser(ledger.rows, rows, value)\n",
        "    changed = rows\n", _FAIL_OVER,
    ),
    Mutant(
        "news are told by the first name alone",
        "            there = known.of(rows)\n", "            there = BitMap64()\n", _FAIL_OVER,
    ),
    Mutant(
        "a queue that begins later gives a message of two to the first",
        "if known < owner)", "if False)", ("tests/unit/core/test_naming.py",),
    ),
    Mutant(
        "an owner denies a message of which it knows another name",
        "there - news.of_several.get(origin, BitMap64())", "there", _SCENARIOS,
    ),
    Mutant(
        "a peer may name what it does not have",
        "if length < 1 or row + length > until or", "if", ("tests/unit/replication/test_hostile_peers.py",),
    ),
    Mutant(
        "what was published during a copy is not looked at",
        "if known.may_repeat(files.publishers, since=files.compared_until):", "if False:", _REPEATS,
    ),
    Mutant(
        "a pulled publisher's number goes back",
        "if (found := known[name]) is None or last > found}", "if last != known[name]}", _REPEATS,
    ),
    Mutant("a number alone makes two messages one", "same &= np.array(", "same |= np.array(", _REPEATS),
)  # fmt: skip
