"""How long something waits, as users say it."""

from __future__ import annotations

from datetime import timedelta

from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.errors import parsed


def to_delay_ms(retry_after: str | timedelta | None, *, where: str) -> int | None:
    """Return the wait of cancelled messages, in milliseconds."""
    if retry_after is None:
        return None
    if isinstance(retry_after, timedelta):
        return retry_after // timedelta(milliseconds=1)
    return parsed(parse_duration_ms, retry_after, key="retry_after", where=where)
