"""Changes from the page: redrive, settle and purge messages, pause queues. The client makes them; the page waits for it.

The pages of a change: first its dry run, then, once it is confirmed, its progress. A change goes on when its page is left; its end
is on the log's page and in the process's own log.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args
from urllib.parse import quote

from anyio import to_thread
from pyroaring import BitMap64
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from spark_queue.client.journal import Journal
from spark_queue.clock import SystemClock
from spark_queue.core.bitmaps.ranges import oldest
from spark_queue.core.records import Outcome
from spark_queue.core.replies import Settled
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.letter_kinds import LetterChoice, LetterKind
from spark_queue.core.state.letters import standing_letters
from spark_queue.dashboard.formatting import field_time, instant
from spark_queue.dashboard.journal_site import known_journal, known_queue, looking
from spark_queue.dashboard.letters import choice_of, group_of, homes_of
from spark_queue.dashboard.templating import Pages
from spark_queue.errors import ConfigError, CoordinatorError, SparkQueueError, counted
from spark_queue.following.follower import JournalFollower

_LOG = logging.getLogger(__name__)

#: Changes that are remembered, so that their pages can still be read.
KEPT = 100

#: The wait of a change for a coordinator that is being started, or recovers, in seconds.
START_S = 600.0

#: Time between two tries to reach it, in seconds.
_KNOCK_S = 1.0

#: The wait of the process's end for the part of a change that is under way, in seconds.
_END_S = 10.0

#: Messages that are settled in one request: between two of them it can be cancelled.
PART_MESSAGES = 5_000

#: Most messages that a redrive from the page gives back each second, unless its form says another number.
REDRIVE_PER_SECOND = 1_000

Verb = Literal["redrive", "settle", "purge", "pause", "unpause"]
VERBS: tuple[Verb, ...] = get_args(Verb)


class CancelledError(Exception):
    """A change was cancelled; its finished parts stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """A change that a visitor asks for."""

    verb: Verb
    #: The queue that it is asked of.
    queue: str
    #: Only these messages, or only those that match; neither for all.
    rows: BitMap64 | None = None
    where: str | None = None
    outcome: str = str(Outcome.ACKNOWLEDGE)
    per_second: int = REDRIVE_PER_SECOND
    #: The dead letters that are meant, as the asker knows them: of a kind, of a time or with an error.
    kind: LetterKind | None = None
    choice: LetterChoice = field(default_factory=LetterChoice)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The facts of a change beside its queue and number, by name."""
        told = []
        if self.kind is not None:
            told += [("Reason", self.kind.reason.replace("_", " ")), ("Error", self.kind.error or "no error was given")]
            told += [("Died", f"{instant(self.kind.first_ms)} to {instant(self.kind.last_ms)} UTC")]
        since_ms, until_ms = self.choice.since_ms, self.choice.until_ms
        if since_ms is not None or until_ms is not None:
            since = "the beginning" if since_ms is None else field_time(since_ms)
            told.append(("Chosen", f"from {since} until {'now' if until_ms is None else field_time(until_ms)} UTC"))
        if self.choice.error is not None:
            told.append(("Error contains", self.choice.error))
        if self.where is not None:
            told.append(("Filter", self.where))
        if self.verb == "settle":
            told.append(("Outcome", self.outcome))
        if self.verb == "redrive":
            told.append(("Speed", f"at most {self.per_second:,} a second"))
        return told

    def __str__(self) -> str:
        """Return the change as a line of a log."""
        return ", ".join([f"{self.verb} of queue '{self.queue}'", *(f"{name.lower()}: {text}" for name, text in self.facts)])

    @property
    def is_of_queue(self) -> bool:
        """Whether it changes the queue itself, and none of its messages."""
        return self.verb in ("pause", "unpause")

    def dry_run(self, journal: Journal) -> tuple[int, str]:
        """Return the number of messages, or queues, that it would change now, and that in a sentence; changes nothing."""
        queue = journal.queue(self.queue)
        if self.verb in ("pause", "unpause"):
            # It changes nothing, and needs the same right.
            queue.attempts_in_doubt()
        if self.verb == "pause":
            return 1, f"Queue '{self.queue}' would grant nothing until it is unpaused. Leased messages are not affected."
        if self.verb == "unpause":
            return 1, f"Queue '{self.queue}' would grant again, also to subscriptions that an alarm has paused."
        if self.verb == "redrive":
            would = queue.redrive(self.where, bookmarks=self.rows, dry_run=True)
            told = f"{would.redriven:,} dead letter(s) would go back to queue '{self.queue}'."
            return would.redriven, counted(told) + (f" {would.skipped:,} are leased or settled, and stay." if would.skipped else "")
        if self.verb == "purge":
            purged = queue.purge(self.where, dry_run=True)
            told = f"{purged.purged:,} message(s) would be purged from queue '{self.queue}', for good and without dead letters."
            return purged.purged, counted(told) + (f" {purged.leased:,} are leased, and stay." if purged.leased else "")
        settled = self._settle(journal, self.rows, dry_run=True)
        return _changed(settled), f"Of queue '{self.queue}' {_told(settled) or 'nothing would be changed'}."

    def run(self, journal: Journal, on_progress: Callable[[int, int], None]) -> str:
        """Make the change, and return its result, in a sentence."""
        if self.verb == "pause":
            journal.queue(self.queue).pause()
            return f"Queue '{self.queue}' is paused. Leased messages are not affected."
        if self.verb == "unpause":
            journal.queue(self.queue).unpause()
            return f"Queue '{self.queue}' grants again."
        if self.verb == "redrive":
            done = journal.queue(self.queue).redrive(
                self.where, bookmarks=self.rows, per_second=self.per_second, on_progress=on_progress
            )
            return counted(f"{done.redriven:,} dead letter(s) are back in queue '{self.queue}', {done.skipped:,} were skipped.")
        if self.verb == "purge":
            purged = journal.queue(self.queue).purge(self.where)
            return counted(
                f"{purged.purged:,} message(s) were purged from queue '{self.queue}', {purged.leased:,} are leased and stay."
            )
        if self.rows is None:
            return f"Of queue '{self.queue}' {_told(self._settle(journal, None, dry_run=False)) or 'nothing matched'}."
        left, settled = self.rows, Settled()
        while left:
            part = oldest(left, PART_MESSAGES)
            settled = _sum(settled, self._settle(journal, part, dry_run=False))
            left = left - part
            on_progress(len(self.rows) - len(left), len(self.rows))
        return f"Of queue '{self.queue}' {_told(settled) or 'nothing was changed'}."

    def _settle(self, journal: Journal, rows: BitMap64 | None, *, dry_run: bool) -> Settled:
        queue = journal.queue(self.queue)
        if rows is None:
            return queue.settle(where=self.where or "true", outcome=self.outcome, dry_run=dry_run)
        return queue.settle(list(rows), outcome=self.outcome, dry_run=dry_run)


class StartedChange:
    """A change that is being made, or was.

    Attributes
    ----------
    done, total : int
        Its progress; a total of 0 means that it is one commit, which shows none before its end.
    state : str
        running, done, cancelled or failed.
    text : str
        While it runs, the cause of its wait; then, its result.
    """

    def __init__(self, journal_name: str, wish: ChangeRequest, count: int) -> None:
        self.key = secrets.token_urlsafe(9)
        self.journal_name = journal_name
        self.wish = wish
        self.done, self.total = 0, count
        self.state = "running"
        self.text = ""
        self.began_ms = SystemClock().wall_ms()
        self.ended_ms: int | None = None
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._cancelled.is_set()

    def start(self, journal: Journal) -> None:
        """Begin it, in a thread of its own, which goes on when its page is left."""
        self._thread = threading.Thread(target=self.work, args=(journal,), name=f"change {self.key}", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for its end."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def cancel(self) -> None:
        """Ask for its end; the part that is under way is finished."""
        self._cancelled.set()

    def work(self, journal: Journal) -> None:
        """Make the change, in the caller's thread, once a coordinator serves."""
        _LOG.info("Journal '%s': %s has begun.", self.journal_name, self.wish)
        try:
            self._await_coordinator(journal)
            self.text, self.state = self.wish.run(journal, self._progress), "done"
        except CancelledError:
            self.text, self.state = f"Cancelled after {self.done:,} of {self.total:,}. Changes made so far stay.", "cancelled"
        except SparkQueueError as refusal:
            self.text, self.state = str(refusal), "failed"
        # Nobody waits for this thread: an end that it does not log is never known.
        except Exception as failure:  # noqa: BLE001 - as said above
            _LOG.exception("A change of queue '%s' failed.", self.wish.queue)
            self.text, self.state = f"{type(failure).__name__}: {failure}", "failed"
        self.ended_ms = SystemClock().wall_ms()
        level = logging.INFO if self.state == "done" else logging.WARNING
        _LOG.log(level, "Journal '%s': %s, %s. %s", self.journal_name, self.wish, self.state, self.text)

    def _await_coordinator(self, journal: Journal) -> None:
        """Wait until a coordinator answers: a start, and the recovery of a long log, are no failure of the change."""
        deadline_s = time.monotonic() + START_S
        while True:
            try:
                # It needs the right that the change needs, and changes nothing.
                journal.queue(self.wish.queue).attempts_in_doubt()
            except CoordinatorError as refusal:
                if refusal.code != "COORDINATOR_UNAVAILABLE" or time.monotonic() >= deadline_s:
                    raise
                self.text = f"Waiting for a coordinator. {refusal}"
                if self._cancelled.wait(_KNOCK_S):
                    raise CancelledError from None
            else:
                self.text = ""
                return

    def _progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if self.is_cancelled and done < total:
            raise CancelledError


