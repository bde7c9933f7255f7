"""Bugs of what machines are told."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

METRICS: tuple[Mutant, ...] = (
    Mutant(
        "a redelivery counts as a first delivery",
        "to_ranges(rows - leased) if", "to_ranges(rows) if", ("tests/unit/metrics/test_history.py",),
    ),
    Mutant(
        "a record that is in the log and was noted is counted twice",
        "if record.record >= self.next_record:", "if record.record >= 0:", ("tests/unit/metrics/test_history.py",),
    ),
    Mutant(
        "a lease that runs out is never over",
        "            if lease.left <= 0:\n", "            if lease.left < 0:\n", ("tests/unit/metrics/test_history.py",),
    ),
    Mutant(
        "who stands by says that the journal cannot be read",
        "if found is not None or seen.process is None:", "if seen is not None:", ("tests/unit/coordinator/test_metrics.py",),
    ),
    Mutant(
        "a scrape keeps an idle coordinator alive",
        "ApplyPulled | Observe | wire.AwaitPublish):", "ApplyPulled | wire.AwaitPublish):",
        ("tests/unit/coordinator/test_metrics.py",),
    ),
    Mutant(
        "a lost message file is no alarm of a coordinator's scrape",
        "damage=asked.damages.get(queue),", "damage=None,", ("tests/unit/views/test_readers_agree.py",),
    ),
    Mutant(
        "metrics of the past begin where the snapshot was taken",
        "history = self.history or LogHistory()", "history = LogHistory()", ("tests/unit/views/test_point_in_time.py",),
    ),
    Mutant(
        "a refused call is not counted",
        "        self.refused(request, reply.code)\n", "", ("tests/unit/coordinator/test_metrics.py",),
    ),
    Mutant("a batch is linked to no send", "kind=kind, links=linked,", "kind=kind,", ("tests/unit/test_tracing.py",)),
)  # fmt: skip
