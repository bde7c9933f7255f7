"""Redriving dead letters at a pace, from the caller's side (DESIGN 15.13)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, cast

from pyroaring import BitMap64

from spark_queue.core import commands, replies
from spark_queue.core.bitmaps.ranges import oldest, to_bitmap, to_ranges
from spark_queue.errors import ConfigError


class Ask(Protocol):
    """How a queue asks its coordinator."""

    def __call__(self, command: commands.AnyCommand, *, dry_run: bool = False) -> replies.CoreReply:
        """Return the answer; of a dry run, what it would be."""
        ...


def redrive(
    ask: Ask,
    queue: str,
    where: str | None,
    named: BitMap64 | None,
    *,
    per_second: int | None,
    on_progress: Callable[[int, int], None] | None,
    dry_run: bool,
) -> replies.Redriven:
    """Give back the dead letters of a queue that match a filter, of those that are named; None for all. See `Queue.redrive`.

    Raises
    ------
    ConfigError
        BAD_VALUE for a `per_second` below 1.
    """
    if per_second is not None and per_second < 1:
        place, expected = f"redrive of queue '{queue}'", "a whole number from 1"
        raise ConfigError("BAD_VALUE", key="per_second", where=place, value=per_second, expected=expected)
    found = cast(replies.DeadLetters, ask(commands.FindDeadLetters(queue=queue, where=where), dry_run=dry_run))
    left = to_bitmap(found.ranges)
    requested, redriven = len(left) + found.skipped, 0
    if named is not None:
        left, requested = left & named, len(named)
    if dry_run:
        return replies.Redriven(requested=requested, redriven=len(left), skipped=requested - len(left))
    while left:
        # Each second is a request of its own, so that it can be interrupted.
        part = left if per_second is None else oldest(left, per_second)
        redriven += cast(replies.Redriven, ask(commands.Redrive(queue=queue, ranges=tuple(to_ranges(part))))).redriven
        left = left - part
        if on_progress is not None:
            on_progress(requested - len(left), requested)
        if left:
            time.sleep(1)
    return replies.Redriven(requested=requested, redriven=redriven, skipped=requested - redriven)
