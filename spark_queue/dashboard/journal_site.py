"""The pages of one journal and of its queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from anyio import to_thread
from pyroaring import BitMap64
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spark_queue.client.applied import applied_versions
from spark_queue.clock import SystemClock
from spark_queue.core.bitmaps.ranges import oldest
from spark_queue.core.state.journal_state import JournalState
from spark_queue.dashboard import findings, formatting, journal_page, letters, message_page, queue_page
from spark_queue.dashboard.journal_page import Moments, journal_rows
from spark_queue.dashboard.life import life_of
from spark_queue.dashboard.templating import Pages
from spark_queue.errors import ConfigError, SparkQueueError
from spark_queue.following.follower import FollowedView, JournalFollower
from spark_queue.journal.schema import user_schema
from spark_queue.views import control_rows, message_rows, message_search, queue_status
from spark_queue.views.explain import explain

#: Dead letters of a group that its page shows at a time.
GROUP_LETTERS = 25


#: Changes that the page of a queue shows; that of the log has all.
QUEUE_CHANGES = 3


class StartedChanges(Protocol):
    """The changes that were asked for; `spark_queue.dashboard.changes.Changes` has them."""

    def of(self, journal_name: str, queue: str | None = None) -> Sequence[Any]:
        """Return the changes of a journal, or of one of its queues, the newest first."""
        ...


class JournalSite:
    """Handlers of everything below ``/j/JOURNAL``."""

    def __init__(self, followers: Mapping[str, JournalFollower], pages: Pages, changes: StartedChanges) -> None:
        self._followers = followers
        self._pages = pages
        self._changes = changes
        self._moments = Moments()

    def routes(self) -> list[Route]:
        """Return the routes, below ``/j``."""
        queue = "/{journal}/queues/{queue}"
        return [
            Route("/{journal}", self._shows(self._journal_queues, "journal_queues.html")),
            Route("/{journal}/log", self._shows(self._log, "log.html")),
            Route("/{journal}/peers", self._shows(self._peers, "peers.html")),
            Route("/{journal}/journal", self._shows(self._journal, "journal.html")),
            Route(queue, self._shows(self._queue, "queue.html")),
            Route(f"{queue}/messages", self._shows(self._messages, "messages.html")),
            Route(f"{queue}/messages/{{bookmark}}", self._shows(self._message, "message.html")),
            Route(f"{queue}/dead-letters", self._shows(self._dead_letters, "dead_letters.html")),
        ]

    def _shows(self, values_of: Callable[[Request, JournalFollower], dict[str, Any]], template: str) -> Any:
        """Return a handler that shows the values of a function, which runs in a thread of its own."""

        async def handle(request: Request) -> Response:
            follower = known_journal(self._followers, request)
            values = await to_thread.run_sync(values_of, request, follower)
            return self._pages.render(request, template, journal=follower.name, **values)

        return handle

    def _journal_queues(self, request: Request, follower: JournalFollower) -> dict[str, Any]:
        rows = journal_rows(follower, journal_page.choice_of(request.query_params))
        return {"rows": rows, "wrong": findings.finding_list(rows.wrong, times_ms=[rows.now_ms])}

    def _queue(self, request: Request, follower: JournalFollower) -> dict[str, Any]:
        asked, at_ms = request.query_params, formatting.moment_ms(request.query_params.get("at"))
        with looking(follower) as look:
            name = known_queue(look.state, request)
            span = queue_page.span_of(look, name, asked.get("span", "6h"), asked.get("end"))
            # The end of the slider means now.
            at_ms = None if at_ms is None or (at_ms >= span.end_ms - span.step_s * 1_000 and not asked.get("end")) else at_ms
            charts = queue_page.queue_charts(look, name, span, at_ms)
            now = (
                queue_page.figures(look.state, name, look.now_ms, look.heard(), look.log_history().queues.get(name))
                if at_ms is None
                else None
            )
            alarm, journal = queue_status(look, name).alarm, look.journal
            definition = look.state.definitions.stored.get("queues", {}).get(name, {})
            pace = look.pace(name) if at_ms is None else None
            table = journal_page.table_row(look, look.state.definitions.queue(name).message_type) if at_ms is None else None
            has_history, now_ms = look.history is not None, look.now_ms
        refused = None
        if now is None and at_ms is not None:
            try:
                then = self._moments.at(journal, at_ms)
                now = queue_page.figures(then.state, name, at_ms, {})
            except SparkQueueError as refusal:
                refused = str(refusal)
        return {
            "queue": name, "figures": now, "charts": charts, "span": span, "spans": list(queue_page.SPANS_MS), "at_ms": at_ms,
            "alarm": alarm if at_ms is None else None, "definition": definition, "has_history": has_history, "now_ms": now_ms,
            "refused": refused, "trouble": follower.trouble, "pace": pace, "table": table, "path": follower.store.path,
            "changes": self._changes.of(follower.name, name)[:QUEUE_CHANGES] if at_ms is None else [],
        }  # fmt: skip

    def _messages(self, request: Request, follower: JournalFollower) -> dict[str, Any]:
        asked = request.query_params
        states, where = asked.get("state", "in the queue"), asked.get("where", "").strip() or None
        if states not in message_page.STATES:
            expected = f"one of {', '.join(message_page.STATES)}"
            raise ConfigError("BAD_VALUE", key="state", where="the address", value=states, expected=expected)
        among, bookmark, after = message_page.STATES[states], number(request, "bookmark"), number(request, "after") or 0
        at_ms = formatting.moment_ms(asked.get("at"))
        with looking(follower) as look:
            journal, letters_count = look.journal, queue_status(look, known_queue(look.state, request)).dead_letters
        with self._looking_at(follower, at_ms) as (state, _):
            name, refused = known_queue(state, request), None
            try:
                chosen = message_search.choose(state, name, states=among, bookmark=bookmark, after=after, where=where)
            except ConfigError as refusal:
                refused, where = str(refusal), None
                chosen = message_search.choose(state, name, states=among, bookmark=bookmark, after=after, where=None)
        found, next_after, is_cut = message_search.search(journal.traits, chosen, where, limit=message_page.PAGE_ROWS)
        columns = message_search.body_columns(chosen.columns)
        values, trouble = ([], None) if self._pages.hides_bodies else message_search.read_values(
            follower.store, chosen.message_type, chosen.columns, found
        )  # fmt: skip
        with self._looking_at(follower, at_ms) as (state, now_ms):
            rows = message_rows.message_rows(state.ledger(name), found, now_ms)
        cells: Sequence[Sequence[str] | None] = message_page.cells(values, columns) or [None] * len(rows)
        page = message_page.MessagePage(
            rows=list(zip(rows, cells, strict=True)), columns=columns, total=chosen.total, next_after=next_after,
            trouble=trouble, is_cut=is_cut,
        )  # fmt: skip
        return {"queue": name, "page": page, "states": list(message_page.STATES), "state": states, "where": asked.get("where", ""),
                "refused": refused, "letters": letters_count, "at_ms": at_ms, "trouble": follower.trouble}  # fmt: skip

    @contextmanager
    def _looking_at(self, follower: JournalFollower, at_ms: int | None) -> Iterator[tuple[JournalState, int]]:
        """Yield a journal's state at a past moment, or now, and the time by which it is judged."""
        with looking(follower) as look:
            if at_ms is None:
                yield look.state, look.now_ms
                return
            journal = look.journal
        # Nobody changes a past state, and nothing waits while it is folded.
        yield self._moments.at(journal, at_ms).state, at_ms

    def _message(self, request: Request, follower: JournalFollower) -> dict[str, Any]:
        bookmark = _whole(request.path_params["bookmark"])
        if bookmark is None:
            raise HTTPException(404)
        with looking(follower) as look:
            name, journal, now_ms = known_queue(look.state, request), look.journal, look.now_ms
            definition = look.state.ledger(name).definition
            message_type = message_search.frozen(look.state.message_types[definition.message_type])

        @contextmanager
        def state_now() -> Iterator[JournalState]:
            with looking(follower) as look:
                yield look.state

        history = explain(journal, name, bookmark, state_now=state_now)
        values: list[tuple[str, str]] = []
        trouble = history.trouble
        if not self._pages.hides_bodies and trouble is None:
            rows = BitMap64([bookmark])
            found, trouble = message_search.read_values(follower.store, message_type, definition.columns, rows)
            names = [] if not found else user_schema(definition.columns).names
            values = [(column, formatting.body(found[0][column])) for column in names]
        return {"queue": name, "history": history, "life": life_of(history, now_ms), "values": values, "body_trouble": trouble,
                "trouble": follower.trouble}  # fmt: skip

    def _dead_letters(self, request: Request, follower: JournalFollower) -> dict[str, Any]:
        key, choice = request.query_params.get("group"), letters.choice_of(request.query_params)
        with looking(follower) as look:
            name = known_queue(look.state, request)
            groups = letters.letter_groups(look.state, name, choice)
            homes = letters.homes_of(look.state, name)
            source = look.state.ledger(homes.source).definition
            message_type = message_search.frozen(look.state.message_types[source.message_type])
            count, now_ms = queue_status(look, name).dead_letters, look.now_ms
        group = next((each for each in groups if each.key == key), None)
        values, trouble, rows, next_after = list[dict[str, Any]](), None, BitMap64(), None
        columns = message_search.body_columns(source.columns)
        if group is not None:
            left = group.rows.copy()
            left.remove_range(0, number(request, "after") or 0)
            rows = oldest(left, GROUP_LETTERS)
            next_after = rows.max() + 1 if len(rows) < len(left) else None
            if not self._pages.hides_bodies:
                values, trouble = message_search.read_values(follower.store, message_type, source.columns, rows)
        return {"queue": name, "groups": groups[: letters.GROUPS], "more": max(0, len(groups) - letters.GROUPS),
                "homes": homes,
                "group": group, "bookmarks": list(rows), "columns": columns, "cells": message_page.cells(values, columns),
                "letters": count,
                "chosen": None if choice.is_of_all else sum(len(each.rows) for each in groups),
                "spans": message_page.spans(now_ms), "next_after": next_after,
                "errors": [] if group is None else group.kind.errors_of(rows),
                "body_trouble": trouble, "trouble": follower.trouble}  # fmt: skip

    def _log(self, request: Request, follower: JournalFollower) -> dict[str, Any]:
        asked = request.query_params
        with looking(follower) as look:
            journal, queues = look.journal, list(look.state.definitions.queues)
        page = control_rows.record_page(
            journal.record_rows(), queue=asked.get("queue"), kind=asked.get("kind"), by_people=asked.get("people") == "1",
            before=number(request, "before"),
        )  # fmt: skip
        changes = self._changes.of(follower.name, asked.get("queue"))
        return {"page": page, "queues": queues, "changes": changes, "trouble": follower.trouble}

    def _peers(self, _: Request, follower: JournalFollower) -> dict[str, Any]:
        with looking(follower) as look:
            definitions = look.state.definitions
        found, refused = [], None
        if definitions.peers:
            try:
                found = follower.handle.peer_status()
            except SparkQueueError as refusal:
                refused = str(refusal)
        return {"instance": definitions.journal.instance, "peers": found, "defined": definitions.peers, "refused": refused,
                "trouble": follower.trouble}  # fmt: skip

    def _journal(self, request: Request, follower: JournalFollower) -> dict[str, Any]:
        with looking(follower) as look:
            journal, state, now_ms = look.journal, look.state, SystemClock().wall_ms()
            types, text = journal_page.type_rows(state), journal_page.definitions_text(state)
            tables = journal_page.table_rows(look)
            found = findings.findings(state, list(look.troubles.values()), now_ms)
            facts = {"id": state.journal_id, "epoch": state.epoch, "claim": state.claim}
            journal_id, records = state.journal_id, state.next_record
        found += findings.store_findings(follower.store, journal_id, records)
        versions = applied_versions(journal.record_rows())
        older, newer = number(request, "older"), number(request, "newer")
        if (older is None or newer is None) and len(versions) > 1:
            older, newer = versions[1].record, versions[0].record
        by_record = {version.record: version for version in versions}
        lines = by_record[newer].changes_since(by_record[older]) if older in by_record and newer in by_record else []
        sizes, refused = journal_page.sizes(follower.store)
        return {"types": types, "tables": tables, "text": text, "findings": found, "facts": facts, "records": records,
                "versions": versions, "older": older, "newer": newer, "lines": lines, "sizes": sizes, "refused": refused,
                "path": follower.store.path, "trouble": follower.trouble}  # fmt: skip


