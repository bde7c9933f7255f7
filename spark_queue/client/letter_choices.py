"""Which dead letters a caller means, as callers say it."""

from __future__ import annotations

from datetime import datetime

from spark_queue.core.records import DEAD_LETTER_REASONS
from spark_queue.core.state.letter_kinds import LetterChoice
from spark_queue.errors import ConfigError
from spark_queue.settings.timestamps import in_utc, to_ms


def letter_choice(*, reason: str | None, error: str | None, since: datetime | None, until: datetime | None) -> LetterChoice:
    """Return a choice of dead letters.

    Raises
    ------
    ConfigError
        BAD_VALUE for a reason that no dead letter has.
    CallerError
        TIMESTAMP_AMBIGUOUS for a time without an offset.
    """
    if reason is not None and reason not in DEAD_LETTER_REASONS:
        expected = f"one of {', '.join(sorted(DEAD_LETTER_REASONS))}"
        raise ConfigError("BAD_VALUE", key="reason", where="the choice of dead letters", value=reason, expected=expected)
    return LetterChoice(reason=reason, error=error, since_ms=_ms(since, "since"), until_ms=_ms(until, "until"))


def _ms(time: datetime | None, name: str) -> int | None:
    return None if time is None else to_ms(in_utc(time, value=time.isoformat(), where=f"'{name}'"))
