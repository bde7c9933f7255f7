"""The table for OpenTelemetry: collected samples, sent to a collector now and then (extra `otel`).

It asks to be configured by the standard environment variables; without them nothing is imported.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from spark_queue import tracing
from spark_queue.clock import SystemClock
from spark_queue.core.state.log_history import Histogram
from spark_queue.metrics.samples import Family, Sample
from spark_queue.metrics.table import MetricKind

_LOG = logging.getLogger(__name__)

#: Time between two exports, in milliseconds, unless OTEL_METRIC_EXPORT_INTERVAL says otherwise.
INTERVAL_MS = 60_000

#: Units as UCUM writes them; the counted things stand in braces.
_UNITS = {"seconds": "s", "bytes": "By", "": "1"}


def exporter() -> Any:
    """Return the exporter to the place that the environment names; None where it names none, or the extra is missing."""
    if not tracing.is_configured("METRICS"):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError as missing:
        tracing.tell_missing(missing.name)
        return None
    return OTLPMetricExporter()


def push(families: Callable[[], Sequence[Family]], to: Any, *, ended: threading.Event | None = None) -> threading.Thread:
    """Send metrics now and then, from a thread that ends with this process, or by `ended`."""
    end = ended or threading.Event()
    interval_s = _interval_ms() / 1_000
    begun_ms = SystemClock().wall_ms()

    def send_until_ended() -> None:
        while not end.wait(interval_s):
            try:
                to.export(to_otlp(families(), begun_ms=begun_ms, now_ms=SystemClock().wall_ms()))
            except Exception:  # noqa: BLE001  # A collector's trouble is none of the coordinator's.
                _LOG.exception("Metrics could not be sent.")

    thread = threading.Thread(target=send_until_ended, name="otlp", daemon=True)
    thread.start()
    return thread


def _interval_ms() -> int:
    """Return the time between two exports; as OpenTelemetry's specification says, a value of no meaning counts as unset."""
    said = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip()
    if not said:
        return INTERVAL_MS
    if said.isascii() and said.isdecimal() and int(said):
        return int(said)
    _LOG.warning("OTEL_METRIC_EXPORT_INTERVAL is %r, which is no number of milliseconds: it is %d.", said[:100], INTERVAL_MS)
    return INTERVAL_MS


def to_otlp(families: Iterable[Family], *, begun_ms: int, now_ms: int) -> Any:
    """Return metrics as OpenTelemetry's SDK holds them."""
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    scope = InstrumentationScope("spark_queue", tracing.own_version())
    times = {"start_time_unix_nano": begun_ms * 1_000_000, "time_unix_nano": now_ms * 1_000_000}
    metrics = [_metric(export, family, times) for family in families]
    scoped = export.ScopeMetrics(scope=scope, metrics=metrics, schema_url="")
    return export.MetricsData([export.ResourceMetrics(resource=tracing.resource(), scope_metrics=[scoped], schema_url="")])


def _metric(export: Any, family: Family, times: dict[str, int]) -> Any:
    metric = family.metric
    points = [_point(export, dict(zip(metric.labels, each.labels, strict=True)), each, times) for each in family.samples]
    cumulative = export.AggregationTemporality.CUMULATIVE
    if metric.kind is MetricKind.HISTOGRAM:
        data = export.Histogram(data_points=points, aggregation_temporality=cumulative)
    elif metric.kind is MetricKind.COUNTER:
        data = export.Sum(data_points=points, aggregation_temporality=cumulative, is_monotonic=True)
    else:
        data = export.Gauge(data_points=points)
    unit = _UNITS.get(metric.unit, f"{{{metric.unit}}}")
    # A converter to Prometheus's form adds the suffix of counters.
    return export.Metric(name=metric.name.removesuffix("_total"), description=metric.help, unit=unit, data=data)


def _point(export: Any, attributes: dict[str, str], sample: Sample, times: dict[str, int]) -> Any:
    value = sample.value
    if not isinstance(value, Histogram):
        return export.NumberDataPoint(attributes=attributes, value=value, **times)
    return export.HistogramDataPoint(
        attributes=attributes, count=sum(value.counts), sum=value.total, bucket_counts=value.counts, explicit_bounds=value.bounds,
        # Nobody keeps the least and the greatest, and None is not sent.
        min=None, max=None, **times,
    )  # fmt: skip
