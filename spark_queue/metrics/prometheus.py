"""The table for Prometheus: its text format, a file for the node exporter, and an address to scrape (extra `metrics`)."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.metrics.histogram import Histogram
from spark_queue.metrics.samples import Family, Sample
from spark_queue.metrics.table import MetricKind
from spark_queue.protocol.http_ports import bracketed, host_headers, reaches_others


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


def listen(
    families: Callable[[], Sequence[Family]],
    *,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    admits: Callable[[bytes, str], bool | None] | None = None,
) -> str:
    """Answer scrapes from a thread until this process ends; returns the address to scrape.

    Parameters
    ----------
    families
        Returns the metrics as they are.
    host, port
        Where to listen. On loopback only names of loopback are answered.
    tls
        The certificate; None for plain HTTP.
    admits
        Returns whether an authorization header, from an address, may ask, and None where too many wrong ones came from there;
        None where everybody may.

    Raises
    ------
    ConfigError
        EXTRA_MISSING.
    CoordinatorError
        ADDRESS_UNUSABLE.
    """
    from spark_queue.metrics.scraping import ScrapeServer

    client = _client()
    registry = _registry(families)
    try:
        server = ScrapeServer(host, port, lambda: (client.generate_latest(registry), content_type()), tls)
    except OSError as failure:
        # An unknown host is one, too.
        raise CoordinatorError("ADDRESS_UNUSABLE", address=f"{host}:{port}", reason=f"{failure.strerror}.") from None
    server.hosts = None if reaches_others(host) else host_headers(host, server.port)
    server.admits = admits
    threading.Thread(target=server.serve_forever, name="scrapes", daemon=True).start()
    return f"{'http' if tls is None else 'https'}://{bracketed(host)}:{server.port}/metrics"


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
