"""Bugs that were drawn, and that no test noticed at first.

``make judge`` names a change by its line, which the next commit may move. So it is kept here by its text, as any bug of the
catalogue, once a test was written that notices it; then every run of the catalogue plants it.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ESCAPED: tuple[Mutant, ...] = (
    Mutant(
        "fn begins with messages that an earlier planner start has read",
        "return BitMap64() if is_handed_over_once(work, lease) and lease.handed_to != incarnation else lease.rows",
        "return lease.rows", ("tests/unit/core/test_scenarios.py",),
    ),
    Mutant(
        "one message each second is told by the minute",
        "    if per_second >= 1:\n", "    if per_second > 1:\n", ("tests/unit/views/test_quantities.py",),
    ),
)  # fmt: skip
