"""Bugs in what becomes of failing batches and of messages that fail alone (DESIGN 8, 15.12)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCENARIOS = ("tests/unit/core/test_scenarios.py",)

FAILING = (
    Mutant(
        "bad messages at the head keep all others from their turn in a run",
        "(0 if subscription.run_until is not None else probe_backoff(ledger).delay_ms(0))",
        "probe_backoff(ledger).delay_ms(0)",
        _SCENARIOS,
    ),
    Mutant("the alarm comes one message late", "SUSPECTS_LIMIT = 3", "SUSPECTS_LIMIT = 4", _SCENARIOS),
    Mutant("a failing batch is not halved", "oldest(rows, (len(rows) + 1) // 2)", "oldest(rows, len(rows) - 1)", _SCENARIOS),
    Mutant(
        "the grant after a failed batch is as large",
        "oldest(piece, max(1, len(piece) // 2))", "oldest(piece, len(piece))", _SCENARIOS,
    ),
    Mutant("what succeeded is searched again for what fails", "        subscription.failed -= lease.rows\n", "", _SCENARIOS),
    Mutant("what failed alone is granted with others", "    rows = without_lone(ledger, rows)\n", "", _SCENARIOS),
    Mutant(
        "what failed alone comes before all others",
        "if lone and not (others and subscription.tried_lone):", "if lone:", _SCENARIOS,
    ),
    Mutant(
        "what failed alone comes back after a second, whenever it failed last",
        "backoff.delay_ms(work.ledger.lone_failures.of(rows.min()))", "backoff.delay_ms(0)", _SCENARIOS,
    ),
    Mutant("what is redriven is tried alone", "        self.lone_failures.forget(part)\n", "", _SCENARIOS),
    Mutant(
        "what is suspected is tried again while there are others",
        "    rows = (rows - BitMap64(subscription.suspects)) or rows\n", "", _SCENARIOS,
    ),
    Mutant(
        "what failed alone before speaks against the sink",
        "sum(not each.lone_failures for each in self.suspects.values())", "len(self.suspects)", _SCENARIOS,
    ),
    Mutant(
        "one subscription's success speaks for another's sink",
        "        subscription.suspects.clear()\n",
        "        for each in ledger.subscriptions.values():\n            each.suspects.clear()\n", _SCENARIOS, within="proven",
    ),
    Mutant(
        "an alarm stops every subscription",
        "    alarm = subscription.alarm\n",
        "    alarm = next((each.alarm for each in ledger.subscriptions.values() if each.is_stopped), None)\n",
        _SCENARIOS, within="is_paused",
    ),
    Mutant(
        "after an alarm its suspects are tried alone",
        "        self.lone_failures.set(rows, known.lone_failures)\n", "", _SCENARIOS,
    ),
    Mutant(
        "a dead letter is part of the batch that failed",
        "rows | (lease.recoverable - ledger.rows[State.DEAD])", "rows | lease.recoverable", _SCENARIOS,
    ),
    Mutant(
        "batches that had to get smaller stay small",
        "doubled = subscription.isolation_limit * 2", "doubled = subscription.isolation_limit", _SCENARIOS,
    ),
    Mutant(
        "a message that fails alone six times is no alarm",
        "at_least(LONE_FAILURES_LIMIT + 1, ledger.entered)",
        "at_least(LONE_FAILURES_LIMIT + 2, ledger.entered)", ("tests/unit/coordinator/test_alarm_bell.py",), within="alarms",
    ),
    Mutant(
        "where it is tried who is to blame, a message goes beyond the backlogs",
        "if min(room, left) <= 0 or not rows:", "if not rows:", _SCENARIOS,
    ),
)  # fmt: skip
