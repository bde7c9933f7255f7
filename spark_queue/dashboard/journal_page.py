"""The page of a journal itself: definitions and their changes, its files, and the remains of its upkeep.

Journals as they were: the fold up to a past moment, and the last few of them kept, since a slider goes back and forth.
``/metrics`` of the page: the metrics of its journals, for Prometheus (DESIGN 18).
The figures of the first page: each queue of each journal in a row.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from spark_queue.client.changes import NOT_SHOWN, TOKEN_KEY
from spark_queue.clock import SystemClock
from spark_queue.core.message_files.followed_table import TableFigures
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state.faults import untold
from spark_queue.core.state.findings import QueueFinding, slow_after_s, vacuum_time
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.needed import due_files
from spark_queue.core.state.sparkq_command import SparkqCommand
from spark_queue.core.state.status import urgency
from spark_queue.dashboard import charts, findings
from spark_queue.dashboard.findings import ListedFinding
from spark_queue.dashboard.queue_page import as_of
from spark_queue.errors import ConfigError, SparkQueueError, counted
from spark_queue.following.follower import FollowedView, JournalFollower, families_of
from spark_queue.following.history import JournalHistory, Spark
from spark_queue.journal.open import DeltaJournal
from spark_queue.journal.store import CONTROL, MESSAGES, SNAPSHOTS, Store
from spark_queue.metrics.prometheus import content_type, render
from spark_queue.views import JournalView, queue_findings, queue_status, state_at
from spark_queue.views.table_notice import table_notice

#: Most moments that are kept; each is a whole state.
KEPT = 6


class Moments:
    """Past states of journals, each folded once."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, int], JournalView] = OrderedDict()
        # One fold at a time: it takes a processor, and a second asker mostly asks for the same.
        self._lock = threading.Lock()

    def at(self, journal: DeltaJournal, at_ms: int) -> JournalView:
        """Return a journal as it was; nobody changes it."""
        # A journal that is made anew at a place has another id.
        key = (journal.path, journal.journal_id, at_ms)
        with self._lock:
            if key not in self._known:
                self._known[key] = state_at(journal, as_of(at_ms))
            self._known.move_to_end(key)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            return self._known[key]


class MetricsSite:
    """Answers scrapes."""

    def __init__(self, followers: Sequence[JournalFollower]) -> None:
        self._followers = followers

    async def metrics(self, _: Request) -> Response:
        """Return the metrics of all journals."""
        return Response(await to_thread.run_sync(self._told), media_type=content_type())

    def _told(self) -> bytes:
        return render(families_of(self._followers))


#: The span of the little charts, in milliseconds.
SPARK_MS = 3_600_000

#: Distance of two points of a little chart, in milliseconds.
SPARK_STEP_MS = 60_000

#: Queues that a page shows at a time: the answer to each browser after a change stays below 50 kB.
PAGE_QUEUES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One queue."""

    name: str
    status: QueueStatus | None
    #: Why it has no figures.
    trouble: str | None
    #: Whether it was paused by hand; an alarm stops subscriptions, too.
    is_paused: bool = False
    #: Whether its longest batch runs for longer than is usual.
    is_slow: bool = False
    findings: Sequence[QueueFinding] = ()
    rate_in: float | None = None
    rate_out: float | None = None
    line: str = ""
    #: Highest depth of the span.
    highest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChoice:
    """The choice of the queues that a journal's page shows, and their order."""

    #: A part of their names; case does not matter.
    find: str = ""
    #: One of `SORTS`.
    sort: str = "problems"
    #: The number that is skipped, and the number that is shown.
    start: int = 0
    limit: int = PAGE_QUEUES


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRows:
    """One journal."""

    name: str
    path: str
    trouble: str | None
    #: Whether its log is being read for the first time.
    is_reading: bool
    has_history: bool = False
    #: The queues that are shown, the number that the choice finds, and the number of all.
    queues: Sequence[QueueRow] = ()
    found: int = 0
    total: int = 0
    choice: QueueChoice = field(default_factory=QueueChoice)
    #: The findings about the journal and all of its queues.
    wrong: Sequence[ListedFinding] = ()
    #: Its message types that follow tables, and the number of its receivers.
    tables: Sequence[TableRow] = ()
    receivers: int = 0
    records: int = 0
    now_ms: int = 0


def _figure(name: str) -> Callable[[QueueRow], float]:
    """Return the key that sorts rows by a figure, the largest first."""
    return lambda row: -(getattr(row.status, name, None) or 0)


def _problem(row: QueueRow) -> int:
    """Return the key of a row that sorts the most urgent first."""
    known = row.status
    if known is None:
        return 0
    return urgency(alarm=known.alarm, paused=known.paused, dead_letters=known.dead_letters, depth=known.queue_depth)


