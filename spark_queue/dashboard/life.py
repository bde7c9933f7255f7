"""The life of one message as a picture: a band of its states over time, and its events below one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from spark_queue.core.records import DEAD_LETTER_REASONS, Kind
from spark_queue.settings.timestamps import to_ms
from spark_queue.views.explain import MessageEvent, MessageHistory, RepeatedDeliveries

#: Width of the band, in the units of its picture.
BAND_WIDTH = 1_000

#: The state of the band that each kind of event begins.
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
    #: The text that is shown when it is pointed at.
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event, or one for many deliveries in a row."""

    at_ms: int
    #: Its mark: came, leased, done, dead, or plain.
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
    # Publishers' clocks may be ahead of the coordinator's: their times count as far as they come before.
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
    # The end of a life keeps some room, so that it can be seen.
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
