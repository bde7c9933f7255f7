"""Bugs in the core of replicated queues: whose a message is, and what news change."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCENARIOS = ("tests/unit/core/test_scenarios.py",)
_TESTS = (
    "tests/unit/core/test_replication.py", "tests/unit/core/test_transfers.py", "tests/unit/core/test_proxied_transfer.py",
    "tests/unit/core/test_request_bounds.py", "tests/unit/core/test_mixed_requests.py",
    "tests/unit/core/test_transfers_beyond_depth.py", "tests/unit/core/test_switched_off.py",
    *_SCENARIOS, "tests/simulation/test_instances.py",
)  # fmt: skip

INSTANCES = (
    Mutant(
        "two peers have one journal",
        "        if other != peer.name:\n", "        if False:\n", ("tests/unit/core/test_peers.py",),
    ),
    Mutant("news of an earlier stage are believed", "            return rows - gone\n", "            return rows\n", _TESTS),
    Mutant(
        "news of an earlier term are believed",
        "        before, same = self._terms.compare(same, value.term)\n",
        "        before, same = same - self._terms.compare(same, value.term)[1], self._terms.compare(same, value.term)[1]\n",
        _TESTS,
    ),
    Mutant(
        "news of a later life are not believed",
        "return earlier | self._lesser_of_life(", "return self._lesser_of_life(", _TESTS,
    ),
    Mutant("what another instance owns is granted all the same", "        else:\n            self.take_away(rows)\n", "", _TESTS),
    Mutant("what comes back from a lease is granted though another has claimed it", "    ledger.take_away(rows)\n", "", _TESTS),
    Mutant("a transfer keeps the term", "    term = 1 + work", "    term = work", _TESTS),
    Mutant(
        "an owner gives away what its own subscription could take",
        "            free -= work.visible_to_subscription(subscription, before_held(ledger, free))\n", "            pass\n", _TESTS,
    ),
    Mutant(
        "an owner keeps for its own what a barrier holds up",
        "work.visible_to_subscription(subscription, before_held(ledger, free))", "work.visible_to_subscription(subscription, free)",
        _TESTS,
    ),
    Mutant(
        "messages of a key move as soon as any barrier is held",
        "order_key is not None and not waits_for_others(ledger)", "order_key is not None and not ledger.rows[State.HELD]", _TESTS,
    ),
    Mutant(
        "a message is asked for as soon as it comes",
        "work.now_ms - transfer_delay_ms(work, owner) for owner", "work.now_ms for owner", _TESTS,
    ),
    Mutant(
        "a request names only the oldest, which a busy owner has leased",
        "_to_name(ownership, waited, ", "_to_name(ownership, oldest(waited, room), ", _TESTS,
    ),
    Mutant(
        "each of several owners is asked for all that there is room for",
        "max(share, left // (len(named) - len(limits)))", "max(share, room)", _TESTS,
    ),
    Mutant(
        "an owner that is asked in vain takes the share of others",
        "share = max(1, room // (len(standing) + len(named)))", "share = 1", _TESTS,
    ),
    Mutant(
        "what was asked for in vain is asked for again and again",
        "before.life == earliest and len(before.rows) >= NAMED_MOST:", "False:", _TESTS,
    ),
    Mutant(
        "an owner that was away grants what it was asked for before it has heard anybody",
        "or left <= 0 or not work.may_grant():", "or left <= 0 or work.liveness.restored is not None:", _TESTS,
    ),
    Mutant(
        "a request that comes by two ways is answered twice",
        "min(asked.limit, NAMED_MOST) - sum(map(len, given.values()))", "asked.limit", _TESTS,
    ),
    Mutant(
        "the next request is not passed on though the one before was answered",
        "if requester != owner or not each.rows.intersect(rows)", "if True", _TESTS,
    ),
    Mutant(
        "a letter that died in its queue stays when its message is acknowledged elsewhere",
        "over = (to_bitmap(record.ranges) & letters.entered)",
        "over = (to_bitmap(record.ranges) & letters.entered - letters.rows[State.DEAD])", _SCENARIOS,
    ),
    Mutant(
        "an owner says of what has ended nothing more",
        "_named(origins, gone | (here - work.ledger.entered), own)", "_named(origins, here - work.ledger.entered, own)",
        ("tests/unit/core/test_transfers.py",),
    ),
    Mutant(
        "an owner says of what was redriven that it has ended",
        "    gone -= ownership.before_life(gone, asked.life)\n", "", ("tests/unit/core/test_transfers.py",),
    ),
    Mutant(
        "an owner says at each request what has ended",
        "        if now_ms < at_ms + after_ms:\n            return BitMap64()\n", "", ("tests/unit/core/test_transfers.py",),
    ),
    Mutant(
        "a peer is given what it does not have",
        "        there = BitMap64() if differs else _there(work, ledger, free, command.peer)\n", "        there = free\n",
        ("tests/unit/core/test_peer_changes.py",),
    ),
    Mutant(
        "a drain waits for ever for what never comes",
        "        elif never:\n", "        elif False:\n", ("tests/unit/core/test_peer_changes.py",),
    ),
    Mutant(
        "a drain does not wait for what is on its way",
        "known.entered_before(pulled + 1)", "known.entered_until", _SCENARIOS,
    ),
    Mutant(
        "of a key the younger is handed over before the older",
        "if (leased or stay) and ledger.definition.order_key", "if leased and ledger.definition.order_key",
        _SCENARIOS,
    ),
    Mutant(
        "a repeated request is as old as its last",
        "since_ms=before.since_ms if before is not None and is_repeat else at_ms", "since_ms=at_ms",
        _SCENARIOS,
    ),
    Mutant(
        "what a living owner has is ended though nobody asks for that",
        "None if of_living else _lost(work, ownership)", "None", ("tests/unit/core/test_proxied_transfer.py",),
    ),
    Mutant(
        "a settlement by list ends nothing of a living owner",
        "lost, leased = claimable(work, of_living=command.of_owner)", "lost, leased = claimable(work)",
        ("tests/unit/core/test_proxied_transfer.py",),
    ),
    Mutant(
        "a settlement by filter ends nothing of a living owner",
        "work.visible_to_caller(claimable(work, of_living=command.of_owner))", "work.visible_to_caller(claimable(work))",
        ("tests/unit/core/test_proxied_transfer.py",),
    ),
    Mutant(
        "who asks gets all that it names",
        "claim(work, oldest(free, left), awaits_look=True)", "claim(work, free, awaits_look=True)", _TESTS,
    ),
    Mutant("a request is made again at once", "work.now_ms >= request.at_ms + OPEN_MS", "work.now_ms >= request.at_ms", _TESTS),
    Mutant("how long messages take is not learned", "self._means_ms.get(owner, at_first_ms)", "at_first_ms", _TESTS),
    Mutant("one slow end makes everybody wait for as long", "(waited_ms - mean_ms) * _WEIGHT", "(waited_ms - mean_ms)", _TESTS),
    Mutant(
        "a dead letter is asked for by the age of its message",
        ".entered_by(at_ms)) - ledger.begun.since(at_ms)", ".entered_by(at_ms))", _TESTS,
    ),
    Mutant("a request ends at who does not own what it asks for", "    _pass_on(work, ownership, rows, asked)\n", "", _TESTS),
    Mutant("a request goes in circles", "work.now_ms < known.at_ms + PASSED_ON_MS", "False", _TESTS),
    Mutant(
        "who asks for what the queue never had is left to ask for ever",
        "        if absent:\n", "        if False:\n", _TESTS, within="answer",
    ),
    Mutant(
        "a record says of any number of messages that they never were in a queue",
        "dict[str, RangeArray](), ABSENT_ROWS, ABSENT_RANGES", "dict[str, RangeArray](), 2**60, 2**60", _TESTS,
    ),
    Mutant(
        "what an owner never had is called gone in a later life than it is in",
        "    earliest = min(lives, default=0)\n", "    earliest = max(lives, default=0)\n", _TESTS,
    ),
    Mutant("what is in a later life is never asked for alone", "        if later:\n", "        if False:\n", _TESTS),
    Mutant("what was passed on is kept for ever", "if each.at_ms > since_ms and key != ", "if key != ", _TESTS),
    Mutant(
        "what may come by another way is called gone",
        "(instance == asked.peer or peer.passes(instance, origins.groups.get(instance, instance)))", "True", _TESTS,
    ),
    Mutant(
        "what lies beyond the target depth is never given away",
        "ledger.due(work.now_ms), ledger.rows[State.INACTIVE])", "ledger.due(work.now_ms))", _TESTS,
    ),
    Mutant(
        "what came back for later is never given away, also once it is due",
        "ledger.due(work.now_ms), ledger.rows[State.INACTIVE])", "ledger.rows[State.INACTIVE])", _TESTS,
    ),
    Mutant(
        "what came back for later is given away before it is due",
        "ledger.due(work.now_ms), ledger.rows", "ledger.rows[State.DELAYED], ledger.rows", _TESTS,
    ),
    Mutant(
        "what stands before a message beyond the target depth is passed over",
        "        reach(ledger, rows, record.at_ms)\n", "", _TESTS,
    ),
    Mutant(
        "an acknowledgement before its turn is forgotten when another claims the message",
        "    if ledger.deferred:\n", "    if False:\n", _TESTS,
    ),
    Mutant(
        "an acknowledgement before its turn ends a later life",
        "    ended = work.ledger.ownership.of_life(acknowledged, value.life)\n", "    ended = acknowledged\n", _TESTS,
    ),
    Mutant(
        "what was said of an earlier queue of the name is believed",
        " or ledger.definition.message_type != news.message_type:\n        return\n    here", ":\n        return\n    here",
        _SCENARIOS,
    ),
    Mutant(
        "values are forgotten while a queue is pulled from nobody",
        "known = ledger.is_replicated and ledger.definition.ownership != LOCAL", "known = False", _TESTS,
    ),
    Mutant(
        "claims need nobody's word",
        "allowed = ownership.others() & ownership.claims_from", "allowed = ownership.others()", _TESTS,
    ),
    Mutant(
        "claims do not wait for the news of those who can be read",
        "return min(known.looked_ms, self.level_ms) >= known.since_ms", "return known.looked_ms >= known.since_ms", _TESTS,
    ),
    Mutant(
        "what is claimed is granted at once",
        "reason=CLAIMED, awaits_look=awaits_look)\n    return rows - foreign\n", "reason=CLAIMED)\n    return rows\n", _TESTS,
    ),
    Mutant(
        "what is claimed is granted though its owner lives",
        "(known.number, known.gaps) != (claim.number, claim.gaps)", "known.gaps != claim.gaps", _TESTS,
    ),
    Mutant(
        "who has slept goes on with what it claimed",
        "(known.number, known.gaps) != (claim.number, claim.gaps)", "known.number != claim.number", _TESTS,
    ),
    Mutant(
        "a time in which nobody looked is silence",
        "                known.since_ms, known.gaps = looked_ms, known.gaps + 1\n", "                pass\n", _TESTS,
    ),
    Mutant(
        "a claim is granted by an earlier look",
        "known.looked_ms > claim.committed_ms", "True", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant("a coordinator remembers no claim of before it slept", "        self.liveness.forget_claims()\n", "", _TESTS),
    Mutant(
        "what is claimed is forgotten with a peer",
        "        rows |= ledger.ownership.claims.get(peer, BitMap64())\n", "", _TESTS,
    ),
    Mutant(
        "what is claimed is asked for, and more is claimed",
        "not work.ledger.ownership.claims and (lost := claimable(work))", "(lost := claimable(work))", _TESTS,
    ),
    Mutant(
        "an owner that lives is claimed from",
        "return min(known.looked_ms, self.level_ms) >= known.since_ms + after_ms", "return True", _TESTS,
    ),
    Mutant(
        "a letter stands on though its message was redriven elsewhere",
        "over = (to_bitmap(record.ranges) & letters.entered) - letters.rows[State.REMOVED] -", "over = BitMap64() -", _TESTS,
    ),
    Mutant("a record speaks of several lives", "if ledger is None or not ledger.is_replicated:", "if True:", _TESTS),
    Mutant(
        "what is held is taken again",
        "            self.held[origin].range_cardinality(bookmark, bookmark + length)\n",
        "            False\n", ("tests/unit/core/test_origins.py",),
    ),
    Mutant(
        "neighbours that do not go on become one stretch",
        "before.until == first and before.there + before.length == there",
        "before.until == first", ("tests/unit/core/test_origins.py",),
    ),
    Mutant("message files do not wait for peers", "end=min(end, waited_for)", "end=end", ("tests/unit/replication/test_sites.py",)),
    Mutant(
        "what enters after a restore is taken for what was lost",
        "starts = [(0, own), *self.renewed]", "starts = [(0, own)]", ("tests/unit/replication/test_restored.py",),
    ),
    Mutant(
        "an instance that lives is forgotten",
        "if heard_ms is not None and heard_ms < after_ms:", "if False:", _SCENARIOS,
    ),
    Mutant(
        "a drain is over before the peer has heard of it",
        "is_pulled=0 <= record <= pulled)", "is_pulled=0 <= record)", ("tests/unit/core/test_peer_changes.py",),
    ),
    Mutant(
        "a bug in taking over what a peer says is no trouble of that peer",
        "            if begun:\n                raise FaultError", "            if True:\n                raise FaultError",
        ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "what came by two ways at once enters twice",
        "            if any(known.origins.holds(file.origins) for file in files.files):\n                return False\n", "",
        ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "what another instance delivered counts as never delivered",
        "ledger.delivered.raise_to(min(body.deliveries or 0, ", "ledger.delivered.raise_to(min(0, ",
        ("tests/model/test_instance_programs.py",),
    ),
    Mutant(
        "more deliveries are taken over from a peer than a queue that limits none counts",
        "COUNTED_MOST = 1_000", "COUNTED_MOST = 5_000", ("tests/unit/core/test_request_bounds.py",),
    ),
    Mutant(
        "what an origin says is passed on of the queues of here alone",
        "news.decided is not None and not self._definitions.is_replicated(news.queue)", "False",
        ("tests/unit/replication/test_changed_definitions.py",),
    ),
    Mutant(
        "who was restored says nothing of its messages that came back",
        "bool(state.peer_changes.restorations)", "False", ("tests/unit/core/test_membership.py",),
    ),
)  # fmt: skip