#: The orders in which queues can be shown, by their names in an address.
SORTS: Mapping[str, Callable[[QueueRow], Any]] = {
    "problems": _problem,
    "name": lambda row: row.name.casefold(),
    "depth": _figure("queue_depth"),
    "oldest": _figure("seconds_behind"),
    "in": lambda row: -(row.rate_in or 0),
    "out": lambda row: -(row.rate_out or 0),
    "leased": _figure("backlog"),
    "delayed": _figure("delayed"),
    "letters": _figure("dead_letters"),
}


def choice_of(asked: Mapping[str, str], *, limit: int = PAGE_QUEUES) -> QueueChoice:
    """Return the choice of queues in an address."""
    sort, start = asked.get("sort") or "problems", asked.get("start") or "0"
    if sort not in SORTS:
        raise ConfigError("BAD_VALUE", key="sort", where="the address", value=sort, expected=f"one of {', '.join(SORTS)}")
    if not start.isdecimal() or len(start) > 9:
        raise ConfigError("BAD_VALUE", key="start", where="the address", value=start, expected="a whole number")
    return QueueChoice(find=asked.get("find", "").strip(), sort=sort, start=int(start), limit=limit)


def journal_rows(follower: JournalFollower, choice: QueueChoice) -> JournalRows:
    """Return the rows of a journal."""
    with follower.look() as look:
        if look is None:
            now_ms = SystemClock().wall_ms()
            return JournalRows(
                name=follower.name, path=follower.store.path, trouble=follower.trouble, is_reading=follower.trouble is None,
                wrong=findings.unreadable(follower, now_ms), now_ms=0 if follower.trouble is None else now_ms,
            )  # fmt: skip
        rows = [_figures(look, name) for name in look.state.definitions.queues]
        found = [row for row in rows if choice.find.casefold() in row.name.casefold()]
        if choice.sort in ("in", "out"):
            found = [_paced(look, row) for row in found]
        found.sort(key=SORTS[choice.sort])
        return JournalRows(
            name=follower.name,
            path=follower.store.path,
            trouble=follower.trouble,
            is_reading=False,
            has_history=look.history is not None,
            queues=[_drawn(look, _paced(look, row)) for row in found[choice.start : choice.start + choice.limit]],
            found=len(found),
            total=len(rows),
            choice=choice,
            wrong=[
                *findings.unreadable(follower, look.now_ms),
                *findings.journal_findings(follower, look, {row.name: row.findings for row in rows}, _absence(look, rows)),
            ],
            tables=table_rows(look),
            receivers=sum(row.status.receivers for row in rows if row.status is not None),
            records=look.state.next_record,
            now_ms=look.now_ms,
        )


def _absence(look: FollowedView, rows: Iterable[QueueRow]) -> Iterator[QueueFinding]:
    """Yield the alarm where messages wait for consumers, and no coordinator is there to grant them."""
    queues = look.state.definitions.queues
    # Messages in a queue for dead letters alone wait for people.
    known = [row.status for row in rows if row.status is not None and queues[row.name].underlying_topic is not None]
    depths = [each.queue_depth for each in known]
    if look.is_served or not any(depths):
        return
    waiting = counted(f"{sum(depths):,} message(s) wait in {np.count_nonzero(depths):,} queue(s)")
    text = f"No coordinator runs, and {waiting}: none is delivered. A consumer that starts also starts one; so does `sparkq serve`."
    oldest_ms = look.now_ms - round(1_000 * max(each.seconds_behind or 0 for each in known))
    yield QueueFinding(text=text, since_ms=max(oldest_ms, look.heard_at_ms), command=SparkqCommand("serve"))


def queue_row(look: FollowedView, name: str) -> QueueRow:
    """Return the row of one queue."""
    return _drawn(look, _paced(look, _figures(look, name)))


def _figures(look: FollowedView, name: str) -> QueueRow:
    if name in look.state.troubles:
        return QueueRow(name=name, status=None, trouble=str(look.state.troubles[name]), findings=queue_findings(look, name))
    try:
        status = queue_status(look, name)
        history = look.log_history().queues.get(name)
        durations = None if history is None else history.lease_duration.get(status.longest_batch_subscription or "")
        return QueueRow(
            name=name, status=status, trouble=None, is_paused=look.state.ledger(name).paused,
            is_slow=(status.longest_batch_seconds or 0) > slow_after_s(durations),
            findings=queue_findings(look, name, is_served=look.is_served),
        )  # fmt: skip
    except Exception as fault:  # noqa: BLE001  # The other queues are shown all the same.
        found = QueueFinding(text=untold(fault), since_ms=0, command=SparkqCommand("verify"))
        return QueueRow(name=name, status=None, trouble=found.text, findings=[found])


