"""Dead letters go back to their queue in steps, each a request of its own, so that it can be interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

from pyroaring import BitMap64

from spark_queue.core import commands, replies
from spark_queue.core.bitmaps.ranges import oldest, to_ranges


def redrive_rows(
    ask: Callable[[commands.Redrive], replies.CoreReply],
    queue: str,
    rows: BitMap64,
    *,
    requested: int,
    per_second: int | None,
    on_progress: Callable[[int, int], None] | None,
) -> replies.Redriven:
    """Give dead letters back, oldest first; without `per_second` all at once.

    `on_progress` is called after each step with the number done and with that of all, `requested`: both count also bookmarks that
    are no dead letters, which are skipped.
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
