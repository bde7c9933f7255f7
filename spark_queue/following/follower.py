"""One folded state for each journal, which a thread keeps up with the log; pages look at it and never wait for a store.

The control log is read forward: the whole of it once, then only new records. Each question for
metrics costs no more than that (DESIGN 18).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_queue.client.journal import Journal
from spark_queue.clock import SystemClock
from spark_queue.core.log_tail import LogTail
from spark_queue.core.message_files.followed_table import TablePlace
from spark_queue.core.records import Kind
from spark_queue.core.state.findings import of_set_aside
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.log_history import LogHistory
from spark_queue.errors import SparkQueueError
from spark_queue.following.history import JournalHistory, owners_of
from spark_queue.journal import snapshot
from spark_queue.journal.control_table import brought_by
from spark_queue.journal.entering import PreparedTraits
from spark_queue.journal.log_entry import check_mark, read_entry
from spark_queue.journal.open import DeltaJournal, open_journal
from spark_queue.journal.reader import open_control
from spark_queue.journal.record_blocks import ControlRows, RecordBlock, read_rows, to_records_of
from spark_queue.journal.state_codec import decode, encode
from spark_queue.journal.store import CONTROL, Store, log_key
from spark_queue.metrics.samples import Family, Observation, collect, figures_at, observation, unreadable
from spark_queue.protocol.discovery import RENEWAL_S, Advertisement, read_advertisement
from spark_queue.views.journal_view import JournalView, count_on, find_damage, find_head, needed_files, table_place
from spark_queue.views.pace import PACE_MS, Pace


class LogVanishedError(Exception):
    """The log that was read is not there any more: the journal is gone, was made anew, or its old entries were cleaned away."""


class LogReader:
    """A control log that is read forward; nothing is opened before the first call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._blocks: Sequence[RecordBlock] = []
        #: Newest version of the table that was read.
        self._version = -1
        #: Number of the record that comes next.
        self.next_record = 0

    def open(self) -> LogTail:
        """Return the newest usable snapshot of the log, and the records after it."""
        table = open_control(self._store)
        self._version, self._blocks = table.version, table.blocks
        tail = snapshot.load(self._store, self._blocks)
        self.next_record = tail.next_record
        return tail

    def all_rows(self) -> ControlRows:
        """Return the rows of every record that `open` found; to be called once after it."""
        blocks, self._blocks = self._blocks, []
        return ControlRows(self._store, blocks)

    def new_rows(self) -> pa.Table | None:
        """Return the rows of the records that were committed since; None when there are none. Its cost follows their number."""
        version, blocks = self._version, list[RecordBlock]()
        while (entry := read_entry(self._store, CONTROL, version + 1)) is not None:
            check_mark(entry, path=self._store.path)
            version = entry.version
            # Records that entries held come again as files.
            blocks += [block for block in brought_by(entry) if block.first >= self._next_of(blocks)]
        if not blocks:
            # A reader that finds no entry behind its place cannot tell an idle log from one that is gone.
            if version == self._version and self._store.read(log_key(CONTROL, version)) is None:
                raise LogVanishedError
            self._version = version
            return None
        rows = read_rows(self._store, blocks, first=self.next_record)
        # Only now: records that could not be read are tried again.
        self._version, self.next_record = version, self.next_record + rows.num_rows
        return rows

    def _next_of(self, blocks: Sequence[RecordBlock]) -> int:
        return blocks[-1].last + 1 if blocks else self.next_record


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedView(JournalView):
    """A journal as it is now, with its past; to be used inside `JournalFollower.look` only."""

    #: None until all records were read once.
    history: JournalHistory | None
    #: Whether a coordinator renews its advertisement.
    is_served: bool
    #: When one was last heard of, by a record or by its advertisement, in milliseconds since 1970 UTC.
    heard_at_ms: int
    #: When troubles of which no record tells since when were seen first, by their text, in milliseconds since 1970 UTC.
    first_seen_ms: Mapping[str, int]

    def pace(self, name: str) -> Pace | None:
        """Return the pace of a queue now; None where the history is still being read."""
        if self.history is None:
            return None
        rate_in, rate_out = self.history.rates(self.state, name, self.now_ms - PACE_MS, self.now_ms)
        return Pace(rate_in=rate_in, rate_out=rate_out)


