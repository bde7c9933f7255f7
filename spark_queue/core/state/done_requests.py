"""Requests that took effect lately: a caller asks again when its reply was lost (DESIGN 6)."""

from __future__ import annotations

from spark_queue.core.bitmaps.ranges import count_rows
from spark_queue.core.records import Record, Refused
from spark_queue.core.replies import RefusedRows

#: How long a request is known at least, in milliseconds: its caller asks again for a minute at most.
_KEPT_MS = 120_000

#: So many of the newest are known however long ago they were: the next coordinator's clock may be far ahead.
_KEPT = 4_096


class DoneRequests:
    """How many messages each request settled, staged, returned or removed, and of which it was refused.

    Planners' calls are among them, and a busy journal has thousands in a second: so they are forgotten in two halves, by time.
    """

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._newest_since_ms = 0
        self._earlier: dict[str, int] = {}
        self._refused: dict[str, list[RefusedRows]] = {}

    def __contains__(self, request: str) -> bool:
        return request in self._newest or request in self._earlier

    def messages_of(self, request: str) -> int:
        """Return how many messages a request changed."""
        return self._newest.get(request, 0) + self._earlier.get(request, 0)

    def refused_of(self, request: str) -> list[RefusedRows]:
        """Return the messages of which a request was refused an outcome (R134)."""
        return self._refused.get(request, [])

    def note(self, record: Record) -> None:
        """Note the request that a record was made for, if it was made for one."""
        request = record.body.request
        if not request:
            return
        if len(self._newest) >= _KEPT and record.at_ms >= self._newest_since_ms + _KEPT_MS:
            self._earlier, self._newest, self._newest_since_ms = self._newest, {}, record.at_ms
            self._refused = {each: refused for each, refused in self._refused.items() if each in self}
        messages = count_rows(record.ranges) if record.body.settles else 0
        self._newest[request] = self._newest.get(request, 0) + messages
        if isinstance(record.body, Refused):
            ranges, reason, holder = tuple(record.ranges), str(record.reason), record.body.holder
            refused = RefusedRows(lease=int(record.lease or 0), ranges=ranges, reason=reason, holder=holder)
            self._refused.setdefault(request, []).append(refused)
