"""Settling and purging by filter with a real coordinator process: Spark SQL over the bodies of messages (R37, DESIGN 9)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.errors import SparkQueueError
from tests.integration.source_journal import end_coordinator
from tests.unit.cli.sparkq import Terminal

DEFINITIONS = {
    "message_types": {"line": {"columns": "item STRING, amount BIGINT", "topics": ["LINES"]}},
    "queues": {"LINES": {}, "OTHER": {"underlying_topic": "LINES"}},
}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal.create(str(tmp_path / "journal"), DEFINITIONS)
    journal.publish([{"item": "pear" if amount % 2 else None, "amount": amount} for amount in range(10)], topic="LINES")
    yield journal
    end_coordinator(journal)


def amounts(journal: Journal, queue: str) -> list[Any]:
    return journal.view("messages", queue=queue, columns=["amount"]).column("amount").to_pylist()


def test_settle_and_purge_find_messages_by_their_bodies(journal: Journal) -> None:
    queue = journal.queue("LINES")
    assert queue.settle(where="amount < 3").acknowledged == 3
    assert queue.settle(where="item = 'pear' and amount > 6", outcome="expire").expired == 2
    assert queue.settle(where="amount < 3").acknowledged == 0
    assert amounts(journal, "LINES") == [3, 4, 5, 6, 8]
    done = queue.purge("item is null")
    assert (done.purged, done.leased) == (3, 0)
    assert amounts(journal, "LINES") == [3, 5]
    assert amounts(journal, "OTHER") == list(range(10))


def test_the_command_line_settles_by_filter(journal: Journal, terminal: Terminal) -> None:
    found = terminal("settle", journal.path, "LINES", "--where", "amount >= 8", "--outcome", "expire", "--json")
    assert {name: count for name, count in found.json.items() if count} == {"queue": "LINES", "expired": 2}
    assert terminal("purge", journal.path, "LINES", "--where", "amount = 0").out.startswith("Queue 'LINES': 1 message was purged")


def test_a_filter_that_cannot_be_evaluated_is_refused_and_changes_nothing(journal: Journal) -> None:
    queue = journal.queue("LINES")
    for where in ("amuont < 3", "amount <", "rand() < 0.5"):
        with pytest.raises(SparkQueueError, match="EXPRESSION"):
            queue.settle(where=where)
        with pytest.raises(SparkQueueError, match="EXPRESSION"):
            queue.purge(where)
    assert amounts(journal, "LINES") == list(range(10))
