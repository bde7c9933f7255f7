"""Charts as the page draws them: lines, and the ticks of their axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

#: Steps between the lines of a time axis, in milliseconds, and the form of a time at them.
_TIME_STEPS: tuple[tuple[int, str], ...] = (
    *((seconds * 1_000, "%H:%M:%S") for seconds in (1, 5, 10, 15, 30)),
    *((minutes * 60_000, "%H:%M") for minutes in (1, 2, 5, 10, 15, 30)),
    *((hours * 3_600_000, "%H:%M") for hours in (1, 3, 6)),
    (12 * 3_600_000, "%d %b %H:%M"),
    *((days * 86_400_000, "%d %b") for days in (1, 2, 7, 14)),
    *((days * 86_400_000, "%b %Y") for days in (30, 90, 180)),
    *((days * 86_400_000, "%Y") for days in (365, 3650)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A line of an axis: its place, and its text."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart: its class, its name, and its path."""

    name: str
    label: str
    path: str
    area: str
    #: Its values, as people are shown them.
    values: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart over time."""

    title: str
    unit: str
    width: int
    height: int
    left: int
    bottom: int
    start_ms: int
    end_ms: int
    lines: Sequence[Line]
    #: Lines across, and lines up.
    values: Sequence[Tick]
    times: Sequence[Tick]
    #: The place of the moment that is looked at; None for now.
    marker: float | None
    #: Its content, in a sentence, for readers who cannot see it.
    told: str


def spark(values: Values, *, width: int = 120, height: int = 24) -> str:
    """Return the path of a chart in a table's cell, line and area in one: its edges lie outside of the picture."""
    top = float(values.max(initial=0)) or 1.0
    xs = np.linspace(0, width, max(2, len(values))).round().astype(int).tolist()
    ys = _ys(values, top, height - 2, 1.0).round().astype(int).tolist()
    steps, slope = list[tuple[int, int]](), None
    for dx, dy in zip(np.diff(xs).tolist(), np.diff(ys).tolist(), strict=False):
        if dy == 0 == slope:
            dx += steps.pop()[0]
        steps.append((dx, dy))
        slope = dy
    line = "".join(f"l{dx} {dy}" if dy else f"h{dx}" for dx, dy in steps)
    return f"M-2 {height + 2}V{ys[0] if ys else height}h2{line}h2V{height + 2}Z"


def chart(
    title: str, unit: str, times_ms: NDArray[np.int64], lines: Sequence[tuple[str, str, Values]], *, marker_ms: int | None = None
) -> Chart:
    """Draw lines over time; each has a class, a label and its values: at the moments, or between them."""
    width, height, left, bottom = 720, 180, 56, 22
    found = [float(np.nanmax(values)) for _, _, values in lines if len(values) and not np.isnan(values).all()]
    step, top = _value_step(max(found, default=0.0))
    plot = height - bottom - 8
    start, end = int(times_ms[0]), int(times_ms[-1])

    def x_of(at_ms: float) -> float:
        return left + (width - left - 8) * (at_ms - start) / max(1, end - start)

    drawn = []
    for name, label, values in lines:
        at_ms = times_ms if len(values) == len(times_ms) else (times_ms[:-1] + times_ms[1:]) / 2
        xs = np.array([x_of(each) for each in at_ms])
        path, area = _paths(xs, _ys(values, top, plot, 8.0), 8.0 + plot)
        told = " ".join("-" if math.isnan(value) else _number(value).replace(" ", "") for value in np.asarray(values, np.float64))
        drawn.append(Line(name=name, label=label, path=path, area=area if len(lines) == 1 else "", values=told))
    ticks = [Tick(at=round(8 + plot * (1 - value / top), 1), text=_number(value)) for value in np.arange(0, top + step / 2, step)]
    return Chart(
        title=title, unit=unit, width=width, height=height, left=left, bottom=bottom, lines=drawn, values=ticks,
        start_ms=start, end_ms=end,
        times=[Tick(at=round(x_of(at_ms), 1), text=text) for at_ms, text in _time_ticks(start, end)],
        marker=None if marker_ms is None or not start <= marker_ms <= end else round(x_of(marker_ms), 1),
        told="; ".join(_told(label, values, unit) for _, label, values in lines),
    )  # fmt: skip


def _ys(values: Values, top: float, height: float, offset: float) -> Values:
    found: Values = offset + height * (1 - np.asarray(values, np.float64) / top)
    return found


def _paths(xs: Values, ys: Values, floor: float) -> tuple[str, str]:
    """Return the line through points, broken where there is none, and the area below it."""
    line, area, run = [], [], list[tuple[float, float]]()
    for x, y in [*zip(xs.tolist(), ys.tolist(), strict=False), (0.0, math.nan)]:
        if not math.isnan(y):
            run.append((x, y))
            continue
        if run:
            points = " L".join(f"{each_x:.1f} {each_y:.1f}" for each_x, each_y in run)
            line.append(f"M{points}")
            area.append(f"M{run[0][0]:.1f} {floor:.1f} L{points} L{run[-1][0]:.1f} {floor:.1f} Z")
        run = []
    return " ".join(line), " ".join(area)


def _value_step(highest: float) -> tuple[float, float]:
    """Return the distance of lines across, and the value of the highest."""
    if highest <= 0:
        return 1.0, 1.0
    raw = highest / 4
    unit = 10 ** math.floor(math.log10(raw))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= raw)
    return step, step * math.ceil(highest / step)


def _number(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:,.3g} M"
    if value >= 10_000:
        return f"{value / 1_000:,.3g} k"
    return f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"


def _time_ticks(start_ms: int, end_ms: int) -> list[tuple[int, str]]:
    step, form = next(((step, form) for step, form in _TIME_STEPS if (end_ms - start_ms) / step <= 8), _TIME_STEPS[-1])
    first = -(-start_ms // step) * step
    return [(at, f"{datetime.fromtimestamp(at / 1_000, UTC):{form}}") for at in range(first, end_ms + 1, step)]


def _told(label: str, values: Values, unit: str) -> str:
    known = values[~np.isnan(np.asarray(values, np.float64))]
    if not len(known):
        return f"{label}: nothing"
    lowest, highest, last = (_number(float(each)) for each in (known.min(), known.max(), known[-1]))
    return f"{label}: from {lowest} to {highest} {unit}, {last} at the end"
