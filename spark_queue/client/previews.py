"""Trying expressions out on messages that are in the journal, before they decide anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from pyroaring import BitMap64

from spark_queue.core.definitions.definition import QueueDefinition
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource
from spark_queue.errors import counted
from spark_queue.journal.expressions import EXPRESSION_KEYS

#: Messages of a queue's topics on which its expressions are tried, newest first; and message files that are read to find them.
_MESSAGES = 1_000


_FILES = 20


#: Bookmarks and priorities that are shown.
_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The selection by a queue's expressions of the newest messages of its topics."""

    #: Messages that were looked at.
    messages: int
    #: The number of them that would enter (all of them without a filter), and the newest of these.
    matched: int
    matched_examples: tuple[int, ...]
    #: The number on which an expression fails, and the newest of these.
    failed: int
    failed_examples: tuple[int, ...]
    #: The number of barriers among them.
    barriers: int
    #: The highest priorities, each with the number of messages that have it.
    priorities: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        """Return the selection as a line."""
        if not self.messages:
            return "tried on no messages: there are none yet"
        said = [f"{self.matched:,} match{_such_as(self.matched_examples)}", f"{self.failed:,} fail{_such_as(self.failed_examples)}"]
        if self.barriers:
            said.append(f"{self.barriers:,} are barriers")
        if self.priorities:
            said.append("highest priorities " + ", ".join(f"{priority} ({count:,}x)" for priority, count in self.priorities))
        return counted(f"tried on the newest {self.messages:,} message(s): {', '.join(said)}")


def has_expressions(queue: QueueDefinition) -> bool:
    """Return whether a queue has expressions to try out."""
    return any(getattr(queue, key) is not None for key in EXPRESSION_KEYS)


def preview(traits: TraitSource, segments: Iterable[Segment], queue: QueueDefinition) -> Preview:
    """Evaluate the checked expressions of a queue over the newest messages of its topics; `segments` come newest first."""
    messages, matched, failed, barriers = 0, BitMap64(), BitMap64(), 0
    priorities: Counter[int] = Counter()
    for of_topic, found in _found(traits, segments, queue):
        messages += len(of_topic)
        matched |= found.rows
        failed |= found.failed
        barriers += len(found.barriers)
        priorities.update(found.priorities.tolist())
    return Preview(
        messages=messages,
        matched=len(matched),
        matched_examples=_newest(matched),
        failed=len(failed),
        failed_examples=_newest(failed),
        barriers=barriers,
        priorities=tuple(sorted(priorities.items(), reverse=True)[:_EXAMPLES]),
    )


def _found(traits: TraitSource, segments: Iterable[Segment], queue: QueueDefinition) -> Iterator[tuple[BitMap64, EntryTraits]]:
    """Yield the messages of the queue's topics, and the values of its expressions on them, until there are enough."""
    # Names of queues are not empty, so this one is not confused with it.
    plain = replace(queue, name="", filter=None, barrier=None, priority=None, order_key=None)
    wanted = _MESSAGES
    for segment in islice((each for each in segments if not each.retired), _FILES):
        newest = _newest_of(segment, _MESSAGES)
        of_topic = traits.traits(newest, [TraitRequest(queue=plain)])[plain.name].rows & newest.present
        if of_topic:
            of_topic = of_topic[max(0, len(of_topic) - wanted) :]
            part = _newest_of(newest, newest.until - of_topic.min())
            yield of_topic, traits.traits(part, [TraitRequest(queue=queue)])[queue.name].among(of_topic)
            wanted -= len(of_topic)
        if not wanted:
            return


def _newest_of(segment: Segment, count: int) -> Segment:
    """Return the last messages of a segment, as one that stands in a larger file, without their expiration."""
    skipped = max(0, segment.row_count - count)
    first_row = segment.first_row + skipped
    rows = segment.row_count - skipped
    return replace(segment, first=segment.first + skipped, first_row=first_row, merged=True, expires_null_count=rows)


def _newest(rows: BitMap64) -> tuple[int, ...]:
    return tuple(islice(reversed(list(rows)), _EXAMPLES))


def _such_as(bookmarks: tuple[int, ...]) -> str:
    return f" (such as {', '.join(map(str, bookmarks))})" if bookmarks else ""
