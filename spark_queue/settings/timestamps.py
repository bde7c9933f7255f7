"""Timestamps as users write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

from spark_queue.errors import CallerError


def parse_timestamp(value: str, *, where: str = "the options") -> datetime:
    """Parse an ISO-8601 time that carries its offset; `where` says in errors by what it was given.

    Anything else is a ValueError; only a time without an offset is refused as TIMESTAMP_AMBIGUOUS, which shows both readings.
    """
    try:
        return in_utc(datetime.fromisoformat(value), value=value, where=where)
    except (ValueError, OverflowError):
        # At either end of the calendar there is a time that has no reading in UTC.
        raise ValueError("an ISO-8601 time with offset, such as 2026-01-31T12:00:00Z") from None


def parse_moment(value: str, *, where: str = "the options") -> datetime:
    """Parse an ISO-8601 time that carries its offset, or a date, which stands for its beginning in UTC."""
    try:
        return datetime.combine(date.fromisoformat(value), datetime.min.time(), UTC)
    except ValueError:
        return parse_timestamp(value, where=where)


def in_utc(time: datetime, *, value: str, where: str) -> datetime:
    """Return a time in UTC; one without an offset is refused (TIMESTAMP_AMBIGUOUS) with two readings that differ."""
    if time.tzinfo is not None:
        return time.astimezone(UTC)
    # Where this host's zone is UTC, a reading elsewhere shows the difference.
    utc, local = time.replace(tzinfo=UTC), time.astimezone()
    local = local if local.utcoffset() else time.replace(tzinfo=timezone(timedelta(hours=1)))
    raise CallerError("TIMESTAMP_AMBIGUOUS", value=value, where=where, utc=utc.isoformat(), local=local.isoformat())


def to_ms(time: datetime) -> int:
    """Return an aware time as whole milliseconds since 1970 UTC, rounded down."""
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000


def to_text(at_ms: int | None, timespec: str = "seconds") -> str:
    """Return a time in UTC, to the second or another `timespec` of `datetime.isoformat`; None gives nothing."""
    return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec=timespec)
