"""Bugs of what machines are told."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_METRICS = "spark_queue/metrics"

METRICS: tuple[Mutant, ...] = (
    Mutant(
        "a redelivery counts as a first delivery",
        f"{_METRICS}/history.py", "to_ranges(rows - leased) if", "to_ranges(rows) if",
        ("tests/unit/metrics/test_history.py",),
    ),
    Mutant(
        "a record that is in the log and was noted is counted twice",
        f"{_METRICS}/history.py", "if record.record >= self.next_record:", "if record.record >= 0:",
        ("tests/unit/metrics/test_history.py",),
    ),
    Mutant(
        "a lease that runs out is never over",
        f"{_METRICS}/history.py", "            if lease.left <= 0:\n", "            if lease.left < 0:\n",
        ("tests/unit/metrics/test_history.py",),
    ),
    Mutant(
        "who stands by says that the journal cannot be read",
        f"{_METRICS}/samples.py", "if found is not None or seen.process is None:", "if seen is not None:",
        ("tests/unit/coordinator/test_metrics.py",),
    ),
    Mutant(
        "a scrape keeps an idle coordinator alive",
        "spark_queue/coordinator/loop.py", "Look | Pull | Observe):", "Look | Pull):",
        ("tests/unit/coordinator/test_metrics.py",),
    ),
    Mutant(
        "a refused call is not counted",
        "spark_queue/coordinator/server.py", "        self.refused(request, reply.code)\n", "",
        ("tests/unit/coordinator/test_metrics.py",),
    ),
    Mutant(
        "a batch is linked to no send",
        "spark_queue/tracing.py", "kind=kind, links=linked,", "kind=kind,",
        ("tests/unit/test_tracing.py",),
    ),
)  # fmt: skip
