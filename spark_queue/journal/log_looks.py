"""When a message log is looked at (DESIGN 6): an object store is paid for each look, so seldom where nothing comes."""

from __future__ import annotations

#: Shortest and longest time between two looks at a log that somebody waits for, in milliseconds. A publisher says so to the
#: coordinator, which then looks at once; this is for those whom it cannot hear.
BUSY_MS = 100
SILENT_MS = 2_000

#: The longest time for a table on a local disk that others write: none of them says anything, and a look costs no request.
NEAR_SILENT_MS = 200

#: How often such a log is searched for gaps, which needs a listing, and how often one is that nobody waits for, in milliseconds.
SEARCHED_MS = 60_000
UNAWAITED_MS = 600_000


class LogLooks:
    """The looks at one message log. The longer nothing has come, the longer is the time to the next one, up to `silent_ms`."""

    def __init__(self, now_ms: int, silent_ms: int = SILENT_MS) -> None:
        self._silent_ms = silent_ms
        self._came_at_ms = now_ms
        #: When the last look was made.
        self.looked_at_ms = self._searched_at_ms = now_ms - UNAWAITED_MS

    def due_ms(self, *, awaited: bool = True) -> int:
        """Return when the next look is due."""
        if not awaited:
            return self._searched_at_ms + UNAWAITED_MS
        silent_ms = self.looked_at_ms - self._came_at_ms
        return self.looked_at_ms + max(BUSY_MS, min(silent_ms, self._silent_ms))

    def finds_gaps(self, now_ms: int, *, awaited: bool = True) -> bool:
        """Return whether a look at this time searches for gaps."""
        return now_ms >= self._searched_at_ms + (SEARCHED_MS if awaited else UNAWAITED_MS)

    def looked(self, now_ms: int, *, came: bool, searched: bool) -> None:
        """Note a look: whether unannounced messages came, and whether gaps were searched for."""
        self.looked_at_ms = now_ms
        if came:
            self._came_at_ms = now_ms
        if searched:
            self._searched_at_ms = now_ms
