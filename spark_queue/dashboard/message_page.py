"""The page of a queue's messages: some rows, with as much of their bodies as a table can carry.

Dead letters in groups: those that died of the same reason with errors of the same class.
The life of one message as a picture: a band of its states over time, and its events below one another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from pyroaring import BitMap64

from spark_queue.core.records import DEAD_LETTER_REASONS, Kind
from spark_queue.core.state.dead_letter import LetterChoice, LetterKind, error_class, letter_kinds
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.letters import free_letters, standing_letters
from spark_queue.core.state.lifecycle import IN_QUEUE, State
from spark_queue.dashboard import formatting
from spark_queue.settings.types import to_ms
from spark_queue.views.explain import MessageEvent, MessageHistory, RepeatedDeliveries
from spark_queue.views.message_search import MessageRow

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
    #: How many of them nobody has leased or settled: these can be redriven.
    free: int
    first_ms: int
    last_ms: int
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQueues:
    """Where what is done about dead letters is done."""

    #: The queue that they died in, which redrives them.
    source: str
    #: The queue in which they wait and are settled; None where they lie in no queue.
    home: str | None


def homes_of(state: JournalState, queue: str) -> DeadLetterQueues:
    """Return the queues that the dead letters shown on a queue's page belong to."""
    source = state.definitions.source_of(queue) or queue
    return DeadLetterQueues(source=source, home=state.definitions.queue(source).dead_letter_queue)


def choice_of(asked: Mapping[str, Any]) -> LetterChoice:
    """Return which dead letters an address or a form means; its times are UTC where they do not say otherwise."""
    error = str(asked.get("error", "")).strip() or None
    since_ms, until_ms = (formatting.moment_ms(str(asked.get(name, "")), key=name) for name in ("since", "until"))
    return LetterChoice(error=error, since_ms=since_ms, until_ms=until_ms)


def spans(now_ms: int) -> dict[str, dict[str, str]]:
    """Return how an address means the dead letters of some spans of time, in UTC, by what these are called."""
    now = datetime.fromtimestamp(now_ms / 1_000, UTC)
    a_day_ago = now - timedelta(days=1)
    return {
        "Last 24 h": {"since": f"{a_day_ago:%Y-%m-%dT%H:%M}", "until": ""},
        "Yesterday": {"since": f"{a_day_ago:%Y-%m-%d}T00:00", "until": f"{now:%Y-%m-%d}T00:00"},
    }


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
        line=formatting.spark(counts.astype(np.float64)),
    )


#: Width of the band, in the units of its picture.
BAND_WIDTH = 1_000

#: What each kind of event begins: a state of the band.
_BEGINS = {
    "published": "waits", "committed": "waits", "taken": "waits", "reset": "waits", Kind.ENTERED: "waits", Kind.GRANTED: "leased",
    Kind.RESUMED: "leased", Kind.REDRIVEN: "waits", Kind.BARRIER_RELEASED: "done",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of the band."""

    state: str
    x: float
    width: float
    #: What it says when pointed at.
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event, or what many deliveries in a row have in common."""

    at_ms: int
    #: How it is marked: came, leased, done, dead, or plain.
    mark: str
    text: str
    record: int | None
    queue: str | None
    #: Events of these deliveries.
    behind: Sequence[Happening] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LifePicture:
    """The picture."""

    band: Sequence[Stretch]
    events: Sequence[Happening]


def life_of(history: MessageHistory, now_ms: int) -> LifePicture:
    """Draw the life of a message until now."""
    told = [_happening(event, history.queue) for event in history.told()]
    own = [event for event in history.events if event.record is not None and event.queue in (None, history.queue)]
    # Publishers' clocks may be ahead of the coordinator's: what they say counts as far as it comes before.
    before = [event for event in history.events if event.record is None and (not own or event.at <= own[0].at)]
    return LifePicture(band=_band([*before, *own], now_ms), events=told)


def _happening(event: MessageEvent | RepeatedDeliveries, queue: str) -> Happening:
    if isinstance(event, RepeatedDeliveries):
        behind = [_happening(each, queue) for each in event.events]
        return Happening(at_ms=behind[0].at_ms, mark="leased", text=event.text, record=None, queue=None, behind=behind)
    state = _state(event)
    mark = {"waits": "came", "delayed": "came", None: "plain"}.get(state, state)
    return Happening(
        at_ms=_ms(event.at),
        mark=str(mark),
        text=event.text,
        record=event.record,
        queue=None if event.queue in (None, queue) else event.queue,
    )


def _state(event: MessageEvent) -> str | None:
    """Return the state of the band that an event begins; None when it begins none."""
    if event.event == Kind.REMOVED:
        return "dead" if event.reason in DEAD_LETTER_REASONS else "done"
    if event.event == Kind.RETURNED:
        return "waits" if event.due_at is None else "delayed"
    if event.event == Kind.DEAD_LETTERED:
        return "waits"
    return _BEGINS.get(event.event)


def _band(events: Sequence[MessageEvent], now_ms: int) -> list[Stretch]:
    begun = [(_ms(event.at), state) for event in events if (state := _state(event)) is not None]
    if not begun:
        return []
    first_ms, last_ms = begun[0][0], max(begun[-1][0], now_ms if begun[-1][1] in ("waits", "leased", "delayed") else 0)
    # What is over keeps some room at the end, so that it can be seen.
    end_ms = last_ms + max(1, (last_ms - first_ms) // 12)
    scale = BAND_WIDTH / max(1, end_ms - first_ms)
    stretches = []
    for index, (at_ms, state) in enumerate(begun):
        until_ms = begun[index + 1][0] if index + 1 < len(begun) else end_ms
        if until_ms > at_ms:
            width = max(1.5, (until_ms - at_ms) * scale)
            told = f"{state} for {(until_ms - at_ms) / 1_000:,.1f} s" if index + 1 < len(begun) else state
            stretches.append(Stretch(state=state, x=round((at_ms - first_ms) * scale, 1), width=round(width, 1), told=told))
    return stretches


def _ms(at: datetime) -> int:
    return to_ms(at)


#: Rows of a page.
PAGE_ROWS = 50

#: The states that can be chosen, by what the page calls them.
STATES = {"in the queue": IN_QUEUE, "in any state": tuple(State), **{str(state): (state,) for state in State}}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Some messages, and where it goes on."""

    #: Each message, with its cells as `columns` names them; None where its body is not shown.
    rows: Sequence[tuple[MessageRow, Sequence[str] | None]]
    columns: Sequence[str]
    #: How many there are in the chosen state, before any filter.
    total: int
    #: Bookmark to go on from; None at the end.
    next_after: int | None
    #: Why bodies cannot be shown.
    trouble: str | None
    #: Whether the search ended for its time was over.
    is_cut: bool


def cells(values: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[list[str]]:
    """Return what tables show of bodies, a row for each."""
    return [[formatting.cell(value[column]) for column in columns] for value in values]
