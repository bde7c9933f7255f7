"""Bugs where publishers fail over: a message that its publisher gave to several instances is one message."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CORE = "spark_queue/core"
_NAMING = f"{_CORE}/deciding/instances/naming.py"
_ORIGINS = f"{_CORE}/message_files/origins.py"
_WORLDS = "tests/simulation/test_failing_over.py"
_FAIL_OVER = ("tests/unit/core/test_naming.py", "tests/unit/core/test_origins.py", _WORLDS)
_REPEATS = ("tests/unit/replication/test_repeats.py",)

FAILING_OVER = (
    Mutant(
        "a further name brings no value",
        _NAMING, "    changed = ledger.ownership.lesser(ledger.rows, rows, value)\n", "    changed = BitMap64()\n",
        _FAIL_OVER,
    ),
    Mutant(
        "a further name makes its instance the owner, whatever has happened",
        _NAMING, "    changed = ledger.ownership.lesser(ledger.rows, rows, value)\n",
        "    changed = rows\n",
        _FAIL_OVER,
    ),
    Mutant(
        "news are told by the first name alone",
        _ORIGINS, "            there = known.of(rows)\n", "            there = BitMap64()\n",
        _FAIL_OVER,
    ),
    Mutant(
        "a queue that begins later gives a message of two to the first",
        f"{_CORE}/state/folds/peers.py", "if known < owner)", "if False)",
        _FAIL_OVER,
    ),
    Mutant(
        "an owner denies a message of which it knows another name",
        f"{_CORE}/deciding/instances/replicating.py", "there - news.of_several.get(origin, BitMap64())", "there",
        ("tests/unit/core/test_naming.py",),
    ),
    Mutant(
        "a peer may name what it does not have",
        "spark_queue/replication/checking.py", "if length < 1 or row + length > until or", "if",
        ("tests/unit/replication/test_hostile_peers.py",),
    ),
    Mutant(
        "what was published during a copy is not looked at",
        "spark_queue/journal/entering.py", "if known.may_repeat(files.publishers, since=files.compared_until):", "if False:",
        _REPEATS,
    ),
    Mutant(
        "a pulled publisher's number goes back",
        "spark_queue/journal/message_log.py", "if (found := known[name]) is None or last > found}", "if last != known[name]}",
        _REPEATS,
    ),
    Mutant(
        "a number alone makes two messages one",
        "spark_queue/replication/repeats.py", "same &= np.array(", "same |= np.array(",
        _REPEATS,
    ),
)  # fmt: skip
