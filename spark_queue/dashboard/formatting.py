"""How pages write counts, sizes, times and values.

Charts as SVG that the server draws: shapes and texts alone, so that they need neither script nor inline style.
Pages from templates: every value is escaped, whatever it is.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from spark_queue.dashboard.guard import Access
from spark_queue.errors import ConfigError
from spark_queue.settings.shown import shown
from spark_queue.settings.types import parse_moment, to_ms
from spark_queue.views import event_texts
from spark_queue.views.event_texts import NONE

#: Characters of a body or an error that a table shows; the page of one message shows it whole.
CELL_CHARACTERS = 200

#: Most characters of one value that any page shows.
_WHOLE_CHARACTERS = 100_000

_CODE = re.compile(r"`([^`]+)`")

#: Digits of a moment in whole seconds, from the year 2001 on; a date may have eight.
_SECONDS_DIGITS = (10, 11)
_WITHOUT_OFFSET = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,3})?)?", re.ASCII)


def count(value: int | None) -> str:
    """Return a number with its thousands apart."""
    return NONE if value is None else f"{value:,}"


def coded(text: str) -> Markup:
    """Return a text in which what stands in backquotes is shown as code: commands to type, in the texts of errors and alarms."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - the text was escaped before.


def instant(at_ms: int | None) -> str:
    """Return a time in UTC to the second."""
    return NONE if not at_ms else f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S}"


def written_time(at_ms: int) -> str:
    """Return a time in UTC as people write it."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return f"{at.day} {at:%B %Y at %H:%M:%S} UTC"


def machine_time(at_ms: int) -> str:
    """Return a time as links and attributes carry it."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def field_time(at_ms: int) -> str:
    """Return a time in UTC as a field for a time takes it."""
    return machine_time(at_ms).removesuffix("Z").removesuffix(".000")


def moment_ms(text: str | None, *, key: str = "at") -> int | None:
    """Read a moment of an address: whole seconds since 1970, as a slider gives them, a date, or an ISO-8601 time; None for none.

    A time is UTC where it does not say otherwise: so browsers write what was chosen in a field for a time.
    """
    text = (text or "").strip()
    if not text:
        return None
    if text.isdecimal() and len(text) in _SECONDS_DIGITS:
        return int(text) * 1_000
    try:
        at_ms = to_ms(parse_moment(f"{text}Z" if _WITHOUT_OFFSET.fullmatch(text) else text))
    except (ValueError, OverflowError) as reason:
        raise ConfigError("BAD_VALUE", key=key, where="the address", value=text, expected=f"a date or {reason}") from None
    if at_ms < 0:
        # Charts reach back from it, and the calendar begins with the year 1.
        raise ConfigError("BAD_VALUE", key=key, where="the address", value=text, expected="a time since 1970")
    return at_ms


def size(size_bytes: int | None) -> str:
    """Return a size in binary units."""
    if size_bytes is None:
        return NONE
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def body(value: Any) -> str:
    """Return a value of a message, as much of it as a page can carry."""
    text = NONE if value is None else shown(value)
    return text if len(text) <= _WHOLE_CHARACTERS else f"{text[:_WHOLE_CHARACTERS]}… ({len(text):,} characters)"


def cell(value: Any) -> str:
    """Return a value of a message, as much of it as a table can carry."""
    text = NONE if value is None else shown(value)
    return text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"


Values = NDArray[np.float64]

#: StepSeries between the lines of a time axis, in milliseconds, and how a time is written at them.
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
    """A line of an axis: where, and what it says."""

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
    #: Where the moment stands that is looked at; None for now.
    marker: float | None
    #: What it shows, in a sentence, for who cannot see it.
    told: str


def spark(values: Values, *, width: int = 120, height: int = 24) -> str:
    """Return the path of a chart in a table's cell, line and area in one: its edges lie outside, where nobody sees them."""
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


_TEMPLATES = resources.files("spark_queue.dashboard") / "templates"


def _source(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def environment() -> Environment:
    """Return what renders the templates of this package."""
    made = Environment(
        loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    for render in (count, instant, written_time, machine_time, field_time, size, body, cell, coded):
        made.filters[render.__name__] = render
    made.filters.update(rate=event_texts.rate, duration=event_texts.duration)
    made.filters["part"] = _part
    made.globals["query"] = _query
    return made


class Pages:
    """Renders pages for who is logged in.

    Parameters
    ----------
    access : Access
        Who may come in, and whether they may change something.
    hides_bodies : bool
        Whether bodies of messages are kept off every page.
    """

    def __init__(self, access: Access, *, hides_bodies: bool) -> None:
        self.access = access
        self.hides_bodies = hides_bodies
        self._environment = environment()

    def render(self, request: Request, name: str, *, status_code: int = 200, **values: Any) -> HTMLResponse:
        """Render a template."""
        text = self._environment.get_template(name).render(
            here=request.url.path,
            asked=defaultdict(str, request.query_params),
            allows_changes=self.access.allows_changes,
            form_token=self.access.form_token(request),
            hides_bodies=self.hides_bodies,
            **values,
        )
        return HTMLResponse(text, status_code=status_code)

    async def refuse_strange_form(self, request: Request) -> None:
        """Refuse a form that no page of this session has made."""
        if not await self.access.is_form_of(request):
            raise HTTPException(403, "The form is not of this session. Load the page again.")


def _part(value: str) -> str:
    """Return a text as one part of a path."""
    return quote(value, safe="")


def _query(asked: Mapping[str, str], **changes: Any) -> str:
    """Return the query of a link: what was asked, with some of it changed; None takes a name out."""
    wanted = {**asked, **changes}
    return "?" + urlencode({name: value for name, value in wanted.items() if value not in (None, "")})
