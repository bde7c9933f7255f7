"""Values of every type at random, and what must be stored of each: by the arithmetic of Python's numbers and times alone."""

from __future__ import annotations

import datetime as dt
import re
import struct
from decimal import Decimal, localcontext
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

#: Whole numbers by their bits, DECIMALs by their digits and places.
WHOLE = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
POINT = {"FLOAT": np.float32, "DOUBLE": np.float64}
DECIMAL = {"DECIMAL(1,1)": (1, 1), "DECIMAL(8,2)": (8, 2), "DECIMAL(38,0)": (38, 0), "DECIMAL(38,37)": (38, 37)}
TYPES = (*WHOLE, *POINT, *DECIMAL, "BOOLEAN", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TIME = re.compile(
    r"(?P<y>\d{4})-(?P<mo>\d\d)-(?P<d>\d\d)([ T](?P<h>\d\d)(:(?P<m>\d\d)(:(?P<s>\d\d)(\.(?P<f>\d{1,6}))?)?)?)?"
    r"(?P<z>Z|(?P<sign>[+-])(?P<zh>\d\d):?(?P<zm>\d\d)?)?",
    re.ASCII,
)
_FIRST, _LAST = dt.datetime.min, dt.datetime.max  # noqa: DTZ901 - the years are meant, of any zone.

#: What no generator finds soon enough.
EDGES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 10**37, 10**38 - 1, 10**38, 10**39, 10**5000, 340282366920938463463374607431768212156,
    *(sign * 2**bits + by for bits in (7, 8, 15, 31, 32, 53, 63, 64, 127, 128) for sign in (1, -1) for by in (-1, 0)),
    Decimal("1e5000"), Decimal("1e999999999"), Decimal("-1e-999999999"), Decimal("0e999999"), Decimal("1E+37"), Decimal("9.9"),
    Decimal("0.9"), Decimal("1.10"), Decimal("sNaN"), Decimal("NaN"), Decimal("-Infinity"),
    0.0, -0.0, 0.1, 1.5, 1e15, 1e22, 2.0**53, 2.0**62, 2.0**63, -(2.0**63), 5e-324, 1.7976931348623157e308,
    float("nan"), float("inf"),
    np.float32(0.1), np.float32(1.5), np.float32(3.4e38), np.float16(0.1), np.int8(-7), np.uint64(2**64 - 1),
    "", " 7", "7 ", "+7", "007", "7.", ".5", "1_0", "\u0663", "0xFF", "0xFFFFFFFF", "1e2", "1e5000",
    "1e999999999", "1e99999999999999999999", "1e-99999999999999999999",
    "9" * 39, "1" + "0" * 38, "0." + "0" * 37 + "1", "0" * 50 + "7", "7.0" + "0" * 60, "1" * 5000,
    "NaN", "nan(7)", "Infinity", "-inf", "true", "TRUE", "T", "\ud800", "é", "a\x00b",
    "0000-01-01", "0001-01-01", "9999-12-31", "2023-02-29", "2024-02-29", "2024-01-01T24:00:00Z", "2024-01-01T23:59:60Z",
    "9999-12-31T23:59:59.999999Z", "9999-12-31T23:00:00-05:00", "0001-01-01T00:00:00+05:00", "0000-12-31T23:00:00-05:00",
    "2024-06-30T12:00:00+14:00",
    b"", b"\xff", b"7", "é".encode(),
    dt.date.min, dt.date.max, _FIRST, _LAST, _FIRST.replace(tzinfo=dt.UTC), _LAST.replace(tzinfo=dt.UTC),
    _FIRST.replace(tzinfo=dt.timezone(dt.timedelta(hours=5))), _LAST.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5))),
    dt.time(8), dt.timedelta(1), 3 + 4j, Fraction(1, 2),
)  # fmt: skip


def value(random: Random) -> Any:
    """Return a value of some type."""
    return random.choice((_whole, _decimal, _point, _number_text, _time_text, _time, _day))(random)


def _whole(random: Random) -> int:
    return random.randrange(2 ** random.randrange(1, 140)) * random.choice((1, -1))


def _decimal(random: Random) -> Decimal:
    digits = tuple(random.randrange(10) for _ in range(random.randrange(1, 45)))
    return Decimal((random.randrange(2), digits, random.choice((random.randrange(-50, 30), 0, -1, -2, 1 - len(digits)))))


def _point(random: Random) -> Any:
    bits = struct.pack("<Q", random.getrandbits(64))
    some = (struct.unpack("<d", bits)[0], round(random.uniform(-1000, 1000), random.randrange(3)), float(_whole(random)))
    return random.choice((*some, np.float32(random.uniform(-10, 10))))


def _number_text(random: Random) -> str:
    number = random.choice((_whole, _decimal, _point))(random)
    return random.choice(("", "", "", "+", "0", "-", "0x")) + str(number) + random.choice(("", "", "", ".", ".0", "0", "e3"))


