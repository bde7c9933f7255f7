"""Which question each row answers, in the order in which a reader of the results asks them."""

from __future__ import annotations

from collections.abc import Mapping

#: The rows that come first, each a ratio to what people would use instead.
HEADLINES = ("sink-10000", "store-spark-10000-queue-delta", "follow-100000", "latency-p50", "store-spark-row-p50-delta")

#: For each question the beginnings of its rows' names; a row belongs to the longest that it begins with.
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "How fast does a queue fill a Delta table?": ("sink-",),
    "How fast does a batch function get its rows?": ("throughput", "latency-", "selected-", "ordered", "failing-"),
    "How fast is all that on a far object store?": ("store-", "requests-"),
    "How fast is a queue over a table that is there?": ("follow-",),
    "How fast are workers in plain Python?": ("receive-", "receiver-"),
    "How fast is publishing one at a time?": ("publish-", "import"),
    "How far does one coordinator go?": (
        "core-",
        "curve-",
        "deliveries",
        "entering",
        "many-queues-",
        "memory-",
        "share-",
        "growth",
        "commit-growth",
        "profile-",
    ),
    "How long does a restart take?": ("recovery-",),
    "How fast are status, page and metrics?": ("looking-", "dashboard", "explain"),
    "How fast do sites share a queue?": ("replication-",),
}


def question_of(row: str) -> str:
    """Return the question that a row answers."""
    known = [(len(start), question) for question, starts in QUESTIONS.items() for start in starts if row.startswith(start)]
    if not known:
        raise LookupError(f"row {row} answers no question of {__name__}")
    return max(known)[1]
