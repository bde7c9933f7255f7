"""Dead letters in groups: those that died of the same reason with the same error text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap64

from spark_queue.core.state.dead_letter import DeadLetter
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.letters import free_letters, standing_letters
from spark_queue.dashboard import charts

#: Columns of the little chart of when letters of a group died.
_BINS = 40

#: Most groups that are shown; where each letter has an error of its own, a filter finds them better.
GROUPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterGroup:
    """Dead letters of one reason and error text."""

    key: str
    reason: str
    error: str | None
    rows: BitMap64
    #: How many of them nobody has leased or settled: these can be redriven.
    free: int
    first_ms: int
    last_ms: int
    line: str
    area: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Homes:
    """Where what is done about dead letters is done."""

    #: The queue that they died in, which redrives them.
    source: str
    #: The queue in which they wait and are settled; None where they lie in no queue.
    home: str | None


def homes_of(state: JournalState, queue: str) -> Homes:
    """Return the queues that the dead letters shown on a queue's page belong to."""
    source = state.definitions.source_of(queue) or queue
    return Homes(source=source, home=state.definitions.queue(source).dead_letter_queue)


def letter_groups(state: JournalState, queue: str) -> list[LetterGroup]:
    """Return the groups of a queue's dead letters, the latest first."""
    found: dict[tuple[str, str | None], list[DeadLetter]] = {}
    for letter in standing_letters(state, queue):
        found.setdefault((str(letter.reason), letter.error), []).append(letter)
    free = free_letters(state, homes_of(state, queue).source)
    times_ms = [letter.removed_at_ms for letters in found.values() for letter in letters]
    first_ms, last_ms = min(times_ms, default=0), max(times_ms, default=0)
    groups = [_group(reason, error, letters, free, (first_ms, last_ms)) for (reason, error), letters in found.items()]
    return sorted(groups, key=lambda group: group.last_ms, reverse=True)


def group_of(state: JournalState, queue: str, key: str) -> LetterGroup | None:
    """Return a group by its key; None when all of its letters are gone."""
    return next((each for each in letter_groups(state, queue) if each.key == key), None)


def _group(reason: str, error: str | None, letters: Sequence[DeadLetter], free: BitMap64, shown_ms: tuple[int, int]) -> LetterGroup:
    rows = BitMap64.union(BitMap64(), *(letter.rows for letter in letters))
    counts, _ = np.histogram(
        [letter.removed_at_ms for letter in letters], _BINS, (shown_ms[0], max(shown_ms[1], shown_ms[0] + 1)),
        weights=[len(letter.rows) for letter in letters],
    )  # fmt: skip
    line, area = charts.spark(counts.astype(np.float64))
    return LetterGroup(
        key=hashlib.blake2s(repr((reason, error)).encode(), digest_size=8).hexdigest(),
        reason=reason,
        error=error,
        rows=rows,
        free=rows.intersection_cardinality(free),
        first_ms=min(letter.removed_at_ms for letter in letters),
        last_ms=max(letter.removed_at_ms for letter in letters),
        line=line,
        area=area,
    )
