"""The table of metrics keeps Prometheus's conventions, and has each figure of a queue's status."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields

import pytest

from spark_queue.core.replies import QueueStatus
from spark_queue.metrics.table import LABELS, METRICS, Metric, MetricKind, Scope

#: Figures of a status that are no numbers: they are told as labels, or not at all.
TEXTS = {"queue", "message_type", "semantics", "longest_batch_subscription", "table"}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_and_units_are_as_prometheus_has_them(metric: Metric) -> None:
    assert re.fullmatch(r"sparkqueue(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    # Base units stand in the name.
    for unit in ("seconds", "bytes"):
        assert (metric.unit == unit) == (unit in metric.name.removesuffix("_total").split("_"))
    assert not re.search(r"_(ms|milliseconds|minutes|kb|mb)(_|$)", metric.name)
    assert metric.help.endswith(".")
    assert metric.kind is not MetricKind.HISTOGRAM or metric.unit == "seconds"


def test_each_name_stands_once() -> None:
    assert [name for name, count in Counter(metric.name for metric in METRICS).items() if count > 1] == []


def test_every_number_of_a_status_is_a_metric_of_its_own() -> None:
    told = Counter(metric.figure for metric in METRICS if metric.scope is Scope.QUEUE)
    assert {
        entry.name: told[entry.name] for entry in fields(QueueStatus) if entry.name not in TEXTS and told[entry.name] != 1
    } == {}


def test_series_of_a_queue_have_journal_and_queue() -> None:
    assert LABELS[Scope.QUEUE] == ("journal", "queue")
    assert {metric.labels[:2] for metric in METRICS if metric.scope is Scope.QUEUE} == {("journal", "queue")}
