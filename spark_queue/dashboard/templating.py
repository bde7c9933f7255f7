"""Pages from templates: every value is escaped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from importlib import resources
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FunctionLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from spark_queue.dashboard.formatting import (
    body,
    cell,
    clock_time,
    coded,
    count,
    field_time,
    instant,
    machine_time,
    size,
    written_time,
)
from spark_queue.dashboard.guard import Access
from spark_queue.errors import counted
from spark_queue.views import quantities

_TEMPLATES = resources.files("spark_queue.dashboard") / "templates"


def _source(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def environment() -> Environment:
    """Return the environment that renders the templates of this package."""
    made = Environment(
        loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    for render in (count, instant, clock_time, written_time, machine_time, field_time, size, body, cell, coded):
        made.filters[render.__name__] = render
    made.filters.update(rate=quantities.rate, duration=quantities.duration, counted=counted, part=_part)
    made.globals["query"] = _query
    return made


class Pages:
    """Renders pages for visitors who are logged in."""

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
            raise HTTPException(403, "The form belongs to another session. Load the page again.")


def _part(value: str) -> str:
    """Return a text as one part of a path."""
    return quote(value, safe="")


def _query(asked: Mapping[str, str], **changes: Any) -> str:
    """Return the query of a link: that of the page, with some values changed; None removes a name."""
    wanted = {**asked, **changes}
    return "?" + urlencode({name: value for name, value in wanted.items() if value not in (None, "")})
