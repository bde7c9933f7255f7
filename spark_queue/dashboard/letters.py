"""Groups of dead letters, as a queue's page shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyroaring import BitMap64

from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.letter_kinds import LetterChoice, LetterKind, error_class, letter_kinds
from spark_queue.core.state.letters import free_letters, standing_letters
from spark_queue.dashboard import charts, formatting

#: Columns of the little chart of when letters of a group died.
_BINS = 40

#: Most groups that are shown; a filter finds the letters of others.
GROUPS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterGroup:
    """Dead letters of one reason and class of errors."""

    key: str
    kind: LetterKind
    rows: BitMap64
    #: The number of them that are neither leased nor settled: these can be redriven.
    free: int
    first_ms: int
    last_ms: int
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQueues:
    """The queues in which dead letters are redriven and settled."""

    #: The queue that they died in, which redrives them.
    source: str
    #: The queue in which they wait and are settled; None where they lie in no queue.
    home: str | None


def homes_of(state: JournalState, queue: str) -> DeadLetterQueues:
    """Return the queues that the dead letters shown on a queue's page belong to."""
    source = state.definitions.source_of(queue) or queue
    return DeadLetterQueues(source=source, home=state.definitions.queue(source).dead_letter_queue)


def choice_of(asked: Mapping[str, Any]) -> LetterChoice:
    """Return the choice of dead letters in an address or a form; its times are UTC where they do not say otherwise."""
    error = str(asked.get("error", "")).strip() or None
    since_ms, until_ms = (formatting.moment_ms(str(asked.get(name, "")), key=name) for name in ("since", "until"))
    return LetterChoice(error=error, since_ms=since_ms, until_ms=until_ms)


def letter_groups(state: JournalState, queue: str, choice: LetterChoice) -> list[LetterGroup]:
    """Return the groups of a queue's dead letters that are meant, the latest first."""
    kinds = letter_kinds(choice.of(standing_letters(state, queue)))
    free = free_letters(state, homes_of(state, queue).source)
    shown_ms = min((kind.first_ms for kind in kinds), default=0), max((kind.last_ms for kind in kinds), default=0)
    return [_group(kind, free, shown_ms) for kind in kinds]


def group_of(state: JournalState, queue: str, key: str, choice: LetterChoice) -> LetterGroup | None:
    """Return a group by its key; None when all of its letters that are meant are gone."""
    return next((each for each in letter_groups(state, queue, choice) if each.key == key), None)


def _group(kind: LetterKind, free: BitMap64, shown_ms: tuple[int, int]) -> LetterGroup:
    rows, letters = kind.rows, kind.letters
    counts, _ = np.histogram(
        [letter.removed_at_ms for letter in letters], _BINS, (shown_ms[0], max(shown_ms[1], shown_ms[0] + 1)),
        weights=[len(letter.rows) for letter in letters],
    )  # fmt: skip
    return LetterGroup(
        # It stays the group's when another letter comes, with which errors differ.
        key=hashlib.blake2s(repr((kind.reason, kind.error and error_class(kind.error))).encode(), digest_size=8).hexdigest(),
        kind=kind,
        rows=rows,
        free=rows.intersection_cardinality(free),
        first_ms=kind.first_ms,
        last_ms=kind.last_ms,
        line=charts.spark(counts.astype(np.float64)),
    )
