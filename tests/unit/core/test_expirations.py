"""Expirations of messages' own: what is due is found without looking at what waits, or is long gone (R60)."""

from __future__ import annotations

from collections.abc import Mapping

from spark_queue.core.bitmaps.expirations import Expirations
from spark_queue.core.bitmaps.ranges import to_bitmap


def expirations(times: Mapping[int, tuple[int, int]]) -> Expirations:
    made = Expirations()
    for at_ms, span in times.items():
        made.add({at_ms: to_bitmap([span])})
    return made


def test_times_are_found_in_order_whatever_order_they_came_in() -> None:
    found = expirations({30: (0, 2), 10: (2, 4), 20: (4, 6)})
    assert [found.next_after(at_ms, gone=[]) for at_ms in (0, 10, 29, 30)] == [10, 20, 30, None]
    assert found.overdue(20) == to_bitmap([(2, 6)])
    assert found.rows == to_bitmap([(0, 6)])


def test_bookmarks_of_one_time_are_joined() -> None:
    found = expirations({10: (0, 2)})
    found.add({10: to_bitmap([(5, 6)])})
    assert found == {10: to_bitmap([(0, 2), (5, 6)])}


def test_forget_keeps_what_is_not_due_or_kept() -> None:
    found = expirations({10: (0, 2), 20: (2, 4), 30: (4, 6)})
    found.forget(20, kept=to_bitmap([(3, 4)]))
    assert found == {20: to_bitmap([(2, 4)]), 30: to_bitmap([(4, 6)])}
    assert found.rows == to_bitmap([(2, 6)])


def test_times_of_what_is_gone_are_forgotten_as_it_goes_and_by_no_question() -> None:
    """A queue whose messages live a day knows the times of a day's commits, nearly all of them of messages long acknowledged."""
    found = expirations({at_ms: (at_ms, at_ms + 1) for at_ms in range(1, 1_001)})
    gone = [to_bitmap([(1, 500)]), to_bitmap([(500, 1_000)])]
    assert found.next_after(0, gone=gone) == found.first_of([to_bitmap([(1_000, 1_001)])]) == 1_000
    assert len(found) == 1_000
    found.forget_gone(0, gone=gone)
    assert found == {1_000: to_bitmap([(1_000, 1_001)])}
    assert found.rows == to_bitmap([(1_000, 1_001)])


def test_times_before_the_first_that_still_counts_are_kept() -> None:
    """They belong to leased messages, whose lease decides."""
    found = expirations({10: (0, 1), 20: (1, 2), 30: (2, 3)})
    found.forget_gone(10, gone=[to_bitmap([(1, 2)])])
    assert found.next_after(10, gone=[]) == 30
    assert found == {10: to_bitmap([(0, 1)]), 30: to_bitmap([(2, 3)])}
