"""Names of tables in a catalog: told from paths, and refused where nobody can tell the location."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from spark_queue.errors import ConfigError
from spark_queue.journal.catalog import is_name, location_of
from tests.source_tree import ROOT

#: Shows that a process without Spark is told so, and does not load it to find that out.
WITHOUT_SPARK = """
import sys, tempfile
from spark_queue import Journal
from spark_queue.errors import ConfigError
try:
    Journal.create(tempfile.mkdtemp() + "/journal", {"message_types": {"orders": {"table": "main.sales.orders"}}, "queues": {}})
except ConfigError as refused:
    print(refused.code, "pyspark" in sys.modules)
"""


@pytest.mark.parametrize("table", ["default.orders", "main.sales.orders", "`my-cat`.`s`.`t`", "a.b.c.d", "queues.toml"])
def test_two_to_four_parts_without_a_slash_are_a_name(table: str) -> None:
    assert is_name(table)


@pytest.mark.parametrize(
    "table", ["orders", "./default.orders", "/lake/a.b", "s3://lake/a.b", "a.b.c.d.e", "a..b", "a b.c", "delta.`/x`"]
)
def test_everything_else_is_a_path(table: str) -> None:
    assert not is_name(table)
    assert location_of(table, where="into") == table


def test_without_a_session_a_name_is_refused_and_the_way_to_the_path_told() -> None:
    with pytest.raises(ConfigError) as refused:
        location_of("main.sales.orders", where="[message_types.orders]")
    assert refused.value.code == "TABLE_NAME_UNKNOWN"
    told = str(refused.value)
    assert "Table 'main.sales.orders' in [message_types.orders]" in told
    assert "no Spark session is active in this process" in told
    assert "`DESCRIBE DETAIL main.sales.orders`" in told
    assert "'./main.sales.orders'" in told


def test_a_process_without_spark_does_not_load_it_for_a_name() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["TABLE_NAME_UNKNOWN", "False"]


class Session:
    """What an active session answers, and the statements that it was given."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, list[str]()

    def sql(self, statement: str) -> Session:
        self.asked.append(statement)
        return self

    def collect(self) -> list[Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.answer]


def active(monkeypatch: pytest.MonkeyPatch, answer: Any) -> Session:
    """Let a session of Spark Connect be the active one, beside classic modules that know none."""
    session = Session(answer)
    for name, found in (("pyspark.sql.session", None), ("pyspark.sql.connect.session", session)):
        made = SimpleNamespace(SparkSession=SimpleNamespace(getActiveSession=lambda found=found: found))
        monkeypatch.setitem(sys.modules, name, made)
    return session


def test_the_active_session_is_asked_with_each_part_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    session = active(monkeypatch, {"format": "delta", "location": "s3a://lake/warehouse/orders"})
    assert location_of("main.`my sales`.orders; DROP", where="into") == "main.`my sales`.orders; DROP"
    assert session.asked == []
    assert location_of("main.`my sales`.orders", where="into") == "s3://lake/warehouse/orders"
    assert session.asked == ["DESCRIBE DETAIL `main`.`my sales`.`orders`"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RuntimeError("[TABLE_OR_VIEW_NOT_FOUND] The table cannot be found.\n  More."), "TABLE_OR_VIEW_NOT_FOUND.*found. More."),
        ({"format": "parquet", "location": "file:/x"}, "knows it as one of format parquet"),
        ({"format": "delta", "location": None}, "knows it as one of format delta"),
    ],
)
def test_what_the_session_does_not_know_as_a_delta_table_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: Any, reason: str
) -> None:
    active(monkeypatch, answer)
    with pytest.raises(ConfigError, match=f"TABLE_NAME_UNKNOWN.*{reason}"):
        location_of("main.sales.orders", where="into")
