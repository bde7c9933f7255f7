"""Dead letters in groups: those that died of the same reason with the same error text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from pyroaring import BitMap64

from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.letter_kinds import LetterChoice, LetterKind, letter_kinds
from spark_queue.core.state.letters import free_letters, standing_letters
from spark_queue.dashboard import charts
from spark_queue.errors import ConfigError
from spark_queue.settings.timestamps import parse_moment, to_ms

#: Columns of the little chart of when letters of a group died.
_BINS = 40

_WITHOUT_OFFSET = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", re.ASCII)

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


def choice_of(asked: Mapping[str, Any]) -> LetterChoice:
    """Return which dead letters an address or a form means; its times are UTC where they do not say otherwise.

    Raises
    ------
    ConfigError
        BAD_VALUE.
    """
    error = str(asked.get("error", "")).strip() or None
    since_ms, until_ms = (_moment_ms(name, str(asked.get(name, "")).strip()) for name in ("since", "until"))
    return LetterChoice(error=error, since_ms=since_ms, until_ms=until_ms)


def _moment_ms(name: str, text: str) -> int | None:
    if not text:
        return None
    try:
        # As browsers write what was chosen in a field for a time.
        return to_ms(parse_moment(f"{text}Z" if _WITHOUT_OFFSET.fullmatch(text) else text))
    except (ValueError, OverflowError) as reason:
        raise ConfigError("BAD_VALUE", key=name, where="the address", value=text, expected=f"a date or {reason}") from None


def yesterday(now_ms: int) -> dict[str, str]:
    """Return how an address means the dead letters of yesterday, in UTC."""
    today = datetime.fromtimestamp(now_ms / 1_000, UTC).date()
    return {"since": f"{today - timedelta(days=1)}T00:00", "until": f"{today}T00:00"}


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
    line, area = charts.spark(counts.astype(np.float64))
    return LetterGroup(
        key=hashlib.blake2s(repr((kind.reason, kind.error)).encode(), digest_size=8).hexdigest(),
        reason=kind.reason,
        error=kind.error,
        rows=rows,
        free=rows.intersection_cardinality(free),
        first_ms=kind.first_ms,
        last_ms=kind.last_ms,
        line=line,
        area=area,
    )