_LOG = logging.getLogger(__name__)

#: Time between two looks at a log, in seconds; a change is shown within it and the time of an event, together below five.
LOOK_S = 2.0

#: Time between two looks at message files, each at those that one queue needs next, in milliseconds.
FILES_MS = 10_000

#: The silence of a store in a look after which pages say so, in milliseconds.
SILENT_MS = 10_000

#: The silence after which a coordinator counts as absent, in milliseconds: some of its renewals.
ABSENT_MS = int(6 * RENEWAL_S * 1_000)

#: The wait of the first page for the first fold, in seconds; then it says that the log is being read.
FIRST_WAIT_S = 0.7


@dataclass(slots=True, kw_only=True)
class _Followed:
    """The knowledge of a journal whose log could be read."""

    journal: DeltaJournal
    log: LogReader
    #: The fold of the control log.
    state: JournalState
    #: The same with published messages that have no record yet, while no coordinator enters them.
    ahead: JournalState | None = None
    #: The history for metrics.
    log_history: LogHistory
    history: JournalHistory | None = None
    troubles: dict[str, str] = field(default_factory=dict)
    damages: dict[str, str] = field(default_factory=dict)
    #: The newest versions of the tables of message types that are set aside, as far as they were looked at.
    heads: dict[str, int | None] = field(default_factory=dict)
    #: The last advertisement of its coordinator, and when it was first seen, by the monotonic clock in milliseconds.
    told: Advertisement | None = None
    told_ms: int = 0
    #: When it was last renewed, in milliseconds since 1970 UTC: by its own clock, where this process has not seen it.
    heard_at_ms: int = 0
    is_served: bool = False
    #: Newest version of each message log that was looked at, beyond the state's.
    seen: dict[str, int] = field(default_factory=dict)

    def place(self, message_type: str) -> TablePlace | None:
        """Return how far the table was read that a message type follows; None where it follows none."""
        known, version = (self.ahead or self.state).message_types[message_type].followed, self.seen.get(message_type, -1)
        return table_place(known, version, is_stuck=message_type in self.troubles, head=lambda *_: self.heads.get(message_type))


