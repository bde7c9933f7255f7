"""A caller's choice of dead letters, from the arguments of public methods."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pyroaring import BitMap64

from spark_queue.core.records import DEAD_LETTER_REASONS
from spark_queue.core.state.letter_kinds import LetterChoice
from spark_queue.errors import ConfigError, check_text
from spark_queue.settings.timestamps import in_utc, to_ms


def letter_choice(*, reason: str | None, error: str | None, since: datetime | None, until: datetime | None) -> LetterChoice:
    """Return a choice of dead letters."""
    if error is not None:
        check_text(error, key="error", where="the choice of dead letters")
    if reason is not None and reason not in DEAD_LETTER_REASONS:
        expected = f"one of {', '.join(sorted(DEAD_LETTER_REASONS))}"
        raise ConfigError("BAD_VALUE", key="reason", where="the choice of dead letters", value=reason, expected=expected)
    return LetterChoice(reason=reason, error=error, since_ms=_ms(since, "since"), until_ms=_ms(until, "until"))


def to_bookmarks(bookmarks: Iterable[int], *, where: str) -> BitMap64:
    """Return a user's bookmarks as a set."""
    try:
        return BitMap64(bookmarks)
    except (TypeError, ValueError, OverflowError) as reason:
        expected = f"whole numbers from 0 of 64 bits ({reason})"
        raise ConfigError("BAD_VALUE", key="bookmarks", where=where, value=bookmarks, expected=expected) from None


def _ms(time: datetime | None, name: str) -> int | None:
    return None if time is None else to_ms(in_utc(time, value=time.isoformat(), where=f"'{name}'"))
