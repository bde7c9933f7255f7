"""The table for Prometheus: its text format, a file for the node exporter, and an address to scrape (extra `metrics`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.metrics.histogram import Histogram
from spark_queue.metrics.samples import Family, Sample
from spark_queue.metrics.table import MetricKind


class _Collector:
    """What prometheus_client asks for metrics."""

    def __init__(self, families: Callable[[], Sequence[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        return (_family(family) for family in self._families())


def render(families: Iterable[Family]) -> bytes:
    """Return metrics in the text format of Prometheus.

    Raises
    ------
    ConfigError
        EXTRA_MISSING.
    """
    found = list(families)
    return bytes(_client().generate_latest(_registry(lambda: found)))


def content_type() -> str:
    """Return the content type of what `render` returns."""
    return str(_client().CONTENT_TYPE_PLAIN_0_0_4)


def write(families: Iterable[Family], path: Path) -> None:
    """Replace a file by metrics, at once: whoever reads it meets the old ones or the new ones.

    Raises
    ------
    ConfigError
        EXTRA_MISSING.
    OSError
        The file cannot be written.
    """
    found = list(families)
    _client().write_to_textfile(str(path), _registry(lambda: found))


def listen(families: Callable[[], Sequence[Family]], *, host: str, port: int) -> str:
    """Answer scrapes from a thread until this process ends; returns the address to scrape.

    Raises
    ------
    ConfigError
        EXTRA_MISSING.
    CoordinatorError
        ADDRESS_UNUSABLE.
    """
    client = _client()
    try:
        server, _ = client.start_http_server(port, addr=host, registry=_registry(families))
    except OSError as failure:
        # An unknown host is one, too.
        raise CoordinatorError("ADDRESS_UNUSABLE", address=f"{host}:{port}", reason=f"{failure.strerror}.") from None
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{server.server_port}/metrics"


def _registry(families: Callable[[], Sequence[Family]]) -> Any:
    registry = _client().CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    return registry


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError:
        raise ConfigError("EXTRA_MISSING", what="Telling metrics", package="prometheus-client", extra="metrics") from None
    return prometheus_client


def _family(family: Family) -> Any:
    from prometheus_client import core

    metric = family.metric
    made: Any
    if metric.kind is MetricKind.HISTOGRAM:
        made = core.HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for sample in family.samples:
            assert isinstance(sample.value, Histogram)
            made.add_metric(sample.labels, _buckets(sample.value), sample.value.total)
        return made
    kind = core.CounterMetricFamily if metric.kind is MetricKind.COUNTER else core.GaugeMetricFamily
    made = kind(metric.name, metric.help, labels=metric.labels)
    for sample in family.samples:
        made.add_metric(sample.labels, _plain(sample))
    return made


def _plain(sample: Sample) -> float:
    assert not isinstance(sample.value, Histogram)
    return sample.value


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    count, found = 0, []
    for bound, observed in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        count += observed
        found.append(("+Inf" if bound == float("inf") else str(float(bound)), float(count)))
    return found
