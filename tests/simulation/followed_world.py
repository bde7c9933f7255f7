"""A simulated world whose messages are rows of a table that others write: they compact, delete, vacuum and drop it meanwhile.

Journal, log of the table, meaning of its commits, copies and losses are the product's; the table stands in a bucket of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_queue.core import commands, replies
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Entered, Kind, Removal
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal import folder, followed_log, table_look
from spark_queue.journal.file_columns import from_text
from spark_queue.journal.opening import opened
from spark_queue.journal.store import Store
from spark_queue.protocol import wire
from spark_queue.receiver.message import Settlement
from tests.simulation import simulated_table
from tests.simulation.bucket import Bucket, SimulatedStore
from tests.simulation.coordinator import QUEUE
from tests.simulation.disk_world import DiskWorld, Process, simulated_delta
from tests.simulation.loop_driver import Client, Driver, Steps
from tests.simulation.loop_node import START_MS, HeardCall
from tests.simulation.loop_world import TYPE
from tests.simulation.table_people import TABLE, WrittenTable
from tests.simulation.table_receiver import TableReceiver

#: Where the table's bucket is.
LAKE = "sim://lake"

#: How long nobody does anything, now and then: some of them, and VACUUM may take a file.
HOURS_MS = 4 * 3_600_000


class TablePeople(Client):
    """Who writes the table, runs `sparkq follow --catch-up` before VACUUM if `careful`, and lets a table made anew be followed."""

    world: FollowedWorld

    def __init__(self, world: FollowedWorld, table: WrittenTable, *, careful: bool, drops: bool) -> None:
        super().__init__(world)
        self.table = table
        self._careful, self._drops = careful, drops
        self._steps: Steps | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing that takes several steps is under way."""
        return self._steps is None

    def step(self) -> None:
        """Go on with what takes several steps, or do something."""
        if self._steps is None:
            self._steps = self._act()
        self.go_on()

    def go_on(self) -> None:
        """Go on with what is under way, which a refusal ends."""
        try:
            next(self._steps or iter(()))
        except (StopIteration, SparkQueueError):
            self._steps = None

    def _act(self) -> Steps:
        draw = self.world.random.random()
        if draw < 0.4:
            self.table.append()
        elif draw < 0.55:
            self.table.optimize()
        elif draw < 0.65:
            self.table.delete()
        elif draw < 0.7:
            self.table.restore()
        elif draw < 0.72 and self._drops and not self.table.is_anew:
            yield from self._make_anew()
        elif draw < 0.75:
            yield from self._give_up()
        elif self._careful:
            yield from self._clean_up()
        else:
            self.table.vacuum(list(self.table.removed), is_excuse=True)

    def _clean_up(self) -> Steps:
        """Run VACUUM after the retention, and after all that was due was copied by then."""
        kept = self.table.kept_until(START_MS + self.world.elapsed_ms)
        while kept:
            call = yield from self.ask(wire.CatchUp)
            if not call.reply.files and not call.reply.troubles:
                self.table.vacuum(kept, is_excuse=False)
                return
            if self.world.is_set_aside:
                # It tells that a queue is set aside, for as long as nobody gives the missing file up.
                yield from self._give_up()
            yield

    def _give_up(self) -> Steps:
        """Let queues go on that are set aside for files which are gone; where none is, it is refused."""
        yield from self.ask(commands.GiveUpFiles, message_type=TYPE)

    def begin_to_give_up(self) -> None:
        """Begin with that, unless something is under way."""
        self._steps = self._steps or self._give_up()

    def _make_anew(self) -> Steps:
        self.table.make_anew()
        while sum(record.kind == Kind.FOLLOWED for record in self.world.log) == 1:
            # Whoever asks before the coordinator has found another log is refused.
            with suppress(SparkQueueError):
                yield from self.ask(commands.Follow, message_type=TYPE, first=0)
            yield


