"""Parts of a peer's log as they are handed over: what their messages need first, then what their records say (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_queue.core.deciding.instances.replicating import News
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Kind, Record

#: Messages after which what was read is handed over: the loop serves others before it takes the next.
PART_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records one after the other; messages that entered, and news, with the index of their record."""

    records: list[Record]
    entered: list[tuple[int, Segment]]
    news: list[tuple[int, News]]

    def before(self, segment: Segment) -> Chunk:
        """Return what comes before messages that entered."""
        until = next(
            index for index, each in self.entered if (each.message_type, each.first) == (segment.message_type, segment.first)
        )
        entered = [each for each in self.entered if each[0] < until]
        return Chunk(self.records[:until], entered, [each for each in self.news if each[0] < until])


def parts_of(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cut records where their messages are many, but never within one commit of messages."""
    start = rows = 0
    version: object = None
    for index, record in enumerate(records):
        if record.kind == Kind.ENTERED:
            # What is wrong with it is told when it is taken.
            count, commit = record.detail.get("rows"), (record.message_type, record.detail.get("version"))
            if rows >= PART_ROWS and commit != version:
                yield records[start:index]
                start, rows = index, 0
            rows, version = rows + (count if isinstance(count, int) else 0), commit
    if start < len(records):
        yield records[start:]
