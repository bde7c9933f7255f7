"""Bugs in what is counted from when, and in who is alive (DESIGN 15.3)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TIMES = ("tests/unit/journal/test_publication_times.py",)

TIMES: tuple[Mutant, ...] = (
    Mutant(
        "what waited for a coordinator is as young as its start",
        "spark_queue/ports.py", "published_at_ms=max(since_ms, min(at_ms, committed_at_ms)),", "published_at_ms=at_ms,",
        _TIMES,
    ),
    Mutant(
        "a publisher's wrong clock makes messages old while a coordinator looks on",
        "spark_queue/journal/entering.py", "max(known.published_until_ms, self._seen_at_ms.get(message_type, 0))",
        "known.published_until_ms",
        _TIMES,
    ),
    Mutant(
        "a message expires by its publisher's clock",
        "spark_queue/core/state/journal_state.py", ".entered_by(now_ms - queue.expiration_ms)",
        ".published_by(now_ms - queue.expiration_ms)",
        ("tests/unit/core/test_scenarios.py",),
    ),
)  # fmt: skip