@contextmanager
def looking(follower: JournalFollower) -> Iterator[FollowedView]:
    """Yield a journal as it is; while it cannot be read, a page of its own gives the reason."""
    with follower.look() as look:
        if look is None:
            text = "The log is being read for the first time. The page appears in a moment."
            raise HTTPException(503, follower.trouble or text)
        yield look


def known_journal(followers: Mapping[str, JournalFollower], request: Request) -> JournalFollower:
    """Return the journal that a path names; 404 for any other name."""
    found = followers.get(request.path_params["journal"])
    if found is None:
        raise HTTPException(404)
    return found


def known_queue(state: JournalState, request: Request) -> str:
    """Return the queue that a path names; 404 where there is none, and an error where it is set aside."""
    name = str(request.path_params["queue"])
    if name not in state.definitions.queues:
        raise HTTPException(404)
    state.ledger(name)
    return name


def number(request: Request, name: str) -> int | None:
    """Return a whole number of the address."""
    text = request.query_params.get(name, "").strip().replace(",", "")
    if not text:
        return None
    found = _whole(text)
    if found is None:
        raise ConfigError("BAD_VALUE", key=name, where="the address", value=text, expected="a whole number")
    return found


def _whole(text: str) -> int | None:
    """Return a whole number that a bitmap can be asked for; None for any other text."""
    return int(text) if text.isdecimal() and len(text) <= 18 else None
