"""Whether what waits in a queue can be read: a queue without expressions reads no message file before a consumer does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_array
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import IN_QUEUE
from spark_queue.errors import MESSAGE_FILE_CODES, JournalError
from spark_queue.journal.layout import Store
from spark_queue.journal.message_file import corrupt, decoding
from spark_queue.journal.schema import stored_schema
from spark_queue.views.bodies import read_bodies

#: Most files that are opened for one look; `sparkq verify` reads them all.
FILES_LIMIT = 100

#: How many of them at once: an object store takes a while for each.
_THREADS = 16


def find_damage(store: Store, state: JournalState, queue: str) -> str | None:
    """Return what is wrong with the first message file that a queue's consumers need next, None when nothing is.

    The files of the oldest messages are opened, which finds what is missing or cut off; what a batch failed on is read, which
    finds any damage.

    Raises
    ------
    JournalError
        STORE_FAILED, which says nothing about the files.
    """
    ledger = state.ledger(queue)
    message_type = state.message_types[ledger.definition.message_type]
    waiting = BitMap64.union(*(ledger.rows[each] for each in IN_QUEUE))
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(partial(_check, store), _next_files(message_type, waiting.copy())))
        read_bodies(store, message_type, to_array(waiting & _failed(ledger)), stored_schema(ledger.definition.columns))
    except JournalError as trouble:
        if trouble.code in MESSAGE_FILE_CODES:
            return str(trouble)
        raise
    return None


def _next_files(message_type: MessageTypeState, waiting: BitMap64) -> list[Segment]:
    """Return the last segment in each of the files of the oldest messages."""
    found: dict[str, Segment] = {}
    while waiting and len(found) < FILES_LIMIT:
        segment = message_type.segment_of(waiting.min())
        waiting.remove_range(0, segment.until)
        if not segment.retired:
            found[segment.path] = segment
    return list(found.values())


def _check(store: Store, segment: Segment) -> None:
    with decoding(store, segment) as file:
        rows, until = file.metadata.num_rows, segment.first_row + segment.row_count
    if rows < until or (rows != until and not segment.merged):
        raise corrupt(store, segment, f"it has {rows} rows instead of {until}.")


def _failed(ledger: QueueLedger) -> BitMap64:
    alone = ledger.lone_failures.at_least(1, ledger.entered)
    return BitMap64.union(alone, *(lease.rows for lease in ledger.leases.values() if lease.failure is not None))
