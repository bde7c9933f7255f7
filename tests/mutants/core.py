"""Bugs in the core's own work: what a step looks at, what is remembered, and what is found out before anything is recorded."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCENARIOS = ("tests/unit/core/test_scenarios.py",)

CORE = (
    Mutant(
        "a run of what is there ends where what another has kept fills the queue's backlog (R31)",
        "(len(kept) >= left or kept.intersect(rows))",
        "kept.intersect(rows)",
        ("tests/unit/coordinator/test_loop_fairness.py",),
    ),
    Mutant(
        "messages are claimed before it is known whether a filter can be asked of all",
        "    among = leased.copy() if verdict.outcome ==",
        "    claim(work, work.matching(command.where, lost))\n    among = leased.copy() if verdict.outcome ==",
        ("tests/unit/core/test_claims_by_filter.py",),
    ),
    Mutant(
        "a subscription ends before it is known what its new owner may see",
        "    work.state.prepare_filters(work.ledger, [text for text in (command.filter, *work.row_filters())"
        " if text is not None])\n",
        "    known = hand_to_caller(work, known)\n"
        "    work.state.prepare_filters(work.ledger, [text for text in (command.filter, *work.row_filters())"
        " if text is not None])\n",
        ("tests/unit/coordinator/test_hidden.py",),
    ),
    Mutant(
        "a repeat is forgotten after as many calls of planners as are remembered",
        " and record.at_ms >= self._newest_since_ms + _KEPT_MS:",
        ":",
        ("tests/unit/core/test_engine.py",),
    ),
    Mutant(
        "a stream without a subscription is taken for a view until it starts",
        "names_of(Purpose.QUEUE_STREAM) - names_of(Purpose.VIEW_BATCH)",
        'frozenset({"subscription"})',
        ("tests/unit/source/test_reads.py",),
    ),
    Mutant(
        "who cannot fold a log claims it all the same",
        "    tail.refuse_newer(candidate.path)\n",
        "",
        ("tests/unit/coordinator/test_election.py",),
    ),
    Mutant(
        "what another queue is due for is forgotten where a queue ends",
        "                self._agenda.note(self.state.queues_changed_by(record))\n                self.begun += 1\n",
        "                self.begun += 1\n",
        _SCENARIOS,
    ),
    Mutant(
        "every poll asks every queue when something is due",
        "self._changed[follower] = self._changed[follower], {}",
        "self._changed[follower] = self._changed[follower], self._changed[follower]",
        ("tests/unit/coordinator/test_many_queues.py",),
    ),
    Mutant(
        "a reign remembers the polls of who unsubscribed",
        "            self._shares[queue].forget(subscription)\n",
        "",
        ("tests/unit/core/test_engine.py",),
    ),
    Mutant(
        "a reign remembers who called a queue that was dropped",
        "self.sessions.pop(queue, Sessions()).drawn)",
        "self.sessions.get(queue, Sessions()).drawn)",
        ("tests/unit/core/test_engine.py",),
    ),
    Mutant(
        "a queue that is put back gives a place twice", "Sessions(self._drawn)", "Sessions()", ("tests/unit/core/test_engine.py",)
    ),
    Mutant(
        "a count is kept in one bitmap for each delivery",
        "            rows = carried\n",
        "            rows = carried or rows\n",
        ("tests/unit/core/test_counts.py",),
    ),
)
