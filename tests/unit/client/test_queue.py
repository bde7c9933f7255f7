"""`Journal` and `Queue` as users hold them, as far as no coordinator is needed (DESIGN 9)."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from spark_queue import Journal, Queue
from spark_queue.client.delays import to_delay_ms
from spark_queue.client.outcomes import to_outcomes
from spark_queue.errors import CallerError, ConfigError, JournalError
from tests.source_tree import ROOT, product_files
from tests.unit.journal.lost_reply import unanswered

DEFINITIONS = {
    "message_types": {
        "line": {"columns": "item STRING, amount BIGINT", "topics": ["LINES", "^DIRECT_.*$"]},
        "json": {"topics": ["EVENTS"]},
    },
    "queues": {"WORK": {"underlying_topic": "LINES"}},
}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(str(tmp_path / "journal"), DEFINITIONS)


def test_importing_the_package_loads_neither_spark_nor_arrow() -> None:
    code = "import sys, spark_queue; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"pyspark", "pyarrow", "deltalake", "msgspec"}.isdisjoint(loaded)


def test_importing_the_handles_loads_nothing_that_only_some_methods_need() -> None:
    """Programs that consume in plain Python are many, and short."""
    code = "import sys; from spark_queue import Journal, Queue; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    heavy = {"asyncio", "deltalake", "duckdb", "numpy", "pandas", "pyarrow", "pyspark", "re2", "sqlglot"}
    ours = {f"spark_queue.{name}" for name in ("core.engine", "core.state", "expression", "receiver", "source", "views")}
    assert ours <= {file.module for file in product_files()}
    assert (heavy | ours).isdisjoint(loaded)


def test_a_journal_is_a_value_that_opens_nothing() -> None:
    journal = Journal("/nowhere", storage_options={"aws_secret_access_key": "hush"})
    assert pickle.loads(pickle.dumps(journal)) == journal
    assert pickle.loads(pickle.dumps(journal.queue("WORK"))) == Queue(journal, "WORK")
    assert hash(journal) == hash(Journal("/nowhere", storage_options={"aws_secret_access_key": "hush"}))
    assert "hush" not in repr(journal.queue("WORK"))


def test_a_place_without_a_journal_is_refused_when_it_is_used(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"\[NOT_A_JOURNAL\]"):
        Journal(str(tmp_path)).definitions()


def test_create_with_wrong_definitions_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[UNKNOWN_KEY\]"):
        Journal.create(str(tmp_path / "journal"), {"queus": {}})
    assert not (tmp_path / "journal").exists()


@pytest.mark.parametrize(
    "data",
    [
        [{"item": "a", "amount": 1}, {"item": "b", "amount": 2}],
        pa.table({"item": ["a", "b"], "amount": [1, 2]}),
        pa.RecordBatch.from_pylist([{"item": "a", "amount": 1}, {"item": "b", "amount": 2}]),
        pd.DataFrame({"item": ["a", "b"], "amount": [1, 2]}),
    ],
    ids=["dicts", "table", "batch", "pandas"],
)
def test_publish_takes_every_common_kind_of_rows(journal: Journal, data: object) -> None:
    assert journal.publish(data, topic="LINES").rows == 2
    found = journal.view("messages", queue="WORK", columns=["item", "amount"]).to_pylist()
    assert found == [{"item": "a", "amount": 1}, {"item": "b", "amount": 2}]


def test_publish_finds_the_message_type_by_the_rows_own_topics(journal: Journal) -> None:
    journal.publish([{"topic": "DIRECT_x", "amount": 1}, {"topic": "LINES", "amount": 2}])
    assert journal.view("messages", queue="WORK", columns=["amount", "bookmark"]).to_pylist() == [{"amount": 2, "bookmark": 1}]


def test_publish_expires_after_is_a_duration(journal: Journal) -> None:
    journal.publish([{"amount": 1}], topic="LINES", expires_after="1h")
    (row,) = journal.view("messages", queue="WORK").to_pylist()
    assert (row["expires_at"] - row["published_at"]).total_seconds() == 3_600
    with pytest.raises(ConfigError, match=r"\[BAD_VALUE\]"):
        journal.publish([{"amount": 1}], topic="LINES", expires_after="60")


def test_what_is_published_with_a_delay_waits_for_its_end(journal: Journal) -> None:
    """R128: by each way to publish; a delay that is none is refused by name, and nothing is published."""
    journal.publish([{"amount": 1}], topic="LINES", deliver_after="1h")
    with journal.publisher("p") as publisher:
        publisher.publish([{"amount": 2}], topic="LINES", deliver_after="2h")
        publisher.publish([{"amount": 3}], topic="LINES")
    with pytest.raises(ConfigError, match=r"\[BAD_VALUE\] 'deliver_after'"):
        journal.publish([{"amount": 4}], topic="LINES", deliver_after="60")
    rows = journal.view("messages", queue="WORK").to_pylist()
    waits = [row["due_at"] and round((row["due_at"] - row["published_at"]).total_seconds() / 3_600, 2) for row in rows]
    assert list(zip([row["state"] for row in rows], waits, strict=True)) == [("delayed", 1), ("delayed", 2), ("available", None)]
    assert "published with a delay (deliver_after)" in str(journal.queue("WORK").explain(0))


def test_a_publisher_counts_on_from_its_last_sequence(journal: Journal) -> None:
    """R91, R93: one answer tells the highest sequence that is in the log."""
    with journal.publisher("p") as publisher:
        before = publisher.last_sequence
        assert before is None
        publisher.publish([{"amount": 1}, {"amount": 2}], topic="LINES")
        assert publisher.last_sequence == 2
    with journal.publisher("p") as publisher:
        assert publisher.last_sequence == 2
        done = publisher.publish([{"amount": 2}, {"amount": 3}], topic="LINES", first_sequence=3)
        assert (done.rows, done.duplicates, publisher.last_sequence) == (2, 0, 4)


def test_a_publisher_may_count_from_0(journal: Journal) -> None:
    """R93: 0 is a sequence as any other, and not the same as none."""
    with journal.publisher("p") as publisher:
        publisher.publish([], topic="LINES")
        before = publisher.last_sequence
        assert before is None
        publisher.publish([{"amount": 1}], topic="LINES", first_sequence=0)
        assert publisher.last_sequence == 0
        publisher.publish([], topic="LINES")
        assert publisher.last_sequence == 0
        publisher.publish([{"amount": 2}], topic="LINES")
        assert publisher.last_sequence == 1


def test_a_repeated_batch_of_a_publisher_is_dropped_and_counted(journal: Journal) -> None:
    """R95."""
    with journal.publisher("p") as publisher:
        publisher.publish([{"amount": 1}, {"amount": 2}], topic="LINES", first_sequence=1)
        again = publisher.publish([{"amount": 1}, {"amount": 2}], topic="LINES", first_sequence=1)
    assert (again.rows, again.duplicates) == (0, 2)
    assert len(journal.view("messages", queue="WORK", columns=["bookmark"])) == 2


def test_a_publisher_counts_on_only_when_it_knows_what_arrived(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """R94: new rows under the numbers of a publish whose reply was lost would be dropped as its repeat."""

    with journal.publisher("p") as publisher:
        with unanswered(monkeypatch):
            publisher.publish([{"amount": 1}], topic="LINES")
        with pytest.raises(CallerError, match=r"SEQUENCE_MISSING.*the same rows with first_sequence=1.*open the publisher again"):
            publisher.publish([{"amount": 2}], topic="LINES")
        assert publisher.publish([{"amount": 1}], topic="LINES", first_sequence=1).duplicates == 1
        assert publisher.publish([{"amount": 2}], topic="LINES").rows == 1
        with unanswered(monkeypatch):
            publisher.publish([{"amount": 3}], topic="LINES")
    with publisher:
        # Opened again, it has looked.
        assert publisher.last_sequence == 3
        assert publisher.publish([{"amount": 4}], topic="LINES").rows == 1


def test_the_older_of_two_publishers_of_one_name_is_refused(journal: Journal) -> None:
    """R98: the newer one goes on."""
    with journal.publisher("p") as older, journal.publisher("p") as newer:
        newer.publish([{"amount": 1}], topic="LINES")
        with pytest.raises(CallerError, match=r"\[PUBLISHER_NAME_IN_USE\]"):
            older.publish([{"amount": 2}], topic="LINES")
        assert newer.publish([{"amount": 3}], topic="LINES").rows == 1


def test_a_publisher_that_is_not_open_says_how_to_open_it(journal: Journal) -> None:
    with pytest.raises(CallerError, match="`with` statement"):
        journal.publisher("p").publish([{"amount": 1}], topic="LINES")


def test_a_first_sequence_without_a_publisher_is_refused(journal: Journal) -> None:
    with pytest.raises(ConfigError, match="publisher"):
        journal.publish([{"amount": 1}], topic="LINES", first_sequence=1)


def test_apply_lists_changes_by_key_and_changes_nothing_in_a_dry_run(journal: Journal) -> None:
    wanted = {**DEFINITIONS, "queues": {"WORK": {"underlying_topic": "LINES", "lease_period": "5s"}, "LINES": {}}}
    changes = [str(change) for change in journal.apply(wanted, dry_run=True)]
    assert changes == ["change [queues.WORK] lease_period: '60s' -> '5s'", "add [queues.LINES]"]
    assert list(journal.definitions().queues) == ["WORK"]
    assert [str(change) for change in journal.apply({**DEFINITIONS, "queues": {}}, dry_run=True, remove=["WORK"])] == [
        "remove [queues.WORK]"
    ]
    assert [str(change) for change in journal.apply(DEFINITIONS, dry_run=True, reset=["WORK"])] == ["reset [queues.WORK]"]


def test_apply_lets_a_queue_go_only_when_it_is_named(journal: Journal) -> None:
    journal.publish([{"amount": 1}] * 3, topic="LINES")
    without = {**DEFINITIONS, "queues": {}}
    for named, dry_run in (([], False), (["LINES"], False), ([], True)):
        with pytest.raises(ConfigError, match=r"\[DEFINITION_IN_USE\].*3 messages.*remove=\['WORK'\], or --remove WORK\."):
            journal.apply(without, remove=named, dry_run=dry_run)
    assert list(journal.definitions().queues) == ["WORK"]


def test_queue_status_is_a_table_in_a_notebook(journal: Journal) -> None:
    journal.publish([{"amount": 1}], topic="LINES")
    status = journal.queue("WORK").status()
    assert (status.available, status.queue_depth) == (1, 1)
    assert "<td>WORK</td>" in status._repr_html_()


@pytest.mark.parametrize(
    "rows",
    [
        [1, 2, 5],
        [{"bookmark": 1}, {"bookmark": 2}, {"bookmark": 5}],
        pa.table({"bookmark": [1, 2, 5]}),
        pd.DataFrame({"bookmark": [1, 2, 5]}),
    ],
    ids=["bookmarks", "dicts", "table", "pandas"],
)
def test_settle_takes_rows_of_every_common_kind(rows: object) -> None:
    (said,) = to_outcomes("WORK", rows, "expire")
    assert (said.lease, said.outcome, said.ranges) == (None, "expire", ((1, 3), (5, 6)))


def test_settle_speaks_for_each_lease_that_the_rows_came_under() -> None:
    rows = pa.table({"bookmark": [1, 2, 5], "lease": [7, 7, 8], "outcome": ["cancel", "cancel", "expire"]})
    found = [(said.lease, said.outcome, said.ranges) for said in to_outcomes("WORK", rows, "acknowledge")]
    assert found == [(7, "cancel", ((1, 3),)), (8, "expire", ((5, 6),))]


@pytest.mark.parametrize("arguments", [{}, {"rows": [1], "where": "amount > 3"}])
def test_settle_wants_either_rows_or_a_filter(journal: Journal, arguments: dict[str, Any]) -> None:
    with pytest.raises(CallerError, match=r"\[OUTCOME_INVALID\].*rows"):
        journal.queue("WORK").settle(**arguments)


@pytest.mark.parametrize("retry_after", ["30s", timedelta(seconds=30)])
def test_settle_lets_cancelled_rows_wait_that_name_no_time_of_their_own(retry_after: str | timedelta) -> None:
    (said,) = to_outcomes("WORK", [1, 2], "cancel", to_delay_ms(retry_after, where="settle"))
    assert (said.outcome, said.ranges, said.retry_after_ms) == ("cancel", ((1, 3),), 30_000)
    (said,) = to_outcomes(
        "WORK", pa.table({"bookmark": [1], "retry_after": [5.0]}), "cancel", to_delay_ms(retry_after, where="settle")
    )
    assert said.retry_after_ms == 5_000
    with pytest.raises(CallerError, match=r"\[OUTCOME_INVALID\].*'cancel' only"):
        list(to_outcomes("WORK", [1], "acknowledge", to_delay_ms(retry_after, where="settle")))


def test_settle_refuses_a_delay_that_is_no_duration(journal: Journal) -> None:
    with pytest.raises(ConfigError, match=r"\[BAD_VALUE\] 'retry_after' in settle is 'soon'"):
        journal.queue("WORK").settle(where="amount > 3", outcome="cancel", retry_after="soon")


def test_a_dry_run_tells_what_would_be_done_and_does_nothing(journal: Journal) -> None:
    journal.publish([{"amount": amount} for amount in range(6)], topic="LINES")
    work, before = journal.queue("WORK"), journal.view("history").num_rows
    assert work.purge(dry_run=True).purged == 6
    assert work.purge("amount > 3", dry_run=True).purged == 2
    assert work.settle(where="amount < 3", outcome="expire", dry_run=True).expired == 3
    assert work.settle([0, 1], dry_run=True).acknowledged == 2
    with pytest.raises(CallerError, match=r"\[UNKNOWN_BOOKMARK\].*7.*Nothing was settled\. Name only rows that were read there\."):
        work.settle([7], dry_run=True)
    with pytest.raises(ConfigError, match=r"\[EXPRESSION_INVALID\]"):
        work.purge("amuont > 3", dry_run=True)
    assert (work.status().available, journal.view("history").num_rows) == (6, before)
    assert not (Path(journal.path) / "coordinator.json").exists()


def test_settle_of_rows_without_bookmarks_is_refused() -> None:
    with pytest.raises(CallerError, match=r"\[OUTCOME_INVALID\]"):
        list(to_outcomes("WORK", [{"bookmrak": 1}], "acknowledge"))
