"""Which dead letters a caller means, as callers say it.

Dead letters go back to their queue in steps, each a request of its own, so that it can be interrupted.
Trying expressions out on messages that are in the journal, before they decide anything.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import cast

from pyroaring import BitMap64

from spark_queue.core import commands, replies
from spark_queue.core.bitmaps.ranges import oldest, to_bitmap, to_ranges
from spark_queue.core.definitions.definition import QueueDefinition
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource
from spark_queue.core.records import DEAD_LETTER_REASONS
from spark_queue.core.state.dead_letter import LetterChoice
from spark_queue.errors import ConfigError, check_text
from spark_queue.journal.traits import EXPRESSION_KEYS
from spark_queue.settings.types import in_utc, to_ms


def letter_choice(*, reason: str | None, error: str | None, since: datetime | None, until: datetime | None) -> LetterChoice:
    """Return a choice of dead letters.

    Raises
    ------
    ConfigError
        BAD_VALUE for a reason that no dead letter has, and an error that is no text.
    CallerError
        TIMESTAMP_AMBIGUOUS for a time without an offset.
    """
    if error is not None:
        check_text(error, key="error", where="the choice of dead letters")
    if reason is not None and reason not in DEAD_LETTER_REASONS:
        expected = f"one of {', '.join(sorted(DEAD_LETTER_REASONS))}"
        raise ConfigError("BAD_VALUE", key="reason", where="the choice of dead letters", value=reason, expected=expected)
    return LetterChoice(reason=reason, error=error, since_ms=_ms(since, "since"), until_ms=_ms(until, "until"))


def to_bookmarks(bookmarks: Iterable[int], *, where: str) -> BitMap64:
    """Return bookmarks that a user gave as a set.

    Raises
    ------
    ConfigError
        BAD_VALUE for what is no bookmark.
    """
    try:
        return BitMap64(bookmarks)
    except (TypeError, ValueError, OverflowError) as reason:
        expected = f"whole numbers from 0 of 64 bits ({reason})"
        raise ConfigError("BAD_VALUE", key="bookmarks", where=where, value=bookmarks, expected=expected) from None


def _ms(time: datetime | None, name: str) -> int | None:
    return None if time is None else to_ms(in_utc(time, value=time.isoformat(), where=f"'{name}'"))


def redrive_rows(
    ask: Callable[[commands.Redrive], replies.CoreReply],
    queue: str,
    rows: BitMap64,
    *,
    requested: int,
    per_second: int | None,
    on_progress: Callable[[int, int], None] | None,
) -> replies.Redriven:
    """Give dead letters back, oldest first.

    Parameters
    ----------
    ask
        Asks the coordinator.
    requested
        How many were meant, with those that are none and are skipped.
    per_second
        Most messages each second; None for all at once.
    on_progress
        Called after each step with how many of all that were meant are done, and how many those are.
    """
    left, redriven = rows, 0
    while left:
        part = left if per_second is None else oldest(left, per_second)
        redriven += cast(replies.Redriven, ask(commands.Redrive(queue=queue, ranges=tuple(to_ranges(part))))).redriven
        left = left - part
        if on_progress is not None:
            on_progress(requested - len(left), requested)
        if left:
            time.sleep(1)
    return replies.Redriven(requested=requested, redriven=redriven, skipped=requested - redriven)


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
    #: How many of them would enter (all of them without a filter), and the newest of these.
    matched: int
    matched_examples: tuple[int, ...]
    #: On how many an expression fails, and the newest of these.
    failed: int
    failed_examples: tuple[int, ...]
    #: How many would be barriers.
    barriers: int
    #: The highest priorities, each with the number of messages that have it.
    priorities: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        """Say it in a line."""
        if not self.messages:
            return "tried on no messages: there are none yet"
        said = [f"{self.matched:,} match{_such_as(self.matched_examples)}", f"{self.failed:,} fail{_such_as(self.failed_examples)}"]
        if self.barriers:
            said.append(f"{self.barriers:,} are barriers")
        if self.priorities:
            said.append("highest priorities " + ", ".join(f"{priority} ({count:,}x)" for priority, count in self.priorities))
        return f"tried on the newest {self.messages:,} messages: {', '.join(said)}"


def has_expressions(queue: QueueDefinition) -> bool:
    """Return whether there is anything to try out."""
    return any(getattr(queue, key) is not None for key in EXPRESSION_KEYS)


def preview(traits: TraitSource, segments: Iterable[Segment], queue: QueueDefinition) -> Preview:
    """Evaluate the expressions of a queue over the newest messages of its topics.

    Parameters
    ----------
    traits
        Evaluates expressions.
    segments
        The messages of its message type, newest first.
    queue
        Its expressions were checked.

    Raises
    ------
    JournalError
        MESSAGE_FILE_MISSING, MESSAGE_FILE_CORRUPT, STORE_FAILED.
    """
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
    """Yield the messages of the queue's topics, and what its expressions say of them, until there are enough."""
    # Names of queues are not empty, so this one is not confused with it.
    plain = replace(queue, name="", filter=None, barrier=None, priority=None, order_key=None)
    wanted = _MESSAGES
    for segment in islice((each for each in segments if not each.retired), _FILES):
        newest = _newest_of(segment, _MESSAGES)
        of_topic = traits.traits(newest, [TraitRequest(queue=plain)])[plain.name].rows
        if of_topic:
            part = _newest_of(newest, newest.until - of_topic[max(0, len(of_topic) - wanted)])
            of_topic &= to_bitmap([(part.first, part.until)])
            yield of_topic, traits.traits(part, [TraitRequest(queue=queue)])[queue.name]
            wanted -= len(of_topic)
        if not wanted:
            return


def _newest_of(segment: Segment, count: int) -> Segment:
    """Return the last messages of a segment, as one that stands in a larger file; when they expire is not asked."""
    skipped = max(0, segment.row_count - count)
    first_row = segment.first_row + skipped
    rows = segment.row_count - skipped
    return replace(segment, first=segment.first + skipped, first_row=first_row, merged=True, expires_null_count=rows)


def _newest(rows: BitMap64) -> tuple[int, ...]:
    return tuple(islice(reversed(list(rows)), _EXAMPLES))


def _such_as(bookmarks: tuple[int, ...]) -> str:
    return f" (such as {', '.join(map(str, bookmarks))})" if bookmarks else ""