class Changes:
    """The changes that this process was asked for."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, StartedChange] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, journal: Journal, journal_name: str, wish: ChangeRequest, count: int) -> StartedChange:
        """Begin a change, in a thread of its own."""
        change = StartedChange(journal_name, wish, count)
        with self._lock:
            self._known[change.key] = change
            for key in [key for key, each in self._known.items() if each.state != "running"][: max(0, len(self._known) - KEPT)]:
                del self._known[key]
        change.start(journal)
        return change

    def find(self, key: str) -> StartedChange | None:
        """Return a change by its key."""
        return self._known.get(key)

    def of(self, journal_name: str, queue: str | None = None) -> list[StartedChange]:
        """Return the changes of a journal, or of one of its queues, the newest first."""
        with self._lock:
            known = list(self._known.values())
        return [each for each in reversed(known) if each.journal_name == journal_name and queue in (None, "", each.wish.queue)]

    def end(self) -> None:
        """Let changes end after the part that is under way, since the process ends."""
        running = [each for each in self._known.values() if each.state == "running"]
        for each in running:
            each.cancel()
        deadline_s = time.monotonic() + _END_S
        for each in running:
            each.join(max(0.0, deadline_s - time.monotonic()))
            if each.state == "running":
                _LOG.warning("Journal '%s': %s ends unheard with this process.", each.journal_name, each.wish)


def _changed(settled: Settled) -> int:
    return settled.acknowledged + settled.cancelled + settled.expired + settled.deferred


def _sum(one: Settled, other: Settled) -> Settled:
    return Settled(**{name: getattr(one, name) + getattr(other, name) for name in Settled.__struct_fields__})


def _told(settled: Settled) -> str:
    names = ("acknowledged", "cancelled", "expired", "deferred", "late", "repeated", "skipped")
    counts = [f"{getattr(settled, name):,} {name}" for name in names if getattr(settled, name)]
    return ", ".join(counts)


class ChangeSite:
    """Handlers of changes; all of them refuse where changes are not allowed."""

    def __init__(self, followers: Mapping[str, JournalFollower], pages: Pages, changes: Changes) -> None:
        self._followers = followers
        self._pages = pages
        self._changes = changes

    def routes(self) -> list[Route]:
        """Return the routes, below ``/j``."""
        return [
            Route("/{journal}/queues/{queue}/changes", self._ask, methods=["POST"]),
            Route("/{journal}/changes/{key}", self._shown),
            Route("/{journal}/changes/{key}/cancel", self._cancel, methods=["POST"]),
        ]

    async def _ask(self, request: Request) -> Response:
        """Show the dry run of a change; with the confirmation, begin it."""
        follower, form = await self._admitted(request)
        verb = str(form.get("verb", ""))
        if verb not in VERBS:
            raise ConfigError("BAD_VALUE", key="verb", where="the form", value=verb, expected=f"one of {', '.join(VERBS)}")

        def wished() -> tuple[ChangeRequest, int, str]:
            with looking(follower) as look:
                wish = _wish(look.state, known_queue(look.state, request), verb, form)
            return wish, *wish.dry_run(follower.handle)

        wish, count, text = await to_thread.run_sync(wished)
        # The number that was shown is confirmed: where it has changed since, it is shown again.
        if form.get("confirmed") == str(count) and count:
            change = self._changes.start(follower.handle, follower.name, wish, count)
            return _shown_at(change)
        back = str(request.url.path).removesuffix("/changes")
        kept = {name: str(value) for name, value in form.items() if name not in ("confirmed", "form_token")}
        return self._pages.render(
            request, "confirm.html", journal=follower.name, queue=request.path_params["queue"], wish=wish, count=count, text=text,
            kept=kept, back=back, is_changed="confirmed" in form,
        )  # fmt: skip

    async def _shown(self, request: Request) -> Response:
        change = self._change(request)
        return self._pages.render(request, "change.html", journal=change.journal_name, queue=change.wish.queue, change=change)

    async def _cancel(self, request: Request) -> Response:
        await self._admitted(request)
        change = self._change(request)
        change.cancel()
        return _shown_at(change)

    def _change(self, request: Request) -> StartedChange:
        change = self._changes.find(request.path_params["key"])
        if change is None or change.journal_name != request.path_params["journal"]:
            raise HTTPException(404)
        return change

    async def _admitted(self, request: Request) -> tuple[JournalFollower, FormData]:
        """Return the journal and the form of a visitor with the right to change something."""
        if not self._pages.access.allows_changes:
            raise HTTPException(403, "This page is read-only. Changes need `sparkq dashboard --allow-changes`.")
        await self._pages.refuse_strange_form(request)
        return known_journal(self._followers, request), await request.form()


def _shown_at(change: StartedChange) -> RedirectResponse:
    """Return the way to the page of a change; a journal's name may have any character."""
    return RedirectResponse(f"/j/{quote(change.journal_name, safe='')}/changes/{change.key}", status_code=303)


