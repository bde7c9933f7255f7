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

_FITTING = "spark_queue/replication/fitting.py"
_FITTING_TESTS = (
    "tests/unit/replication/test_fitting.py", "tests/unit/replication/test_validation.py",
    "tests/unit/coordinator/test_loop_pulls.py",
)  # fmt: skip

INSTANCES = (
    Mutant(
        "news about a queue that is another one there are taken",
        "spark_queue/replication/puller.py", "if not self._fit.withholds(each.queue)]", "]",
        _FITTING_TESTS,
    ),
    Mutant(
        "news that waited are not read again",
        _FITTING, "return bool(self._waiting - _withheld(self._now))", "return False",
        _FITTING_TESTS,
    ),
    Mutant(
        "a coordinator that begins does not know which news waited",
        _FITTING, "else _withheld(told)", "else frozenset()",
        _FITTING_TESTS,
    ),
    Mutant(
        "what may not pass through reaches everybody",
        "spark_queue/replication/validation.py", " and (peer.name == origin or peer.passes(origin))", "",
        _FITTING_TESTS,
    ),
    Mutant(
        "the queue of another domain counts as the same",
        "spark_queue/replication/validation.py", "return queue.group_local_domain or of.journal.group or of.journal.instance",
        "return queue.group_local_domain",
        _FITTING_TESTS,
    ),
    Mutant(
        "a coordinator with peers ends when nobody calls",
        "spark_queue/coordinator/loop.py", "self._ends_idle and not self._engine.state.definitions.peers", "self._ends_idle",
        ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "whoever was never heard of is reachable for ever",
        "spark_queue/coordinator/peers.py",
        "        self._engine.reach.listen(self._engine.state.definitions.peers, now_ms=now_ms)\n", "",
        ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "two peers have one journal",
        f"{_CORE}/definitions/peers.py", "        if other != peer.name:\n", "        if False:\n",
        ("tests/unit/core/test_peers.py",),
    ),
    Mutant(
        "a copy of a peer's journal is a second peer",
        "spark_queue/coordinator/peers.py", "            self._refuse_twin(request)\n", "",
        _FITTING_TESTS,
    ),
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
        "spark_queue/replication/puller.py", "        self._check_name(self._own)\n", "",
        ("tests/unit/replication",),
    ),
    Mutant(
        "an old request is answered",
        "spark_queue/replication/puller.py", "and not is_over:", "and True:",
        ("tests/unit/replication",),
    ),
)  # fmt: skip