class JournalFollower:
    """Keeps up with one journal.

    Attributes
    ----------
    handle : Journal
        The journal as its users hold it.
    revision : int
        Rises with each change that pages show.
    """

    def __init__(self, name: str, store: Store, *, coordinator: str | None = None) -> None:
        self.name = name
        self.store = store
        self.handle = Journal(store.path, storage_options=store.storage_options, coordinator=coordinator)
        self.revision = 0
        self._trouble: str | None = None
        #: When it began, by the wall clock in milliseconds.
        self._trouble_since_ms = 0
        self._first_seen_ms: dict[str, int] = {}
        #: When a look began that may wait for the store alone, by the monotonic clock in milliseconds; None between looks.
        self._asked_ms: int | None = None
        self._found: _Followed | None = None
        #: Whether the log must be read from its beginning again.
        self._reopens = False
        #: The queue whose files are looked at next, and when, by the monotonic clock in milliseconds.
        self._next_queue, self._next_files_ms = 0, 0
        self._lock = threading.RLock()
        self._looked = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow {name}", daemon=True)

    @property
    def trouble(self) -> str | None:
        """The reason why the journal cannot be read now; the state read before is still shown."""
        asked_ms = self._asked_ms
        silent_ms = 0 if asked_ms is None else SystemClock().monotonic_ms() - asked_ms
        if self._trouble is None and silent_ms > SILENT_MS:
            # Clients of object stores try for minutes before they give up.
            return f"Its store has not answered for {silent_ms // 1_000} s. It is asked again and again."
        return self._trouble

    @property
    def trouble_since_ms(self) -> int:
        """When the journal began to have a `trouble`, in milliseconds since 1970 UTC."""
        asked_ms = self._asked_ms
        if self._trouble is not None or asked_ms is None:
            return self._trouble_since_ms
        return SystemClock().wall_ms() - (SystemClock().monotonic_ms() - asked_ms)

    def start(self) -> None:
        """Begin to follow the log, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop following the log."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def look(self, *, wait_s: float = FIRST_WAIT_S) -> Iterator[FollowedView | None]:
        """Yield the journal as it is, which does not change meanwhile; None if its first reading is not over after `wait_s`."""
        self._looked.wait(wait_s)
        with self._lock:
            found = self._found
            if found is None:
                yield None
                return
            state = found.ahead or found.state
            yield FollowedView(
                journal=found.journal,
                state=state,
                # The coordinator's clock may be ahead of this one.
                now_ms=max(SystemClock().wall_ms(), state.last_at_ms),
                history=found.history,
                log_history=lambda: found.log_history,
                troubles=found.troubles,
                damage=found.damages.get,
                place=found.place,
                heard=lambda: {} if found.told is None else found.told.heard,
                is_served=found.is_served,
                heard_at_ms=max(found.state.last_at_ms, found.heard_at_ms),
                first_seen_ms=self._first_seen_ms,
            )

    def refresh(self) -> None:
        """Read new records; a journal that cannot be read has a `trouble`."""
        try:
            self._refresh()
        except SparkQueueError as refusal:
            self._fail(str(refusal))
        except LogVanishedError:
            self._fail("Its control log is not where it was. It is looked for again.")
            self._reopens = True
        # A damaged journal may raise anything in its reader: the others, and the state of this one, are shown on.
        except Exception as failure:  # noqa: BLE001 - as said above
            _LOG.exception("Journal '%s' cannot be followed.", self.store.path)
            self._fail(f"It cannot be read: {type(failure).__name__}: {failure}")
            self._reopens = True
        self._looked.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.refresh()
            self._ended.wait(LOOK_S)

    def _fail(self, text: str) -> None:
        if self._trouble is None:
            self._trouble_since_ms = SystemClock().wall_ms()
        if text != self._trouble:
            self._trouble, self.revision = text, self.revision + 1

    def _refresh(self) -> None:
        found = self._found
        if found is None or self._reopens:
            self._open()
        else:
            self._follow(found)
        if self._found is not None:
            self._hear(self._found)
        if self._trouble is not None:
            self._trouble, self.revision = None, self.revision + 1
        self._look_for_damage()
        self._note_troubles()

    def _note_troubles(self) -> None:
        """Remember when troubles were seen first of which no record tells since when."""
        found = self._found
        if found is not None:
            state = found.ahead or found.state
            set_aside = (of_set_aside(state, name).text for name in state.set_aside_queues())
            texts, now_ms = (*found.troubles.values(), *found.damages.values(), *set_aside), SystemClock().wall_ms()
            self._first_seen_ms = {text: self._first_seen_ms.get(text, now_ms) for text in texts}

    def _hear(self, found: _Followed) -> None:
        """Read the coordinator's advertisement. Without a renewal for long it is not there, whatever its clock and ours say."""
        told, now_ms = read_advertisement(self.store, found.state.journal_id), SystemClock().monotonic_ms()
        if told != found.told:
            if told is not None:
                wall_ms = SystemClock().wall_ms()
                found.heard_at_ms = min(wall_ms, told.renewed_at_ms) if found.told is None else wall_ms
            found.told, found.told_ms = told, now_ms
        is_served = told is not None and now_ms - found.told_ms < ABSENT_MS
        if is_served != found.is_served:
            found.is_served, self.revision = is_served, self.revision + 1

    def _look_for_damage(self) -> None:
        """Look at the files of one queue now and then: those of all of them at once would cost a store too much."""
        found, now_ms = self._found, SystemClock().monotonic_ms()
        if found is None or now_ms < self._next_files_ms or not found.state.queues:
            return
        self._next_files_ms = now_ms + FILES_MS
        names = list(found.state.queues)
        name = names[self._next_queue % len(names)]
        self._next_queue += 1
        # Only this thread changes the state.
        damage = find_damage(self.store, needed_files(found.state, name))
        message_type = found.state.ledger(name).definition.message_type
        known = (found.ahead or found.state).message_types[message_type].followed
        head = None if known is None or known.stopped is None else find_head(self.store, known.columns.table, known.read_until)
        if damage != found.damages.get(name) or head != found.heads.get(message_type):
            with self._lock:
                _put(found.damages, name, damage)
                found.heads[message_type] = head
                self.revision += 1

    def _open(self) -> None:
        journal, log = open_journal(self.store), LogReader(self.store)
        tail = log.open()
        found = _Followed(journal=journal, log=log, state=tail.fold(journal.traits), log_history=tail.fold_history())
        self._look_ahead(found)
        with self._lock:
            self._found, self._reopens, self.revision = found, False, self.revision + 1
        self._looked.set()
        self._read_history(found)

    def _read_history(self, found: _Followed) -> None:
        """Read all records once, for charts and the control log's page; figures are shown before."""
        rows = found.log.all_rows()
        owners = owners_of(found.state, found.journal.traits, lambda: rows.records(np.arange(rows.count)))
        history = JournalHistory(owners)
        history.read(rows, found.state)
        with self._lock:
            found.history = history
            self.revision += 1

    def _follow(self, found: _Followed) -> None:
        if found.history is None:
            self._read_history(found)
        self._asked_ms = SystemClock().monotonic_ms()
        try:
            rows = found.log.new_rows()
            if rows is None:
                self._look_ahead(found)
                return
        finally:
            self._asked_ms = None
        records = to_records_of(self.store, rows)
        with self._lock:
            # A fold that fails half-way leaves a state that nothing can be built on.
            self._reopens = True
            assert found.history is not None, "it was read above"
            found.history.fold(records, found.state)
            found.log_history.fold(records)
            # A journal that became an instance is read again: its past has owners now.
            self._reopens = found.history.owners is None and found.state.definitions.journal.instance is not None
            # A queue that was set aside is folded again from the log's beginning.
            self._reopens |= any(record.kind == Kind.REVIVED for record in records)
            found.ahead = None
            found.seen.clear()
            self.revision += 1

    def _look_ahead(self, found: _Followed) -> None:
        """Count published messages that have no record yet: no coordinator may run that would enter them."""
        base = found.ahead or found.state
        fresh = [name for name in base.message_types if self._has_more(found, base, name)]
        if not fresh:
            return
        ahead = base
        if found.ahead is None:
            # The state of the log alone is folded on when a coordinator has entered them.
            ahead = decode(encode(found.state))
        traits = PreparedTraits(found.journal.traits)
        now_ms = SystemClock().wall_ms()
        with self._lock:
            ahead.traits = traits
            for name in fresh:
                trouble = count_on(found.journal, ahead, traits, message_type=name, now_ms=now_ms).trouble
                _put(found.troubles, name, None if trouble is None else str(trouble))
            found.ahead = ahead
            self.revision += 1

    def _has_more(self, found: _Followed, base: JournalState, name: str) -> bool:
        """Return whether a message log has entries that pages should show."""
        known = base.message_types[name]
        if known.followed is not None and known.followed.trouble is not None:
            _put(found.troubles, name, str(known.followed.trouble))
            return False
        after = max(known.version, found.seen.get(name, -1))
        has_more = False
        try:
            for entry in found.journal.messages(name, known.followed).tail(after, finds_gaps=False):
                found.seen[name] = entry.version
                has_more |= bool(entry.added or entry.merged or entry.foreign_paths or entry.commit)
        except SparkQueueError as trouble:
            _put(found.troubles, name, str(trouble))
            self.revision += 1
        return has_more


def _put(troubles: dict[str, str], name: str, text: str | None) -> None:
    if text is None:
        troubles.pop(name, None)
    else:
        troubles[name] = text


#: The wait of a scrape for the first fold of a log, in seconds: less than a scraper waits for an answer.
_SCRAPE_WAIT_S = 8.0


def families_of(followers: Iterable[JournalFollower], *, per_subscription: bool = False) -> list[Family]:
    """Return the metrics of followed journals; the cost follows the new records of their logs."""
    return collect([_observation(each) for each in followers], per_subscription=per_subscription)


def _observation(follower: JournalFollower) -> Observation:
    with follower.look(wait_s=_SCRAPE_WAIT_S) as view:
        # People are shown the state read before with the trouble beside it; a figure has nothing beside it.
        found = None if view is None or follower.trouble is not None else figures_at(view)
    try:
        return unreadable(follower.store) if found is None else observation(follower.store, found)
    except SparkQueueError:
        return unreadable(follower.store)