class TableDriver(Driver):
    """A driver whose tasks open the files that they were told."""

    world: FollowedWorld

    def _failure(self, pieces: pa.Table) -> str | None:
        found = self.world.read(_pieces_of(pieces))
        return super()._failure(pieces) or next((f"{path} is gone" for path, rows in found if rows is None), None)


class FollowedWorld(DiskWorld):
    """A world over a table; made inside `simulated_tables`.

    Parameters
    ----------
    careful : bool
        Whether VACUUM comes after the retention, and after a catch-up; otherwise it comes at any time (RETAIN 0).
    drops : bool
        Whether the table is dropped once, and made anew.
    """

    topics = ("T",)

    def __init__(self, seed: int, *, careful: bool, drops: bool, **about: Any) -> None:
        self._careful, self._drops = careful, drops
        super().__init__(seed, **about)
        streams: list[Driver] = [TableDriver(self, each.name, filter_sql=None) for each in self.drivers]
        #: The messages on which a receiver's function ended well, and what was answered to that.
        self.finished: set[int] = set()
        self.settlements: list[tuple[int, Settlement]] = []
        self.drivers = [*streams, TableReceiver(self, "r1")]  # type: ignore[list-item]  # All that a world does with one, it does with the other.

    def _create(self) -> None:
        self.lake = Bucket(lambda: START_MS + self.elapsed_ms)
        self.lake.path = LAKE
        self.people = TablePeople(
            self, WrittenTable(self.lake, self.random, counts_all=not self._careful), careful=self._careful, drops=self._drops
        )
        self.definitions["message_types"][TYPE] |= {"table": f"{LAKE}/{TABLE}", "on_change": "keep"}
        super()._create()

    def way(self, process: Process | None) -> SimulatedStore:
        """Give a process its way to the journal's bucket, and one to the table's beside it."""
        own = super().way(process)
        name = f"{own.storage_options['process']} to the lake"
        simulated_table.STORES[name] = SimulatedStore(self.lake, name, own.hook)
        return own

    def _make_publishers(self) -> list[Any]:
        return []

    def publish(self, messages: int) -> None:
        """Let the people of the table go on."""
        self.people.step()

    def step(self) -> None:
        """Let something happen."""
        draw = self.random.random()
        if draw < 0.1:
            self.people.step()
        elif draw < 0.14 and not self._nested:
            self.bucket.late.clear()
            self.advance(HOURS_MS)
        else:
            super().step()

    def read(self, pieces: Iterable[replies.Place]) -> Iterator[tuple[str, list[int] | None]]:
        """Yield the file of each piece and the ids of its rows, as an executor reads them; None where the file is not there."""
        own = self.way(None)
        table, journal = folder.of_table(own, f"{LAKE}/{TABLE}"), folder.of_type(own, TYPE)
        for piece in pieces:
            of_file, place = from_text(piece.columns), journal if piece.columns is None else table
            try:
                with opened(place, piece.path) as file:
                    of_file.check(place, piece.path, file.metadata.num_rows)
                    rows = file.read(columns=of_file.stored(["n"], file.schema_arrow.names), use_threads=False)
            except JournalError as damage:
                if damage.code != "MESSAGE_FILE_MISSING":
                    raise
                yield piece.path, None
            else:
                ids = of_file.filled(rows, "n", pa.int64(), len(rows), lambda: np.arange(0)).to_pylist()
                yield piece.path, ids[piece.first_row : piece.first_row + piece.rows]

    def note_answer(self, call: HeardCall, reply: wire.AnyReply | None, pieces: pa.Table | None) -> None:
        """Look whether consumers are told the rows that entered under those bookmarks, wherever they stand by now."""
        super(DiskWorld, self).note_answer(call, reply, pieces)
        granted = reply.granted if isinstance(reply, replies.HeldSettled) else reply
        # A receiver is told places, executors are told pieces.
        told = list(granted.places) if isinstance(granted, replies.Granted) and pieces is None else []
        if pieces is not None and isinstance(granted, replies.RowsOf | replies.Granted):
            told = _pieces_of(pieces)
        self.note_order()
        for bookmark, (path, found) in zip([each.bookmark for each in told], self.read(told), strict=True):
            # Whoever was deposed without knowing it may tell an old place, which VACUUM has taken.
            if found is None and (path in self.people.table.contents and self._may_be_gone(call, path)):
                continue
            if found is None or found != self.order[bookmark : bookmark + len(found)]:
                self.misread.append(f"{bookmark} and more in {path}: {found}")

    def _may_be_gone(self, call: HeardCall, path: str) -> bool:
        return call.node.epoch < self.epoch or set(self.people.table.contents[path]) <= self.people.table.excused

    def note_bodies(self, ids: Mapping[int, int]) -> None:
        """Look whether a receiver has read the rows that entered under some bookmarks."""
        self.note_order()
        self.misread += [f"{found} as {row} by a receiver" for row, found in ids.items() if found != self.order[row]]

    def note_order(self) -> None:
        """Read on which rows have entered, by the records."""
        entered = [record for record in self.log if record.kind == Kind.ENTERED and record.message_type == TYPE]
        for record in entered[self._ordered_entries :]:
            self.order += self.people.table.contents[record.body_as(Entered).path]
        self._ordered_entries = len(entered)

    @property
    def lost(self) -> set[int]:
        """The ids of rows that were lost."""
        lost = [record for record in self.log if record.queue == QUEUE and record.reason == Removal.LOST]
        return {self.order[row] for record in lost for row in to_bitmap(record.ranges)}

    def entered_wrongly(self) -> list[str]:
        """Return where other rows have entered than were appended, in another order, or not those of whole commits (R144)."""
        table = self.people.table
        anew = [each for ids in table.appended_anew for each in ids]
        before = self.order[: len(self.order) - len(anew)]
        # Of a table that was dropped the last commits may not have been read.
        least = 0 if table.is_anew else len(table.appended)
        firsts = ([each for ids in table.appended[:count] for each in ids] for count in range(least, len(table.appended) + 1))
        is_right = self.order[len(before) :] == anew and before in list(firsts)
        return [] if is_right else [f"{self.order} entered, of {table.appended} and then {table.appended_anew}"]

    def _serve(self) -> None:
        """Let the last coordinator and its upkeep go on, and the people who wait for it."""
        super()._serve()
        if self.threads[-1].is_waiting:
            self.threads[-1].go_on()
        if self.is_set_aside:
            self.people.begin_to_give_up()
        if not self.people.is_done:
            self.people.go_on()

    @property
    def is_set_aside(self) -> bool:
        """Whether the queue is set aside in the last coordinator's reign."""
        loop = self.nodes[-1].loop
        return loop is not None and QUEUE in loop.engine.state.troubles

    def is_empty(self) -> bool:
        """Return whether the newest rows that were appended entered, and all that entered reached its end."""
        self.note_order()
        table = self.people.table
        newest = (table.appended_anew or table.appended or [[]])[-1]
        is_served = self.people.is_done and QUEUE not in self.reigning.troubles
        return is_served and set(newest) <= set(self.order) and super(DiskWorld, self).is_empty()


def _pieces_of(pieces: pa.Table) -> list[replies.Place]:
    """Return the pieces that executors are told as places."""
    names = [name for name in replies.Place.__struct_fields__ if name in pieces.column_names]
    return [replies.Place(**piece) for piece in pieces.select(names).to_pylist()]


@contextmanager
def simulated_tables(world_random: Any) -> Iterator[None]:
    """Let processes find the bucket of the table where its address says it is, and read its log without threads."""

    def store(path: str, options: Any = None, *about: Any, **named: Any) -> Store:
        process = (options or {}).get("process")
        return Store(path, options or {}, *about, **named) if process is None else simulated_table.STORES[f"{process} to the lake"]

    with simulated_delta(world_random), pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "Store", store)
        for module in (followed_log, table_look):
            patch.setattr(module, "AT_ONCE", 1)
        yield
