"""What is said beside the rows: names and numbers that cannot be are refused by name, before anything is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_queue import Journal
from spark_queue.errors import ConfigError

ROWS = [{"x": 1}, {"x": 2}]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    types = {"t": {"columns": "x BIGINT", "topics": ["T"]}}
    return Journal.create(str(tmp_path / "journal"), {"message_types": types, "queues": {"Q": {"underlying_topic": "T"}}})


@pytest.mark.parametrize("first", [2**63 - 1, 2**63, -(2**63) - 1, pytest.param(10**5000, id="long"), "7", 1.5, True, float("nan")])
def test_first_sequence_that_numbers_no_rows_is_refused(journal: Journal, first: Any) -> None:
    with pytest.raises(ConfigError, match=r"\[BAD_VALUE\] 'first_sequence' in publish"):
        journal.publish(ROWS, topic="T", publisher="p", first_sequence=first)
    assert journal.view("messages", queue="Q").num_rows == 0


@pytest.mark.parametrize("first", [2**63 - 2, -(2**63), np.int32(7)])
def test_first_sequence_may_be_any_other(journal: Journal, first: Any) -> None:
    assert journal.publish(ROWS, topic="T", publisher="p", first_sequence=first).persisted_sequence == first + 1


def test_numbers_that_are_used_up_are_refused(journal: Journal) -> None:
    with journal.publisher("p") as publisher:
        publisher.publish(ROWS, topic="T", first_sequence=2**63 - 2)
        with pytest.raises(ConfigError, match="BAD_VALUE"):
            publisher.publish(ROWS, topic="T")
    assert journal.view("messages", queue="Q").num_rows == 2


@pytest.mark.parametrize("name", [5, b"p", ["p"], "", "a b"])
def test_publisher_name_that_is_none_is_refused(journal: Journal, name: Any) -> None:
    with pytest.raises(ConfigError, match="NAME_INVALID"):
        journal.publish(ROWS, topic="T", publisher=name, first_sequence=1)
    with pytest.raises(ConfigError, match="NAME_INVALID"), journal.publisher(name):
        pass
    assert journal.view("messages", queue="Q").num_rows == 0