def _time(random: Random) -> dt.datetime:
    moment = _FIRST + dt.timedelta(microseconds=random.randrange((_LAST - _FIRST) // dt.timedelta(microseconds=1)))
    minutes = random.randrange(-1000, 1000)
    return random.choice((moment, moment.replace(microsecond=0), moment.replace(tzinfo=dt.timezone(dt.timedelta(minutes=minutes)))))


def _time_text(random: Random) -> str:
    moment = _time(random).isoformat(random.choice("T "))
    changed = random.choice(
        (moment, moment, f"{random.choice(('0000', '0001', '9999'))}{moment[4:]}", moment[: random.randrange(30)])
    )
    return changed + random.choice(("", "", "Z", "+23:59", "-05:00", "-0500", "+01"))


def _day(random: Random) -> dt.date:
    return _time(random).date()


def is_missing(given: Any) -> bool:
    """Return whether pandas calls a value missing."""
    return given is None or (isinstance(given, float | np.floating | Decimal) and str(given).lower() == "nan")


def is_kept(given: Any, kept: Any, declared: str, *, in_utc: bool = False) -> bool:
    """Return whether a stored value is what was given; `in_utc` is the zone of times that carry no offset."""
    if given is None or kept is None:
        return given is kept
    if declared == "BINARY":
        return isinstance(given, str | bytes) and bool(kept == (given.encode() if isinstance(given, str) else given))
    if declared == "STRING":
        told = str(given).lower() if isinstance(given, bool) else given.decode() if isinstance(given, bytes) else str(given)
        return isinstance(given, bool | int | np.integer | Decimal | str | bytes | dt.date) and bool(told == kept)
    if declared in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        (is_instant, since), found = _moment(given), _moment(kept)
        return (is_instant or (in_utc and declared == "TIMESTAMP"), since) == found
    if declared == "BOOLEAN":
        return kept is (str(given).lower() in ("true", "1", "1.0"))
    return _is_number_kept(given, kept, declared)


def _is_number_kept(given: Any, kept: Any, declared: str) -> bool:
    text = str(given)
    said = Decimal(text)
    if not said.is_finite() or (declared in POINT and not np.isfinite(kept)):
        return declared in POINT and str(float(said)) == str(kept)
    assert not isinstance(given, str) or _NUMBER.fullmatch(given), "another spelling was taken for a number"
    if declared in WHOLE:
        return bool((Decimal(float(given)) if isinstance(given, float | np.floating) else said) == kept)
    if declared in DECIMAL:
        # A FLOAT of 16 bits is written exactly, one of 32 or 64 as short as it can be.
        return bool(said == kept) or (isinstance(given, np.float16) and Decimal(float(given)) == kept)
    # Zeros at the end say nothing behind the point; in a FLOAT or DOUBLE they never do, since its text is as short as it can be.
    _, digits, exponent = said.as_tuple()
    ending = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    silent = ending if isinstance(given, float | np.floating) else min(ending, max(0, -int(exponent)))
    with localcontext(prec=max(1, len(digits) - silent)):
        # Written with as many digits; or a DOUBLE's own text, or that of a FLOAT which was made wider.
        rounded = +Decimal(kept)
    return said in (rounded, Decimal(str(kept))) or (
        isinstance(given, np.floating) and bool(Decimal(float(given)) == Decimal(kept))
    )


def _moment(told: Any) -> tuple[bool, dt.timedelta]:
    """Return whether a time is an instant, and how long it is after the first one."""
    if isinstance(told, dt.datetime):
        offset = told.utcoffset()
        return offset is not None, told.replace(tzinfo=None) - _FIRST - (offset or dt.timedelta())
    if isinstance(told, dt.date):
        return False, dt.datetime.combine(told, dt.time()) - _FIRST
    parts = _TIME.fullmatch(told)
    assert parts is not None, f"{told} was taken for a time"
    y, mo, d, h, m, s = (int(parts[name] or 0) for name in ("y", "mo", "d", "h", "m", "s"))
    moment = dt.datetime(y, mo, d, h, m, s, int((parts["f"] or "0").ljust(6, "0")))  # noqa: DTZ001 - its offset is taken off below.
    offset = dt.timedelta(hours=int(parts["zh"] or 0), minutes=int(parts["zm"] or 0)) * (-1 if parts["sign"] == "-" else 1)
    return parts["z"] is not None, moment - _FIRST - offset


def must_be_stored(given: Any, declared: str) -> bool:
    """Return whether a value is one of its column's type, so that nothing but storing it is right."""
    if given is None:
        return True
    if isinstance(given, bool):
        return declared in ("BOOLEAN", "STRING")
    if isinstance(given, str):
        return declared in ("STRING", "BINARY") and "\ud800" not in given
    if isinstance(given, bytes):
        return declared == "BINARY"
    if isinstance(given, dt.datetime):
        is_instant, since = _moment(given)
        return declared == ("TIMESTAMP" if is_instant else "TIMESTAMP_NTZ") and dt.timedelta() <= since <= _LAST - _FIRST
    if isinstance(given, dt.date):
        return declared in ("DATE", "TIMESTAMP_NTZ")
    if isinstance(given, float):
        return declared == "DOUBLE"
    if isinstance(given, int) and declared in WHOLE:
        return bool(-(2 ** (WHOLE[declared] - 1)) <= given < 2 ** (WHOLE[declared] - 1))
    is_moderate = isinstance(given, int) or (isinstance(given, Decimal) and given.is_finite() and abs(given.adjusted()) < 100)
    if not is_moderate or declared not in DECIMAL:
        return False
    digits, places = DECIMAL[declared]
    scaled = Fraction(given) * 10**places
    return scaled.denominator == 1 and bool(abs(scaled) < 10**digits)
