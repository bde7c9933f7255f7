"""Bugs of what the page shows of the past, and of what it tells scrapes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DASHBOARD = "spark_queue/dashboard"

PAGE_FIGURES: tuple[Mutant, ...] = (
    Mutant(
        "a replicated queue's chart counts what others own",
        f"{_DASHBOARD}/owners.py", "self.owned.put(at_ms, ledger.depth)",
        "self.owned.put(at_ms, ledger.depth + len(ledger.rows[State.REMOTE]))",
        ("tests/unit/dashboard/test_owners.py",),
    ),
    Mutant(
        "a little chart stays as it was when something left its queue",
        f"{_DASHBOARD}/history.py", "        steps = [trace.outgoing, trace.incoming, ", "        steps = [trace.incoming, ",
        ("tests/unit/dashboard/test_history.py",),
    ),
    Mutant(
        "messages of a past moment stand where they stand now",
        f"{_DASHBOARD}/journal_site.py", "        yield self._moments.at(journal, at_ms).state, at_ms\n",
        "        yield look.state, at_ms\n",
        ("tests/unit/dashboard/test_pages.py",),
    ),
    Mutant(
        "each scrape reads the whole log again",
        f"{_DASHBOARD}/followed_metrics.py", "rows.slice(first)", "rows",
        ("tests/unit/dashboard/test_metrics.py",),
    ),
)  # fmt: skip