def _paced(look: FollowedView, row: QueueRow) -> QueueRow:
    pace = None if row.status is None else look.pace(row.name)
    return row if pace is None else replace(row, rate_in=pace.rate_in, rate_out=pace.rate_out)


def _drawn(look: FollowedView, row: QueueRow) -> QueueRow:
    if row.status is None or look.history is None:
        return row
    spark = _spark(look, look.history, row.name)
    return replace(row, line=spark.line, highest=spark.highest)


def _spark(look: FollowedView, history: JournalHistory, name: str) -> Spark:
    """Return the little chart of a queue: of whole minutes, so that it is drawn again only when it looks otherwise."""
    end_ms = -(-look.now_ms // SPARK_STEP_MS) * SPARK_STEP_MS
    drawn_of = (end_ms, *history.changes(look.state, name))
    known = history.sparks.get(name)
    if known is None or known.drawn_of != drawn_of:
        times_ms = np.arange(end_ms - SPARK_MS, end_ms + 1, SPARK_STEP_MS)
        depth = history.depth(look.state, name, times_ms)
        line = charts.spark(depth.astype(np.float64))
        known = history.sparks[name] = Spark(drawn_of=drawn_of, line=line, highest=int(depth.max()))
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRow:
    """One message type."""

    name: str
    topics: str
    messages: int
    retired: int
    files: int
    #: Files that merges or retention replaced lately and that are still in the store.
    replaced: int
    foreign: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One message type that follows a table."""

    #: Its path.
    journal: str
    message_type: str
    figures: TableFigures
    #: Files that the table has removed, or may have, with messages that some queue needs; from when on VACUUM may take the first.
    files_due: int
    vacuum_time: str

    @property
    def notice(self) -> str:
        """How far it was read, and what of it is still to be copied, as a sentence."""
        known = self.figures
        told = table_notice(
            self.journal, self.message_type, table=known.table, version=known.version, behind=known.behind,
            is_set_aside=known.trouble is not None, changes=known.changes, rows_passed=known.rows_passed,
        )  # fmt: skip
        due = f" {self.files_due:,} file(s) are still to be copied: VACUUM may take the first {self.vacuum_time}."
        return told + (counted(due) if self.files_due else "")


def table_rows(look: JournalView) -> list[TableRow]:
    """Return the message types of a journal that follow tables, and how far each was read."""
    return [row for name in look.state.message_types if (row := table_row(look, name)) is not None]


def table_row(look: JournalView, message_type: str) -> TableRow | None:
    """Return how far the table was read that a message type follows; None where it follows none."""
    known = look.state.message_types[message_type].followed
    if known is None:
        return None
    due = [each for each in due_files(look.state, message_type) if each.needed]
    return TableRow(
        journal=look.journal.store.path,
        message_type=message_type,
        figures=known.figures(look.place(message_type)),
        files_due=len(due),
        vacuum_time=vacuum_time(min(due, key=lambda each: each.taken_at_ms)) if due else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSize:
    """The size of a part of the journal in its store."""

    name: str
    objects: int
    size_bytes: int


def definitions_text(state: JournalState) -> str:
    """Return the definitions that hold, as JSON: as they are stored, but for the hashes of tokens."""
    return json.dumps(_without_tokens(state.definitions.stored), indent=2, ensure_ascii=False, default=str)


def _without_tokens(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: NOT_SHOWN if name == TOKEN_KEY else _without_tokens(each) for name, each in value.items()}
    return value


def type_rows(state: JournalState) -> list[TypeRow]:
    """Return the message types of a journal."""
    return [
        TypeRow(
            name=name,
            topics=", ".join(state.definitions.message_types[name].topics) or NO_TOPICS,
            messages=known.entered_until,
            retired=known.retired_rows,
            files=len({segment.path for segment in known.segments if not segment.retired}),
            replaced=len(known.replaced),
            foreign=known.foreign_files,
        )
        for name, known in state.message_types.items()
        if name in state.definitions.message_types
    ]


#: A message type that nothing can be published to.
NO_TOPICS = "none"


def sizes(store: Store) -> tuple[list[PartSize], str | None]:
    """Return the sizes of a journal's parts in its store, or the trouble of listing them."""
    try:
        found = {name: store.list(name) for name in (MESSAGES, CONTROL, SNAPSHOTS)}
    except SparkQueueError as refusal:
        return [], str(refusal)
    counted: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for name, objects in found.items():
        for each in objects:
            part = "/".join(each.key.split("/")[: 2 if name == MESSAGES else 1])
            counts[part] += 1
            counted[part] += each.size_bytes
    return [PartSize(name=name, objects=counts[name], size_bytes=counted[name]) for name in sorted(counts)], None
