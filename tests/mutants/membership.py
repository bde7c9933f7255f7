"""Bugs in what messages are, as their origin says once (R129), and in leaving a shared queue and putting it back (R130)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCENARIOS = ("tests/unit/core/test_scenarios.py",)
_SAID = ("tests/unit/core/test_membership.py", *_SCENARIOS)

MEMBERSHIP = (
    Mutant(
        "barriers of two owners wait for each other's messages of one key for ever",
        "order_key is not None and not waits_for_others(ledger)", "order_key is not None", _SAID,
    ),
    Mutant("a queue that is put back begins anew", "if name in state.left and name not in state.troubles}", "if False}", _SAID),
    Mutant(
        "a queue that is put back hears nothing of what was said meanwhile",
        "    fresh = [*goes_on.values()]\n", "    fresh = []\n", _SAID,
    ),
    Mutant(
        "a queue that was set aside before it was left ends the fold of its return",
        "for name in body.goes_on if name in state.left}", "for name in body.goes_on}",
        _SAID,
    ),
    Mutant(
        "a queue that is put back before a peer is named for it begins anew",
        "if queue.ownership != LOCAL and", "if wanted.is_replicated(name) and", _SAID,
    ),
    Mutant(
        "letters that are put back without their source are nobody's to settle",
        'if ledger.definition.underlying_topic is not None or wanted.source_of(name) == sources.get(name, "")', "if True",
        _SAID,
    ),
    Mutant(
        "retention keeps what came after a queue was left",
        "state.undecided(ledger) if ledger.definition.name in state.queues else BitMap64()", "state.undecided(ledger)", _SAID,
    ),
    Mutant(
        "of two owners that wait for each other both give",
        "(ledger.definition.order_key is not None and asked.requester > ownership.instance)", "False", _SAID,
    ),
    Mutant(
        "retention lets go what waits in a queue that was left",
        "for ledger in (*state.queues.values(), *state.left.values()):", "for ledger in state.queues.values():", _SAID,
    ),
    Mutant(
        "what was claimed in a queue that was left stays nobody's when it is put back",
        "        self._of_each(applied.goes_on, now_ms, timers.take_over)\n", "",
        _SCENARIOS,
    ),
    Mutant(
        "the letters of a queue that was left are in the way when it is put back",
        "state.definitions.source_of(name) or next(left, None)", "state.definitions.source_of(name)", _SAID,
    ),
    Mutant(
        "a queue that was left is reset when it is put back",
        "for name, ledger in {**state.queues, **goes_on}.items():", "for name, ledger in state.queues.items():", _SAID,
    ),
    Mutant(
        "what was said of a queue before it was left waits for its return",
        "in _withheld(self._now) and queue in self._definitions[self._peer.name].queues", "in _withheld(self._now)",
        ("tests/unit/replication/test_changed_definitions.py",),
    ),
    Mutant(
        "each instance finds out by itself what is in a replicated queue",
        "return [each for each in self.queues_of(message_type) if not each.is_replicated]", "return self.queues_of(message_type)",
        _SAID,
    ),
    Mutant(
        "the filter of here is asked of messages of elsewhere",
        "all_of_it = found if here.issubset(found.rows) else next(iter(self._traits_of_any(segment, ledger)), found)",
        "all_of_it = found", _SAID,
    ),
    Mutant(
        "a first owner of whom nobody hears has messages all the same",
        "if queue.initial_owner is not None and is_near else origin", "if queue.initial_owner is not None else origin", _SAID,
    ),
    Mutant(
        "what was said is recorded each time that it is heard",
        "owner, new = decided.owner, here - told.known", "owner, new = decided.owner, here", _SAID,
    ),
    Mutant(
        "a message that one of two origins leaves out stays out",
        "        new |= told.outside(here)\n", "        pass\n", _SAID,
    ),
    Mutant(
        "of two first owners the one that was heard of first stays",
        "take_first_owner(ledger, (here & ledger.entered) - ledger.barriers, owner,", "take_first_owner(ledger, BitMap64(), owner,",
        _SAID,
    ),
    Mutant(
        "what came while its queue was set aside is never decided about",
        "        replicating.decide_all_published(self.state, self._emit(now_ms))\n", "", _SAID, within="take_over",
    ),
    Mutant(
        "an origin hears nothing of what it published itself",
        "here = _here(state, news.message_type, news.rows)\n    told",
        "here = BitMap64.union(BitMap64(), *(known.origins.here(name, there) for name, there in news.rows.items()))\n    told",
        _SAID,
    ),
    Mutant(
        "of messages of before its queue an origin says nothing",
        "        replicating.decide_all_published(self.state, self._emit(now_ms))\n", "", _SAID, within="_apply",
    ),
    Mutant(
        "what is over is said to be in the queue",
        "        standing = before - ledger.rows[State.REMOVED] - ledger.rows[State.DEAD]\n        members",
        "        standing = before\n        members", _SAID,
    ),
    Mutant("nobody decides for an origin without the queue", "    _decide_for(state, pulled, emit)\n", "", _SAID),
    Mutant(
        "a queue that begins forgets what was said before",
        "    for owner, rows in [*told.members.items(), (None, told.barriers)]:\n", "    for owner, rows in ():\n", _SAID,
    ),
)  # fmt: skip
