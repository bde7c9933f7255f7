"""Bugs in replicated queues: whose a message is, and what is believed of a peer."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CORE = "spark_queue/core"
_OWNERSHIP = f"{_CORE}/state/ownership.py"
_FOLD = f"{_CORE}/state/folds/replication.py"
_REPLICATING = f"{_CORE}/deciding/instances/replicating.py"
_TRANSFERS = f"{_CORE}/deciding/instances/transfers.py"
_NEWS = "spark_queue/replication/news.py"
_TESTS = (
    "tests/unit/core/test_replication.py", "tests/unit/core/test_transfers.py", "tests/unit/core/test_proxied_transfer.py",
    "tests/simulation/test_instances.py",
)  # fmt: skip

_NAMING = f"{_CORE}/deciding/instances/naming.py"
_ORIGINS = f"{_CORE}/message_files/origins.py"
_FAIL_OVER = ("tests/unit/core/test_naming.py", "tests/unit/core/test_origins.py", "tests/simulation/test_instances.py")
_REPEATS = ("tests/unit/replication/test_repeats.py",)

INSTANCES = (
    Mutant(
        "news of an earlier stage are believed",
        _OWNERSHIP, "            return rows - gone\n", "            return rows\n",
        _TESTS,
    ),
    Mutant(
        "news of an earlier term are believed",
        _OWNERSHIP, "if (term, owner) < (value.term, value.owner))", "if (term, owner) != (value.term, value.owner))",
        _TESTS,
    ),
    Mutant(
        "news of a later life are not believed",
        _OWNERSHIP, "            if life < value.life:\n                found |= part\n            elif", "            if",
        _TESTS,
    ),
    Mutant(
        "what another instance owns is granted all the same",
        f"{_CORE}/state/ledger.py", "        else:\n            self.take_away(rows)\n", "",
        _TESTS,
    ),
    Mutant(
        "what comes back from a lease is granted though another has claimed it",
        f"{_CORE}/state/folds/endings.py", "    ledger.take_away(rows)\n", "",
        _TESTS,
    ),
    Mutant(
        "a transfer keeps the term",
        _TRANSFERS, "    term = 1 + max(", "    term = max(",
        _TESTS,
    ),
    Mutant(
        "an owner gives away what its own subscription could take",
        _TRANSFERS, "            free -= ledger.selection.matching(free, subscription.filter)\n", "            pass\n",
        _TESTS,
    ),
    Mutant(
        "a message is asked for as soon as it comes",
        _TRANSFERS, "asked = oldest(below(rows, patient_until), room)", "asked = oldest(rows, room)",
        _TESTS,
    ),
    Mutant(
        "a request is made again at once",
        _TRANSFERS, "work.now_ms < known.at_ms + OPEN_MS", "work.now_ms < known.at_ms",
        _TESTS,
    ),
    Mutant(
        "claims need nobody's word",
        _TRANSFERS, "ownership.claims_unreachable and work.reach.is_level", "work.reach.is_level",
        _TESTS,
    ),
    Mutant(
        "claims do not wait for the news of those who can be read",
        _TRANSFERS, "ownership.claims_unreachable and work.reach.is_level", "ownership.claims_unreachable",
        _TESTS,
    ),
    Mutant(
        "an owner that lives is claimed from",
        f"{_CORE}/deciding/instances/reach.py", "return now_ms >= heard_at_ms + after_ms", "return True",
        _TESTS,
    ),
    Mutant(
        "a letter stands on though its message was redriven elsewhere",
        _REPLICATING, "    over = (to_bitmap(record.ranges) & standing) - source.rows[State.DEAD]\n", "    over = BitMap64()\n",
        _TESTS,
    ),
    Mutant(
        "a record speaks of several lives",
        f"{_CORE}/deciding/instances/lives.py", "if ledger is None or ledger.ownership is None:", "if True:",
        _TESTS,
    ),
    Mutant(
        "a redrive belongs to nobody",
        _NEWS, "return MessageValue(life, Stage.PRESENT, 0, initial or self.instance)", "return None",
        _TESTS,
    ),
    Mutant(
        "an acknowledgement is not told",
        _NEWS, "                return MessageValue(life, Stage.GONE)\n            case Kind.REDRIVEN if",
        "                return None\n            case Kind.REDRIVEN if",
        _TESTS,
    ),
    Mutant(
        "ranges of a peer are expanded as they are",
        _NEWS, "[(first, min(until, known.entered_until)) for first", "[(first, until) for first",
        ("tests/unit/replication",),
    ),
    Mutant(
        "what is held is taken again",
        f"{_CORE}/message_files/origins.py", "            self.held[origin].range_cardinality(bookmark, bookmark + length)\n",
        "            False\n",
        ("tests/unit/core/test_origins.py",),
    ),
    Mutant(
        "neighbours that do not go on become one stretch",
        f"{_CORE}/message_files/origins.py", "before.until == first and before.there + before.length == there",
        "before.until == first",
        ("tests/unit/core/test_origins.py",),
    ),
    Mutant(
        "a watermark of another journal is gone on from",
        "spark_queue/replication/puller.py", "        if created != watermark.journal:", "        if False:",
        ("tests/unit/replication",),
    ),
    Mutant(
        "a peer may have any name",
        "spark_queue/replication/puller.py", "        self._check_name()\n", "",
        ("tests/unit/replication",),
    ),
    Mutant(
        "an old request is answered",
        "spark_queue/replication/puller.py", "and not is_over:", "and True:",
        ("tests/unit/replication",),
    ),
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
