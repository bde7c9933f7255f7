"""What cannot be evaluated is one error by name, and what can is evaluated beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.message_files.segment import Segment, TraitRequest
from spark_queue.errors import JournalError
from spark_queue.expression import Wanted
from spark_queue.expression.program import Program
from spark_queue.journal.traits import FileTraits
from spark_queue.ports import entered
from tests.unit.journal.journal_on_disk import Disk

ROWS = to_bitmap([(0, 3)])


@pytest.fixture
def segment(disk: Disk) -> Segment:
    disk.publish([1, 2, 3])
    (entry,) = disk.open().messages("order").tail(0)
    return entered("order", entry, entry.added[0], first=0, at_ms=0, since_ms=0)


def test_filters_that_are_too_long_together_are_evaluated_apart(
    disk: Disk, segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was accepted when its subscription began: nobody else's may make it fail later."""
    filters = [f"id IN ({','.join(str(number) for number in range(first, first + 550))})" for first in (1, 1_001, 2_001, 3_001)]
    made: list[int] = []
    real = Program.__init__

    def counted(self: Program, wanted: tuple[Wanted, ...], columns: pa.Schema) -> None:
        real(self, wanted, columns)
        made.append(len(wanted))

    monkeypatch.setattr(Program, "__init__", counted)
    request = TraitRequest(queue=disk.definitions.queues["WORK"], filters=frozenset(filters))
    found = FileTraits(disk.store).traits(segment, [request])["WORK"].matches
    assert [len(found[text]) for text in filters] == [3, 0, 0, 0]
    assert made
    assert max(made) < 4


@pytest.mark.parametrize("text", ["nn > 1", "id > 1e", "id > 'a'", "lower(" * 60 + "item" + ")" * 60 + " = 'a'"])
def test_a_filter_that_is_refused_now_is_named(disk: Disk, segment: Segment, text: str) -> None:
    """What was accepted by another version is in the log for ever."""
    traits = FileTraits(disk.store)
    queue = replace(disk.definitions.queues["WORK"], filter=text)
    with pytest.raises(JournalError, match=r"^\[EXPRESSION_UNUSABLE\] The filter expression .* accepted before"):
        traits.traits(segment, [TraitRequest(queue=queue)])
    with pytest.raises(JournalError, match="EXPRESSION_UNUSABLE"):
        traits.matches([segment], text, ROWS, columns=queue.columns)


@pytest.mark.parametrize(
    "rows",
    [
        {"id": ["a", "b", "c"], "item": ["x"] * 3, "topic": ["ORDERS"] * 3},
        {"id": [[1], [2], [3]], "item": ["x"] * 3, "topic": ["ORDERS"] * 3},
        {"id": [1, 2, 3], "item": ["x"] * 3},
        {"id": [1, 2, 3], "topic": [1, 2, 3]},
    ],
)
def test_a_file_with_other_columns_is_named(disk: Disk, segment: Segment, rows: dict[str, list[object]]) -> None:
    pq.write_table(pa.table(rows), Path(disk.store.messages_uri("order")) / segment.path)
    queue = replace(disk.definitions.queues["WORK"], filter="id > 1")
    with pytest.raises(JournalError, match=r"MESSAGE_FILE_CORRUPT.*its columns are not those of the message type"):
        FileTraits(disk.store).traits(replace(segment, topic_max="RETURNS"), [TraitRequest(queue=queue)])
