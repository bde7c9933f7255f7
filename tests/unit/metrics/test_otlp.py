"""What a collector of OpenTelemetry is told is what Prometheus is told, and nobody pays for it who did not ask."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from spark_queue import Journal, tracing
from spark_queue.core.state.log_history import Histogram
from spark_queue.metrics import otlp
from spark_queue.metrics.samples import collect, figures_at, observation
from tests.source_tree import ROOT
from tests.unit.metrics.otel_collector import collector
from tests.unit.views.views_world import START_MS, ViewsWorld

WAIT_S = 30.0

#: Does what users and coordinators do, and says what was loaded that is for metrics and spans alone.
WORK = """
import runpy, sys
from spark_queue import Journal
from spark_queue.coordinator.process import start_metrics
from spark_queue.protocol.host import StartOptions
runpy.run_module("spark_queue.coordinator", run_name="loaded")
journal = Journal(sys.argv[1])
journal.publish([{"value": "1"}], topic="T")
assert start_metrics(StartOptions(path=journal.path, storage_options={}, journal_id="j")) == (None, None)
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"opentelemetry", "prometheus_client"}))
print(*sorted(name for name in sys.modules if name.startswith(("spark_queue.metrics", "spark_queue.coordinator.metrics"))))
"""


@pytest.fixture(autouse=True)
def _unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "METRICS_ENDPOINT", "TRACES_ENDPOINT"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    tracing.tell_missing.cache_clear()


def test_metrics_arrive_at_a_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = ViewsWorld(tmp_path)
    world.publish(1, 2, 3)
    world.attach()
    world.next(2, now_ms=START_MS + 3_000)
    families = collect([observation(world.journal.store, figures_at(world.moment(START_MS + 9_000)))])
    ended = threading.Event()
    with collector() as (address, sent):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
        thread = otlp.push(lambda: families, otlp.exporter(), ended=ended)
        path, body = sent.get(timeout=WAIT_S)
        ended.set()
        thread.join(WAIT_S)
    assert path == "/v1/metrics"
    [resource] = ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"] == "spark_queue"
    told = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert told.keys() == {family.metric.name.removesuffix("_total") for family in families}
    for family in families:
        _assert_told(told[family.metric.name.removesuffix("_total")], family)


def _assert_told(metric: Any, family: Any) -> None:
    assert metric.description == family.metric.help
    kind = {"gauge": "gauge", "counter": "sum", "histogram": "histogram"}[family.metric.kind]
    assert metric.WhichOneof("data") == kind
    points = {tuple(each.value.string_value for each in point.attributes): point for point in getattr(metric, kind).data_points}
    for sample in family.samples:
        point = points[sample.labels]
        if isinstance(sample.value, Histogram):
            assert (list(point.bucket_counts), point.sum) == (sample.value.counts, sample.value.total)
            assert (list(point.explicit_bounds), point.HasField("min")) == (list(sample.value.bounds), False)
        else:
            assert point.as_double == sample.value
    if kind == "sum":
        assert metric.sum.is_monotonic


@pytest.mark.parametrize(
    ("environment", "is_on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_METRICS_EXPORTER": "none"}, False),
    ],
)
def test_the_environment_says_whether_metrics_are_sent(
    environment: dict[str, str], is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    assert (otlp.exporter() is not None) == is_on


def test_what_is_asked_for_and_not_installed_is_said_once_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    assert (otlp.exporter(), otlp.exporter()) == (None, None)
    [record] = caplog.records
    assert "pip install 'spark-queue[otel]'" in record.getMessage()


def test_nobody_pays_who_did_not_ask(tmp_path: Path) -> None:
    journal = Journal.create(str(tmp_path / "j"), {"message_types": {"json": {"topics": ["T"]}}})
    done = subprocess.run([sys.executable, "-c", WORK, journal.path], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["", "spark_queue.metrics spark_queue.metrics.figures"]


@pytest.mark.parametrize(
    ("said", "interval_ms"),
    [("", otlp.INTERVAL_MS), (" ", otlp.INTERVAL_MS), ("250", 250), ("0", None), ("60000.0", None), ("-5", None)],
)
def test_an_interval_of_no_meaning_counts_as_unset_and_is_warned_of(
    said: str, interval_ms: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As OpenTelemetry's specification has it; no coordinator stays away for that."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", said)
    assert otlp._interval_ms() == (interval_ms or otlp.INTERVAL_MS)
    assert ("OTEL_METRIC_EXPORT_INTERVAL" in caplog.text) == (interval_ms is None)
