"""A folder in which message files stand, and the names by which they are found there: whoever wrote a log may have named others."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_queue.errors import JournalError
from spark_queue.journal.store import Store, messages_key, split_table
from spark_queue.journal.stores_file import options_of

if TYPE_CHECKING:
    from spark_queue.core.message_files.segment import Segment

#: The path of a message file of the journal: a name in its table's folder, as all of ours are. A path that leads out of it may be
#: another type's, or the host's.
PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")

#: No path of a file in a followed table has one of these: it would lead elsewhere, or be another one to some reader.
_ODD = re.compile(r"[\x00-\x1f\x7f\\]|^/|^[A-Za-z][A-Za-z0-9+.-]*:")


_RESTORE_MISSING = "Its messages stay in the queue. Restore the file."
_RESTORE_DAMAGED = "Its messages stay in the queue. Restore the file from a copy; `sparkq verify` names every file that is wrong."


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that message files stand in: that of a message type in the journal, or a table that one follows."""

    store: Store
    #: Relative to the store.
    key: str
    is_followed: bool = False

    @property
    def uri(self) -> str:
        """Its address, for Delta and for people."""
        return self.store.uri(self.key)

    def key_of(self, path: str) -> str:
        """Return the key of a file; one that is none of this folder is refused."""
        key = f"{self.key}/{path}"
        if self.is_followed:
            if not is_in_table(path) or not self._is_below(key):
                raise self.corrupt(path, "it is no file in the folder of its table, or a link to one elsewhere.")
        elif PATH.fullmatch(path) is None or not is_in_place(self.store, key):
            raise self.corrupt(path, "it is no file in the folder of its message type, or a link to one elsewhere.")
        return key

    def _is_below(self, key: str) -> bool:
        """Return whether a key leads to a file somewhere below this folder, and to none elsewhere; also where there is nothing."""
        path = self.store.uri(key)
        if not self.store.is_local or not os.path.lexists(path):
            return True
        found, folder = os.path.realpath(path), os.path.realpath(self.uri)
        return os.path.isfile(found) and os.path.commonpath([found, folder]) == folder  # noqa: PTH113 - loops of links raise nothing.

    def corrupt(self, path: str, reason: str) -> JournalError:
        """Make MESSAGE_FILE_CORRUPT."""
        return JournalError("MESSAGE_FILE_CORRUPT", file=path, path=self.uri, reason=reason, next_step=_RESTORE_DAMAGED)

    def missing(self, path: str, reason: str) -> JournalError:
        """Make MESSAGE_FILE_MISSING."""
        return JournalError("MESSAGE_FILE_MISSING", file=path, path=self.uri, reason=reason, next_step=_RESTORE_MISSING)


def of_type(store: Store, message_type: str) -> Folder:
    """Return the folder of a message type in a journal."""
    return Folder(store, messages_key(message_type))


def of_table(own: Store, table: str) -> Folder:
    """Return the folder of a table that a message type of the journal `own` follows, with the options to reach it.

    They are those that the file of stores says, or else the journal's; a directory takes none.
    """
    parent, key = split_table(table, where="[message_types]")
    store = Store(parent, log_folder=f"{key}/_delta_log")
    if not store.is_local:
        options = options_of(f"{parent}/{key}")
        store = Store(parent, own.storage_options if options is None else options, store.log_folder)
    return Folder(store, key, is_followed=True)


def of_segment(own: Store, segment: Segment) -> Folder:
    """Return the folder in which the file of a segment stands."""
    return of_type(own, segment.message_type) if segment.table is None else of_table(own, segment.table.table)


def is_in_table(path: str) -> bool:
    """Return whether a decoded path of a table's log is that of a data file below the table."""
    parts = path.split("/")
    return bool(path) and _ODD.search(path) is None and not {"..", ".", "", "_delta_log"}.intersection(parts)


def is_in_place(store: Store, key: str) -> bool:
    """Return whether a key leads to a file of its folder, and no link to one elsewhere; also where there is nothing."""
    path = store.uri(key)
    if not store.is_local or not os.path.lexists(path):
        return True
    # Where folders lie is up to the user who set the journal up.
    if not os.path.islink(path):  # noqa: PTH114 - a Path costs more than the look.
        return os.path.isfile(path)  # noqa: PTH113 - likewise.
    found, folder = os.path.realpath(path), os.path.realpath(os.path.dirname(path))  # noqa: PTH120 - likewise.
    return os.path.isfile(found) and os.path.dirname(found) == folder  # noqa: PTH113, PTH120 - loops of links raise nothing.
