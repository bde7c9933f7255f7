"""Bugs in the core of replicated queues: whose a message is, and what news change."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CORE = "spark_queue/core"
_OWNERSHIP = f"{_CORE}/state/ownership.py"
_FOLD = f"{_CORE}/state/folds/replication.py"
_REPLICATING = f"{_CORE}/deciding/instances/replicating.py"
_TRANSFERS = f"{_CORE}/deciding/instances/transfers.py"
_REQUESTS = f"{_CORE}/deciding/instances/requests.py"
_PATIENCE = f"{_CORE}/deciding/instances/patience.py"
_PEERS = f"{_CORE}/state/folds/peers.py"
_TESTS = (
    "tests/unit/core/test_replication.py", "tests/unit/core/test_transfers.py", "tests/unit/core/test_proxied_transfer.py",
    "tests/unit/core/test_request_bounds.py", "tests/unit/core/test_mixed_requests.py",
    "tests/unit/core/test_transfers_beyond_depth.py",
    "tests/unit/core/test_switched_off.py", "tests/unit/core/test_patience.py",
    "tests/simulation/test_instances.py",
)  # fmt: skip

INSTANCES = (
    Mutant(
        "two peers have one journal",
        f"{_CORE}/definitions/peers.py", "        if other != peer.name:\n", "        if False:\n",
        ("tests/unit/core/test_peers.py",),
    ),
    Mutant(
        "news of an earlier stage are believed",
        _OWNERSHIP, "            return rows - gone\n", "            return rows\n",
        _TESTS,
    ),
    Mutant(
        "news of an earlier term are believed",
        _OWNERSHIP, "        before, same = self._terms.compare(same, value.term)\n",
        "        before, same = same - self._terms.compare(same, value.term)[1], self._terms.compare(same, value.term)[1]\n",
        _TESTS,
    ),
    Mutant(
        "news of a later life are not believed",
        _OWNERSHIP, "return earlier | self._lesser_of_life(", "return self._lesser_of_life(",
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
        _TRANSFERS, "    term = 1 + ownership", "    term = ownership",
        _TESTS,
    ),
    Mutant(
        "an owner gives away what its own subscription could take",
        _REQUESTS, "            free -= work.allowed(subscription, free)\n", "            pass\n",
        _TESTS,
    ),
    Mutant(
        "a message is asked for as soon as it comes",
        _TRANSFERS, "work.now_ms - patience_ms(work, owner) for owner", "work.now_ms for owner",
        _TESTS,
    ),
    Mutant(
        "a request names only the oldest, which a busy owner has leased",
        _TRANSFERS, "_to_name(ownership, waited, ", "_to_name(ownership, oldest(waited, room), ",
        _TESTS,
    ),
    Mutant(
        "each of several owners is asked for all that there is room for",
        _TRANSFERS, "max(share, left // (len(named) - len(limits)))", "max(share, room)",
        _TESTS,
    ),
    Mutant(
        "an owner that is asked in vain takes the share of others",
        _TRANSFERS, "share = max(1, room // (len(standing) + len(named)))", "share = 1",
        _TESTS,
    ),
    Mutant(
        "what was asked for in vain is asked for again and again",
        _TRANSFERS, "before.life == earliest and len(before.rows) >= NAMED_MOST:", "False:",
        _TESTS,
    ),
    Mutant(
        "an owner that was away grants what it was asked for before it has heard anybody",
        _REQUESTS, "    if work.reach.restored is not None or not work.reach.has_heard:\n", "    if False:\n",
        _TESTS,
    ),
    Mutant(
        "a request that comes by two ways is answered twice",
        _REQUESTS, "    return asked.limit - sum(map(len, given.values()))\n", "    return asked.limit\n",
        _TESTS,
    ),
    Mutant(
        "the next request is not passed on though the one before was answered",
        _OWNERSHIP, "if requester != owner or not each.rows.intersect(rows)", "if True",
        _TESTS,
    ),
    Mutant(
        "who asks gets all that it names",
        _REQUESTS, "    given = oldest(free, left)\n", "    given = free\n",
        _TESTS,
    ),
    Mutant(
        "a request is made again at once",
        _TRANSFERS, "work.now_ms >= request.at_ms + OPEN_MS", "work.now_ms >= request.at_ms",
        _TESTS,
    ),
    Mutant(
        "how long messages take is not learned",
        _PATIENCE, "self._means_ms.get(owner, at_first_ms)", "at_first_ms",
        _TESTS,
    ),
    Mutant(
        "one slow end makes everybody wait for as long",
        _PATIENCE, "(waited_ms - mean_ms) * _WEIGHT", "(waited_ms - mean_ms)",
        _TESTS,
    ),
    Mutant(
        "a dead letter is asked for by the age of its message",
        f"{_CORE}/state/age.py", ".entered_by(at_ms)) - ledger.begun.since(at_ms)", ".entered_by(at_ms))",
        _TESTS,
    ),
    Mutant(
        "a request ends at who does not own what it asks for",
        _REQUESTS, "    _pass_on(work, ownership, rows, asked)\n", "",
        _TESTS,
    ),
    Mutant(
        "a request goes in circles",
        _REQUESTS, "work.now_ms < known.at_ms + PASSED_ON_MS", "False",
        _TESTS,
    ),
    Mutant(
        "who asks for what the queue never had is left to ask for ever",
        _REQUESTS, "        if absent:\n", "        if False:\n",
        _TESTS,
    ),
    Mutant(
        "a record says of any number of messages that they never were in a queue",
        _REQUESTS, "dict[str, RangeArray](), ABSENT_ROWS, ABSENT_RANGES", "dict[str, RangeArray](), 2**60, 2**60",
        _TESTS,
    ),
    Mutant(
        "what an owner never had is called gone in a later life than it is in",
        _TRANSFERS, "    earliest = min(lives, default=0)\n", "    earliest = max(lives, default=0)\n",
        _TESTS,
    ),
    Mutant(
        "what is in a later life is never asked for alone",
        _TRANSFERS, "        if later:\n", "        if False:\n",
        _TESTS,
    ),
    Mutant(
        "what was passed on is kept for ever",
        _OWNERSHIP, "if each.at_ms > since_ms and key != ", "if key != ",
        _TESTS,
    ),
    Mutant(
        "what may come by another way is called gone",
        _REQUESTS, "(instance == asked.peer or peer.passes(instance, origins.groups.get(instance, instance)))", "True",
        _TESTS,
    ),
    Mutant(
        "what lies beyond the target depth is never given away",
        _REQUESTS, "ledger.due(work.now_ms), ledger.rows[State.INACTIVE])", "ledger.due(work.now_ms))",
        _TESTS,
    ),
    Mutant(
        "what came back for later is never given away, also once it is due",
        _REQUESTS, "ledger.due(work.now_ms), ledger.rows[State.INACTIVE])", "ledger.rows[State.INACTIVE])",
        _TESTS,
    ),
    Mutant(
        "what came back for later is given away before it is due",
        _REQUESTS, "ledger.due(work.now_ms), ledger.rows", "ledger.rows[State.DELAYED], ledger.rows",
        _TESTS,
    ),
    Mutant(
        "what stands before a message beyond the target depth is passed over",
        _FOLD, "        depth.reach(ledger, rows, record.at_ms)\n", "",
        _TESTS,
    ),
    Mutant(
        "an acknowledgement before its turn is forgotten when another claims the message",
        _REPLICATING, "        if ledger.deferred:\n", "        if False:\n",
        _TESTS,
    ),
    Mutant(
        "an acknowledgement before its turn ends a later life",
        _REPLICATING, "    ended = ownership.of_life(acknowledged, value.life)\n", "    ended = acknowledged\n",
        _TESTS,
    ),
    Mutant(
        "what was said of an earlier queue of the name is believed",
        _REPLICATING, " or ledger.definition.message_type != news.message_type:", ":",
        ("tests/unit/core/test_replication.py",),
    ),
    Mutant(
        "values are forgotten while a queue is pulled from nobody",
        _PEERS, "known = ledger.ownership is not None and ledger.definition.ownership != LOCAL", "known = False",
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
        f"{_CORE}/deciding/instances/reach.py", "return self.silent_ms(instance, now_ms=now_ms) >= after_ms", "return True",
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
        "message files do not wait for peers",
        "spark_queue/core/retention.py", "end=min(end, waited_for)", "end=end",
        ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "what enters after a restore is taken for what was lost",
        "spark_queue/core/message_files/origins.py", "starts = [(0, own), *self.renewed]", "starts = [(0, own)]",
        ("tests/unit/replication/test_restored.py",),
    ),
    Mutant(
        "an instance that lives is forgotten",
        "spark_queue/core/deciding/instances/peer_changes.py", "if heard_ms is not None and heard_ms < after_ms:", "if False:",
        ("tests/unit/core/test_peer_changes.py",),
    ),
    Mutant(
        "a drain is over before the peer has heard of it",
        "spark_queue/core/deciding/instances/peer_changes.py", "and pulled is not None and pulled >= record", "",
        ("tests/unit/core/test_peer_changes.py",),
    ),
    Mutant(
        "a bug in taking over what a peer says is no trouble of that peer",
        "spark_queue/core/engine.py",
        "            if begun:\n                raise FaultError", "            if True:\n                raise FaultError",
        ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "what came by two ways at once enters twice",
        "spark_queue/journal/entering.py",
        "            if any(known.origins.holds(file.origins) for file in files.files):\n                return False\n", "",
        ("tests/simulation/test_whole_instances.py",),
    ),
    Mutant(
        "what another instance delivered counts as never delivered",
        _FOLD, 'ledger.delivered.raise_to(min(record.detail.get("deliveries", 0), ', "ledger.delivered.raise_to(min(0, ",
        ("tests/model/test_instance_programs.py",),
    ),
    Mutant(
        "more deliveries are taken over from a peer than a queue that limits none counts",
        _FOLD, "COUNTED_MOST = 1_000", "COUNTED_MOST = 5_000",
        ("tests/unit/core/test_request_bounds.py",),
    ),
)  # fmt: skip
