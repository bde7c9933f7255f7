"""A dry run of `apply` tries new and changed expressions out on messages of the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.errors import ConfigError
from tests.unit.cli.sparkq import Terminal

TYPES = {"message_types": {"line": {"columns": "item STRING, amount BIGINT", "topics": ["LINES", "RARE", "NONE"]}}}
PLAIN = {**TYPES, "queues": {"WORK": {"underlying_topic": "LINES"}}}


def wanted(**keys: Any) -> dict[str, Any]:
    return {**TYPES, "queues": {"WORK": {"underlying_topic": "LINES", **keys}}}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal.create(str(tmp_path / "journal"), PLAIN)
    journal.publish([{"item": "a", "amount": number} for number in (9, 4, 2)], topic="LINES")
    journal.publish([{"item": "b", "amount": 0}], topic="LINES")
    journal.publish([{"item": "c", "amount": 9}], topic="RARE")
    return journal


def test_a_dry_run_shows_what_a_new_filter_and_priority_select(journal: Journal) -> None:
    changes = journal.apply(wanted(filter="10 / amount > 2", priority="amount"), dry_run=True)
    of_filter, of_priority = changes
    assert of_filter.trial is not None
    assert (of_filter.trial.messages, of_filter.trial.matched, of_filter.trial.failed) == (4, 2, 1)
    assert (of_filter.trial.matched_examples, of_filter.trial.failed_examples) == ((2, 1), (3,))
    assert of_filter.trial.priorities == ((4, 1), (2, 1))
    first, second = str(of_filter).splitlines()
    assert first == "change [queues.WORK] filter: none -> '10 / amount > 2'"
    assert "newest 4 messages: 2 match (such as 2, 1), 1 fail (such as 3), highest priorities 4 (1x), 2 (1x)" in second
    # One trial of a queue is enough.
    assert of_priority.trial is None
    assert journal.definitions().queues["WORK"].filter is None


def test_a_new_queue_is_tried_and_what_touches_no_expression_is_not(journal: Journal) -> None:
    definitions = wanted(max_deliveries=3)
    definitions["queues"] |= {"LATE": {"underlying_topic": "RARE", "barrier": "amount = 9"}, "NONE": {"filter": "amount > 1"}}
    found = {change.where: change.trial for change in journal.apply(definitions, dry_run=True)}
    assert found["[queues.WORK]"] is None
    late = found["[queues.LATE]"]
    assert late is not None
    assert (late.messages, late.matched, late.barriers) == (1, 1, 1)
    assert "1 are barriers" in str(late)
    assert "there are none yet" in str(found["[queues.NONE]"])


def test_the_newest_messages_of_the_topic_are_looked_at_and_no_more(journal: Journal) -> None:
    """Half of them stand in one large file, beside messages of another topic."""
    topics = ["LINES", "RARE"]
    journal.publish([{"item": "x", "amount": number, "topic": topics[number % 2]} for number in range(3_000)])
    journal.publish([{"item": "y", "amount": -1} for _ in range(600)], topic="LINES")
    (change,) = journal.apply(wanted(filter="amount <> 2996"), dry_run=True)
    assert change.trial is not None
    assert (change.trial.messages, change.trial.matched) == (1_000, 999)
    assert change.trial.matched_examples == tuple(range(3_604, 3_599, -1))


def test_the_command_line_shows_trials_and_gives_them_as_json(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sparkq = Terminal(monkeypatch=monkeypatch, capsys=capsys)
    toml = '[message_types.line]\ncolumns = "item STRING, amount BIGINT"\ntopics = ["LINES", "RARE", "NONE"]\n'
    file = tmp_path / "queues.toml"
    file.write_text(toml + '[queues.WORK]\nunderlying_topic = "LINES"\nfilter = "10 / amount > 2"\n')
    answer = sparkq("apply", journal.path, file, "--dry-run")
    assert "tried on the newest 4 messages: 2 match (such as 2, 1), 1 fail (such as 3)\n" in answer.out
    assert "Nothing was changed yet." in answer.out
    (change,) = json.loads(sparkq("apply", journal.path, file, "--dry-run", "--json").out)["changes"]
    assert change["trial"] == {
        "messages": 4, "matched": 2, "matched_examples": [2, 1], "failed": 1, "failed_examples": [3], "barriers": 0,
        "priorities": [],
    }  # fmt: skip


def test_an_expression_that_is_wrong_is_refused_before_it_is_tried(journal: Journal) -> None:
    with pytest.raises(ConfigError, match="EXPRESSION_INVALID"):
        journal.apply(wanted(filter="amuont > 1"), dry_run=True)