def _wish(state: JournalState, queue: str, verb: Verb, form: Mapping[str, Any]) -> ChangeRequest:
    """Return the change that a form asks for."""
    wish = ChangeRequest(verb=verb, queue=queue)
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
        expected = "redrive: these dead letters are in no dead-letter queue, where they could be settled"
        raise ConfigError("BAD_VALUE", key="verb", where="the form", value=verb, expected=expected)
    key, choice = str(form.get("group", "")), choice_of(form)
    if not key and choice.is_of_all:
        return replace(wish, queue=target)
    wish = replace(wish, choice=choice)
    if verb != "redrive" and where is not None:
        expected = "left out: letters of a group, a time or an error are settled without a filter"
        raise ConfigError("BAD_VALUE", key="where", where="the form", value=where, expected=expected)
    rows = choice.rows_of(standing_letters(state, queue))
    if key:
        group = group_of(state, queue, key, choice)
        if group is None:
            raise HTTPException(404, "All letters of this group are gone.")
        rows, wish = group.rows, replace(wish, kind=group.kind)
    if verb == "purge":
        # A purge has filters alone; an acknowledgement removes letters in the same way.
        return replace(wish, queue=target, verb="settle", rows=rows & state.ledger(target).entered)
    return replace(wish, queue=target, rows=rows)
