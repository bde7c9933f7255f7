"""When a message log is looked at: oftener where something comes, and seldom where nobody waits for it."""

from __future__ import annotations

from itertools import pairwise

from spark_queue.journal.log_looks import BUSY_MS, NEAR_SILENT_MS, SEARCHED_MS, SILENT_MS, UNAWAITED_MS, LogLooks


def looked_at(looks: LogLooks, from_ms: int, until_ms: int, *, awaited: bool) -> list[tuple[int, bool]]:
    """Return the times of all looks of a while in which nothing comes, and whether each searched for gaps."""
    times, now_ms = [], from_ms
    while (now_ms := max(now_ms, looks.due_ms(awaited=awaited))) < until_ms:
        searched = looks.finds_gaps(now_ms, awaited=awaited)
        looks.looked(now_ms, came=False, searched=searched)
        times.append((now_ms, searched))
    return times


def test_the_first_look_is_due_at_once_and_searches() -> None:
    for awaited in (True, False):
        looks = LogLooks(5_000)
        assert looks.due_ms(awaited=awaited) <= 5_000
        assert looks.finds_gaps(5_000, awaited=awaited)


def test_looks_become_fewer_while_nothing_comes_and_none_comes_later_than_promised() -> None:
    times = [at_ms for at_ms, _ in looked_at(LogLooks(0), 0, 60_000, awaited=True)]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (BUSY_MS, SILENT_MS)
    assert len(times) <= 60_000 // SILENT_MS + 5


def test_a_log_says_how_rare_looks_at_it_may_become() -> None:
    times = [at_ms for at_ms, _ in looked_at(LogLooks(0, NEAR_SILENT_MS), 0, 10_000, awaited=True)]
    assert max(later - earlier for earlier, later in pairwise(times)) == NEAR_SILENT_MS


def test_what_came_unannounced_makes_the_next_look_soon_and_what_was_announced_does_not() -> None:
    looks = LogLooks(0)
    looked_at(looks, 0, 60_000, awaited=True)
    looks.looked(60_000, came=False, searched=False)
    assert looks.due_ms() == 60_000 + SILENT_MS
    looks.looked(60_000, came=True, searched=False)
    assert looks.due_ms() == 60_000 + BUSY_MS


def test_gaps_are_searched_for_seldom() -> None:
    looks = LogLooks(0)
    searches = [at_ms for at_ms, searched in looked_at(looks, 0, 3 * SEARCHED_MS, awaited=True) if searched]
    pauses = [later - earlier for earlier, later in pairwise(searches)]
    assert searches[0] == 0
    assert all(SEARCHED_MS <= pause <= SEARCHED_MS + SILENT_MS for pause in pauses)


def test_where_nobody_waits_each_look_is_a_search() -> None:
    looks = LogLooks(0)
    assert looked_at(looks, 0, 3 * UNAWAITED_MS, awaited=False) == [(number * UNAWAITED_MS, True) for number in range(3)]
    assert looks.due_ms(awaited=True) == 2 * UNAWAITED_MS + SILENT_MS, "who begins to wait then is not late"
