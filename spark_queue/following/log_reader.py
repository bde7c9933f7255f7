"""Reading a journal's control log forward: the whole of it once, then only what is new."""

from __future__ import annotations

import pyarrow as pa

from spark_queue.core.records import Record
from spark_queue.core.state.log_tail import LogTail
from spark_queue.journal import snapshot
from spark_queue.journal.control_files import ControlFile, listing, read_rows, to_records_of
from spark_queue.journal.layout import CONTROL, Store, log_key
from spark_queue.journal.log_entry import read_entry
from spark_queue.journal.reader import open_control
from spark_queue.views.one_message import one_of


class LogVanishedError(Exception):
    """What was read is not there any more: the journal is gone, was made anew, or its old entries were cleaned away."""


class LogReader:
    """A control log that is read forward; nothing is opened before the first call.

    Parameters
    ----------
    store : Store
        The journal's place.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files: list[ControlFile] = []
        #: Newest version of the table that was read.
        self._version = -1
        #: Number of the record that comes next.
        self.next_record = 0

    def open(self) -> LogTail:
        """Return the newest usable snapshot of the log, and the records after it.

        Raises
        ------
        JournalError
            NOT_A_JOURNAL, JOURNAL_DAMAGED, PROTOCOL_NEWER or STORE_FAILED.
        """
        table = open_control(self._store)
        self._version, self._files = int(table.version()), listing(self._store, table)
        past = snapshot.load(self._store, self._files)
        self.next_record = past.next_record
        return past

    def all_rows(self) -> pa.Table:
        """Return the rows of every record that `open` found; to be called once after it.

        Raises
        ------
        JournalError
            JOURNAL_DAMAGED or STORE_FAILED.
        """
        files, self._files = self._files, []
        return read_rows(self._store, files)

    def new_rows(self) -> pa.Table | None:
        """Return the rows of the records that were committed since; None when there are none. Its cost follows what is new.

        Raises
        ------
        LogVanishedError
            The log must be opened anew.
        JournalError
            JOURNAL_DAMAGED or STORE_FAILED.
        """
        version, files = self._version, list[ControlFile]()
        while (entry := read_entry(self._store, CONTROL, version + 1)) is not None:
            version = entry.version
            # A merge brings records again that were read before.
            if not entry.removes:
                files += map(ControlFile.of_add, entry.adds)
        if not files:
            # Who reads nothing behind its place cannot tell an idle log from one that is gone.
            if version == self._version and self._store.read(log_key(CONTROL, version)) is None:
                raise LogVanishedError
            self._version = version
            return None
        rows = read_rows(self._store, sorted(files), first=self.next_record)
        # Only now: what could not be read is tried again.
        self._version, self.next_record = version, self.next_record + rows.num_rows
        return rows


def put_rows(parts: list[pa.Table], rows: pa.Table) -> None:
    """Add rows behind others; parts are joined as they grow, so that whoever reads all of them meets few."""
    parts.append(rows)
    while len(parts) > 1 and parts[-2].num_rows <= parts[-1].num_rows:
        parts[-2:] = [pa.concat_tables(parts[-2:]).combine_chunks()]


def records_of(store: Store, rows: pa.Table, kinds: tuple[str, ...]) -> list[Record]:
    """Return the records of some kinds.

    Raises
    ------
    JournalError
        JOURNAL_DAMAGED or PROTOCOL_NEWER.
    """
    return to_records_of(store, rows.filter(pa.array(one_of(rows.column("kind"), kinds))))
