"""The page of a queue's messages: some rows, with as much of their bodies as a table can carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_queue.core.state.lifecycle import IN_QUEUE, State
from spark_queue.dashboard import formatting
from spark_queue.views.message_rows import MessageRow


def spans(now_ms: int) -> dict[str, dict[str, str]]:
    """Return the addresses of the dead letters of some spans of time, in UTC, by the names of the spans."""
    now = datetime.fromtimestamp(now_ms / 1_000, UTC)
    a_day_ago = now - timedelta(days=1)
    return {
        "Last 24 h": {"since": f"{a_day_ago:%Y-%m-%dT%H:%M}", "until": ""},
        "Yesterday": {"since": f"{a_day_ago:%Y-%m-%d}T00:00", "until": f"{now:%Y-%m-%d}T00:00"},
    }


#: Rows of a page.
PAGE_ROWS = 50

#: The states that can be chosen, by their names on the page.
STATES = {"in the queue": IN_QUEUE, "in any state": tuple(State), **{str(state): (state,) for state in State}}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Some messages, and the bookmark to go on from."""

    #: Each message, with its cells as `columns` names them; None where its body is not shown.
    rows: Sequence[tuple[MessageRow, Sequence[str] | None]]
    columns: Sequence[str]
    #: The number of messages in the chosen state, before any filter.
    total: int
    #: Bookmark to go on from; None at the end.
    next_after: int | None
    #: The reason why bodies cannot be shown.
    trouble: str | None
    #: Whether the search ended for its time was over.
    is_cut: bool


def cells(values: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[list[str]]:
    """Return the cells of tables for bodies, a row for each."""
    return [[formatting.cell(value[column]) for column in columns] for value in values]
