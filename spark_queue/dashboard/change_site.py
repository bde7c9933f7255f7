"""The pages that change something: first what would be done, then, once it is confirmed, how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anyio import to_thread
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from spark_queue.core.records import Outcome
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.letters import standing_letters
from spark_queue.dashboard.changes import REDRIVE_PER_SECOND, VERBS, Changes, StartedChange, Verb, Wish
from spark_queue.dashboard.journal_site import known_journal, known_queue, looking
from spark_queue.dashboard.letters import choice_of, group_of, homes_of
from spark_queue.dashboard.templating import Pages
from spark_queue.errors import ConfigError
from spark_queue.following.follower import JournalFollower


class ChangeSite:
    """Handlers of changes; all of them refuse where changes are not allowed.

    Parameters
    ----------
    followers : Mapping of str to JournalFollower
        The journals, by what their pages are called.
    pages : Pages
        Renders, and knows who may do what.
    """

    def __init__(self, followers: Mapping[str, JournalFollower], pages: Pages) -> None:
        self._followers = followers
        self._pages = pages
        self._changes = Changes()

    def routes(self) -> list[Route]:
        """Return the routes, below ``/j``."""
        return [
            Route("/{journal}/queues/{queue}/changes", self._ask, methods=["POST"]),
            Route("/{journal}/changes/{key}", self._shown),
            Route("/{journal}/changes/{key}/cancel", self._cancel, methods=["POST"]),
        ]

    async def _ask(self, request: Request) -> Response:
        """Show what would be done; with the confirmation, begin it."""
        follower, form = await self._admitted(request)
        verb = str(form.get("verb", ""))
        if verb not in VERBS:
            raise ConfigError("BAD_VALUE", key="verb", where="the form", value=verb, expected=f"one of {', '.join(VERBS)}")

        def wished() -> tuple[Wish, int, str]:
            with looking(follower) as look:
                wish = _wish(look.state, known_queue(look.state, request), verb, form)
            return wish, *wish.dry_run(follower.handle)

        wish, count, text = await to_thread.run_sync(wished)
        # What was shown is what is confirmed: where it has changed since, it is shown again.
        if form.get("confirmed") == str(count) and count:
            change = self._changes.start(follower.handle, follower.name, wish, count)
            return RedirectResponse(f"/j/{follower.name}/changes/{change.key}", status_code=303)
        back = str(request.url.path).removesuffix("/changes")
        kept = {name: str(value) for name, value in form.items() if name not in ("confirmed", "form_token")}
        return self._pages.render(
            request, "confirm.html", journal=follower.name, queue=request.path_params["queue"], wish=wish, count=count, text=text,
            kept=kept, back=back, is_changed="confirmed" in form,
        )  # fmt: skip

    async def _shown(self, request: Request) -> Response:
        change = self._change(request)
        return self._pages.render(request, "change.html", journal=change.journal_name, change=change)

    async def _cancel(self, request: Request) -> Response:
        follower, _ = await self._admitted(request)
        change = self._change(request)
        change.cancel()
        return RedirectResponse(f"/j/{follower.name}/changes/{change.key}", status_code=303)

    def _change(self, request: Request) -> StartedChange:
        change = self._changes.find(request.path_params["key"])
        if change is None or change.journal_name != request.path_params["journal"]:
            raise HTTPException(404)
        return change

    async def _admitted(self, request: Request) -> tuple[JournalFollower, FormData]:
        """Return the journal and the form of who may change something."""
        if not self._pages.access.allows_changes:
            raise HTTPException(403, "This page only shows. Changes need `sparkq dashboard --allow-changes`.")
        await self._pages.refuse_strange_form(request)
        return known_journal(self._followers, request), await request.form()


def _wish(state: JournalState, queue: str, verb: Verb, form: Mapping[str, Any]) -> Wish:
    """Return what a form asks for."""
    wish = Wish(verb=verb, queue=queue)
    if wish.is_of_queue:
        return wish
    where = str(form.get("where", "")).strip() or None
    outcome = str(form.get("outcome", Outcome.ACKNOWLEDGE))
    if outcome not in tuple(Outcome):
        raise ConfigError("BAD_VALUE", key="outcome", where="the form", value=outcome, expected=f"one of {', '.join(Outcome)}")
    speed = str(form.get("per_second", REDRIVE_PER_SECOND))
    if not speed.isdecimal() or len(speed) > 8 or not 1 <= int(speed) <= 10_000_000:
        raise ConfigError("BAD_VALUE", key="per_second", where="the form", value=speed, expected="a whole number from 1")
    wish = replace(wish, where=where, outcome=outcome, per_second=int(speed))
    if form.get("of") != "letters":
        return wish
    homes = homes_of(state, queue)
    target = homes.source if verb == "redrive" else homes.home
    if target is None:
        expected = "redrive: these dead letters lie in no dead-letter queue, where they could be settled"
        raise ConfigError("BAD_VALUE", key="verb", where="the form", value=verb, expected=expected)
    key, choice = str(form.get("group", "")), choice_of(form)
    if not key and choice.is_of_all:
        return replace(wish, queue=target)
    if verb != "redrive" and where is not None:
        expected = "left out: letters of a group, a time or an error are settled without a filter"
        raise ConfigError("BAD_VALUE", key="where", where="the form", value=where, expected=expected)
    rows = choice.rows_of(standing_letters(state, queue))
    if key:
        group = group_of(state, queue, key, choice)
        if group is None:
            raise HTTPException(404, "All letters of this group are gone.")
        rows = group.rows
    if verb == "purge":
        # A purge knows filters alone; to acknowledge letters takes them away in the same way.
        return replace(wish, queue=target, verb="settle", rows=rows & state.ledger(target).entered)
    return replace(wish, queue=target, rows=rows)
