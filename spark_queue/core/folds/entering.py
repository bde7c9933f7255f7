"""Traits of messages that enter one after the other while a log is folded: many small files are read ahead (DESIGN 15.17)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.journal_state import JournalState

#: After these, messages may enter by other expressions, or out of other columns.
_CHANGES = frozenset({Kind.DEFINITIONS_APPLIED, Kind.SUBSCRIBED, Kind.FOLLOWED, Kind.PASSED})

#: Most segments of a message type that are foreseen at once.
_FORESEEN = 10_000


class EnteringAhead:
    """Lets a state ask ahead for the traits of the segments that the records to be folded let enter."""

    def __init__(self, state: JournalState, records: Sequence[Record]) -> None:
        self._state = state
        self._records = records
        #: Number of the segments that are still foreseen, by message type.
        self._foreseen: dict[str, int] = {}

    def before(self, number: int) -> None:
        """Look ahead, where that is needed, before the record of this number in the list is folded."""
        record = self._records[number]
        if record.kind != Kind.ENTERED:
            return
        name = str(record.message_type)
        if not self._foreseen.get(name):
            coming = self._coming(number, name)
            self._state.expect(name, coming, told=coming[0].barriers)
            self._foreseen[name] = len(coming)
        self._foreseen[name] -= 1

    def _coming(self, number: int, name: str) -> list[Segment]:
        """Return the segments that enter from a record on, until something changes."""
        known = self._state.message_types[name]
        unchanged = takewhile(lambda each: each.kind not in _CHANGES, islice(self._records, number, None))
        entering = (each for each in unchanged if each.kind == Kind.ENTERED and each.message_type == name)
        return [known.segment_by(each) for each in islice(entering, _FORESEEN)]
