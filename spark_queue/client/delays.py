"""How long something waits, as users say it."""

from __future__ import annotations

from datetime import timedelta

from spark_queue.core.definitions.keys import DURATION_LIMIT_MS, parse_duration_ms
from spark_queue.errors import ConfigError, parsed


def to_delay_ms(retry_after: str | timedelta | None, *, where: str) -> int | None:
    """Return the wait of cancelled messages, in milliseconds."""
    if retry_after is None:
        return None
    if isinstance(retry_after, timedelta):
        after_ms = retry_after // timedelta(milliseconds=1)
        if not 0 <= after_ms <= DURATION_LIMIT_MS:
            expected = "a duration of 0 ms to 36500 days"
            raise ConfigError("BAD_VALUE", key="retry_after", where=where, value=retry_after, expected=expected)
        return after_ms
    return parsed(parse_duration_ms, retry_after, key="retry_after", where=where)
