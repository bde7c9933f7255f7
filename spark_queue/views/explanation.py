"""What happened to one message of a queue, from its publish to its state now: `sparkq explain` (DESIGN 9, R120, R121)."""

from __future__ import annotations

import html
from dataclasses import dataclass, fields
from datetime import datetime

from spark_queue.core.records import Kind

#: What a history does not say in a line of its own, before its events.
_SAID_ELSEWHERE = frozenset({"queue", "bookmark", "reason", "trouble", "committed_at", "events"})

#: What a proof makes of a message.
_PROOF_MAKES = frozenset({Kind.REMOVED, Kind.DEAD_LETTERED, Kind.RETURNED, Kind.BARRIER_RECEIVED})


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvent:
    """One thing that happened to a message."""

    at: datetime
    #: The kind of the record that says so; published, taken, moved and reset are found out without one of their own.
    event: str
    #: Number of that record of the control log; None before there was one.
    record: int | None
    queue: str | None
    subscription: str | None = None
    lease: int | None = None
    #: How many messages the lease had: one lease is one micro-batch.
    messages: int | None = None
    #: Which delivery it was, for a grant.
    delivery: int | None = None
    reason: str | None = None
    #: End of a lease, or when the message may be delivered again.
    due_at: datetime | None = None
    error: str | None = None
    #: The same in a sentence.
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHistory:
    """The life of one message, as a queue saw it; the part in its dead-letter queue, or in that queue's source, included."""

    queue: str
    bookmark: int
    #: Where it is in the queue (docs/concepts/life-of-a-message.md); None when it never came into it.
    state: str | None = None
    message_type: str
    #: Why it never came into the queue, or why it waits there; None when it is in somebody's hands, or has left.
    reason: str | None = None
    #: What could not be found out, since a message file is gone; None when all could.
    trouble: str | None
    #: As it was published; None where the body is gone.
    topic: str | None
    publisher: str | None
    sequence: int | None
    published_at: datetime | None
    expires_at: datetime | None
    #: Of an instance: where it was first published, its number there, and the instance that may deliver it.
    origin: str | None = None
    origin_bookmark: int | None = None
    owner: str | None = None
    #: The Delta commit that published it, and when that was; None where older software let it enter, which did not record it.
    version: int
    committed_at: datetime | None
    #: Where its row stands now.
    file: str
    row: int
    #: None until a coordinator has seen it.
    entered_at: datetime | None
    #: Who holds it.
    subscription: str | None = None
    lease: int | None = None
    leased_until: datetime | None = None
    #: When a delayed message may be delivered again.
    due_at: datetime | None = None
    #: Deliveries and cancels that count; of what left the queue, as they were then.
    delivery_count: int = 0
    cancel_count: int = 0
    priority: int | None = None
    #: The value of the queue's `order_key` where that is a column, else its hash.
    order_key: str | None = None
    is_barrier: bool = False
    #: Oldest first.
    events: tuple[MessageEvent, ...]

    def __str__(self) -> str:
        """Tell it in lines of text."""
        summary = [f"  {name:<14} {value}" for name, value in self._summary()]
        notes = [f"  {note}" for note in (self.reason, self.trouble) if note is not None]
        events = [f"  {_shown(event.at)}  {self._place(event)}{event.text}" for event in self._told()]
        # What others wrote may have several lines, and must not look like one of ours.
        return "\n".join(each.replace("\n", "\n      ") for each in (self._title(), *notes, *summary, "", *events))

    def _repr_html_(self) -> str:
        """Show it as two tables in a notebook."""
        summary = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in self._summary())
        events = "".join(
            f"<tr><td>{_shown(event.at)}</td><td>{html.escape(event.queue or '')}</td><td>{html.escape(event.text)}</td></tr>"
            for event in self._told()
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in (self.reason, self.trouble) if note is not None)
        head = "<tr><th>at</th><th>queue</th><th>what happened</th></tr>"
        return f"<h4>{html.escape(self._title())}</h4>{notes}<table>{summary}</table><table>{head}{events}</table>"

    def _summary(self) -> list[tuple[str, str]]:
        """Return what is said in one line each, by name."""
        known = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in _SAID_ELSEWHERE}
        return [(name.replace("_", " "), _shown(value)) for name, value in known.items() if value is not None]

    def _told(self) -> list[MessageEvent]:
        """Return the events as they read best: a proof is recorded after what follows from it, in one commit, and told before."""
        told: list[MessageEvent] = []
        for event in self.events:
            index = len(told)
            while event.event == Kind.PROVEN and index and told[index - 1].event in _PROOF_MAKES and told[index - 1].at == event.at:
                index -= 1
            told.insert(index, event)
        return told

    def _title(self) -> str:
        return f"Message {self.bookmark} of queue '{self.queue}'"

    def _place(self, event: MessageEvent) -> str:
        return "" if event.queue in (None, self.queue) else f"[{event.queue}] "


def _shown(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
