"""Redriving dead letters at a pace: each second is a request of its own, so that it can be interrupted (DESIGN 15.13)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

from spark_queue.core import commands, replies
from spark_queue.core.bitmaps.ranges import oldest, to_bitmap, to_ranges
from spark_queue.core.commands import AnyCommand
from spark_queue.errors import ConfigError


def redrive(
    ask: Callable[[AnyCommand], replies.CoreReply],
    queue: str,
    where: str | None,
    *,
    per_second: int | None,
    on_progress: Callable[[int, int], None] | None,
    sleep: Callable[[float], None] = time.sleep,
) -> replies.Redriven:
    """Find dead letters, and give them back; see `Queue.redrive`."""
    if per_second is not None and (per_second < 1):
        expected = "a whole number from 1"
        raise ConfigError("BAD_VALUE", key="per_second", where=f"redrive of queue '{queue}'", value=per_second, expected=expected)
    found = cast(replies.DeadLetters, ask(commands.FindDeadLetters(queue=queue, where=where)))
    left = to_bitmap(found.ranges)
    requested, redriven = len(left) + found.skipped, 0
    while left:
        part = left if per_second is None else oldest(left, per_second)
        command = commands.Redrive(queue=queue, ranges=tuple(to_ranges(part)))
        redriven += cast(replies.Redriven, ask(command)).redriven
        left = left - part
        if on_progress is not None:
            on_progress(requested - len(left), requested)
        if left:
            sleep(1)
    return replies.Redriven(requested=requested, redriven=redriven, skipped=requested - redriven)
