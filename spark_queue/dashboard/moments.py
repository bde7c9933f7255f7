"""Journals as they were: the fold up to a past moment, and the last few of them kept, since a slider goes back and forth."""

from __future__ import annotations

import threading
from collections import OrderedDict

from spark_queue.dashboard.queue_page import as_of
from spark_queue.journal.open import DeltaJournal
from spark_queue.views.point_in_time import PointInTime
from spark_queue.views.state_at import state_at

#: How many moments are kept; each is a whole state.
KEPT = 6


class Moments:
    """Past states of journals, each folded once."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, int], PointInTime] = OrderedDict()
        # One fold at a time: it takes a processor, and a second asker mostly asks for the same.
        self._lock = threading.Lock()

    def at(self, journal: DeltaJournal, at_ms: int) -> PointInTime:
        """Return a journal as it was; nobody changes it.

        Raises
        ------
        CallerError
            RECORD_UNKNOWN for a moment before the journal was there.
        ConfigError
            BAD_VALUE for a moment that has not come yet.
        JournalError
            What keeps the log from being read.
        """
        # A journal that is made anew at a place has another id.
        key = (journal.path, journal.journal_id, at_ms)
        with self._lock:
            if key not in self._known:
                self._known[key] = state_at(journal, as_of(at_ms))
            self._known.move_to_end(key)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            return self._known[key]
