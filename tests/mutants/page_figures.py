"""Bugs of what the page shows of the past, of why a message waits, and of what scrapes are told."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WAITING_TESTS = ("tests/unit/views/test_why_waiting.py",)

PAGE_FIGURES: tuple[Mutant, ...] = (
    Mutant(
        "a replicated queue's chart counts what others own",
        "self.owned.put(at_ms, ledger.depth)",
        "self.owned.put(at_ms, ledger.depth + len(ledger.rows[State.REMOTE]))", ("tests/unit/dashboard/test_owners.py",),
    ),
    Mutant(
        "a chart counts a letter that waits twice",
        "rows - self.later - self.dead)", "rows)", ("tests/unit/dashboard/test_history.py",),
    ),
    Mutant(
        "a little chart stays as it was when something left its queue",
        "        steps = [trace.outgoing, trace.incoming, ", "        steps = [trace.incoming, ",
        ("tests/unit/dashboard/test_history.py",),
    ),
    Mutant(
        "messages of a past moment stand where they stand now",
        "        yield self._moments.at(journal, at_ms).state, at_ms\n",
        "        yield look.state, at_ms\n", ("tests/unit/dashboard/test_pages.py",),
    ),
    Mutant(
        "each scrape reads the whole log again",
        "found.log_history.fold(records)", "found.log_history.fold(found.journal.records())",
        ("tests/unit/dashboard/test_metrics.py",),
    ),
    Mutant(
        "explain blames an alarm that stops nobody",
        "all(each.is_stopped for each in matching)", "any(each.alarm is not None for each in matching)", _WAITING_TESTS,
    ),
    Mutant(
        "explain does not see the barrier that stands before a message",
        "if held and held.min() < bookmark:", "if held and held.min() == bookmark:", _WAITING_TESTS,
    ),
    Mutant(
        "explain does not see that consumers are given a released barrier first",
        "all(each.barriers and each.barriers.min() < bookmark for each in matching)",
        "all(each.barriers and each.barriers.min() > bookmark for each in matching)", _WAITING_TESTS,
    ),
    Mutant("explain blames the turn where none may read", "    elif not readers:\n", "    elif readers is None:\n", _WAITING_TESTS),
    Mutant("explain hides who else may read", "for each in readers if all(", "for each in known if all(", _WAITING_TESTS),
    Mutant(
        "explain forgets who subscribed before a queue got another message type", " and record.body.about is not About.QUEUE", "",
        ("tests/unit/views/test_explain.py",),
    ),
    Mutant(
        "explain tells the life of a message of another type",
        "        if is_of_others(state, record, message_type=self._type):\n            return False\n", "",
        ("tests/unit/views/test_explain.py",),
    ),
)  # fmt: skip
