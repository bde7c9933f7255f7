"""Rates and time spans for people: on the page, and by the command line."""

from __future__ import annotations

import math

#: Nothing to say.
NONE = "–"

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def rate(per_second: float | None) -> str:
    """Return a rate: messages each second, or each minute where it is slow."""
    if per_second is None or math.isnan(per_second):
        return NONE
    if per_second == 0:
        return "0"
    if per_second >= 100:
        return f"{per_second:,.0f}/s"
    if per_second >= 1:
        return f"{per_second:,.1f}/s"
    return f"{per_second * 60:,.2g}/min" if per_second * 60 >= 0.1 else f"{per_second * 3600:,.2g}/h"


def duration(seconds: float | None) -> str:
    """Return a time span in its two largest units."""
    if seconds is None or math.isnan(seconds):
        return NONE
    if abs(seconds) < 10:
        return f"{seconds:.1f} s"
    sign, left = ("−" if seconds < 0 else ""), abs(round(seconds))
    for index, (length, unit) in enumerate(_STEPS):
        if left >= length:
            told = f"{sign}{left // length} {unit}"
            if index + 1 < len(_STEPS):
                smaller, name = _STEPS[index + 1]
                told += f" {left % length // smaller} {name}"
            return told
    return "0 s"
