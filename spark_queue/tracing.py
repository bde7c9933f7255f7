"""Spans of OpenTelemetry, with the conventions for messaging: send, receive, process and settle (extra `otel`).

Spans are made where the environment says where to send them (OTEL_EXPORTER_OTLP_ENDPOINT and its like), or where the program has
set up a tracer provider of its own, which is used then. Otherwise this module imports nothing and does nothing.

A message has no header. Where its message type has a column `traceparent STRING`, a publish from Python fills it with the context
of its span, as W3C Trace Context writes it, unless the rows bring the column. The span that processes a batch links to each
context in it: a link, not a parent, since one batch has messages of many publishes.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

#: The column that carries the context of a send.
COLUMN = "traceparent"

#: Most links of one span: more are dropped by OpenTelemetry's own default.
LINKS_LIMIT = 128

_LOG = logging.getLogger(__name__)


def is_configured(signal: str) -> bool:
    """Return whether the environment says where to send a signal: ``METRICS`` or ``TRACES``."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp") != "otlp":
        return False
    return any(os.environ.get(name) for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))


def is_on() -> bool:
    """Return whether spans are made."""
    return _tracer() is not None


def resource() -> Any:
    """Return the description of this process for OpenTelemetry; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say more."""
    from opentelemetry.sdk.resources import Resource

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "spark_queue"}
    return Resource.create(named)


@cache
def tell_missing(module: str | None) -> None:
    """Say once that the environment asks for a package that is not installed; a queue works without it."""
    _LOG.warning("OTEL_ variables are set, but there is no module '%s': pip install 'spark-queue[otel]'", module)


@cache
def own_version() -> str:
    """Return the version of this software, as sent data name it."""
    # Most programs have no spans, and it takes as long to load as all the rest of a receiver's own.
    from importlib.metadata import version

    return version("spark-queue")


@contextmanager
def span(
    operation: str, destination: str, *, links: Iterable[str] = (), begun_ms: int | None = None, **attributes: Any
) -> Iterator[bool]:
    """Make a span around the work, or nothing where no spans are made.

    `links` are contexts as `traceparent` writes them. Further attributes stand below ``messaging``, with ``__`` for a dot; those
    that are None are left out.

    Yields
    ------
    bool
        Whether there is a span.
    """
    tracer = _tracer()
    if tracer is None:
        yield False
        return
    from opentelemetry import trace

    kinds = {"send": trace.SpanKind.PRODUCER, "process": trace.SpanKind.CONSUMER}
    linked = [trace.Link(context) for context in map(_context, links) if context is not None]
    told = {"system": "spark_queue", "operation__name": operation, "operation__type": operation, "destination__name": destination}
    named = {f"messaging.{name.replace('__', '.')}": each for name, each in (told | attributes).items() if each is not None}
    kind, start = kinds.get(operation, trace.SpanKind.CLIENT), None if begun_ms is None else begun_ms * 1_000_000
    name = f"{operation} {destination}"
    with tracer.start_as_current_span(name, kind=kind, links=linked, attributes=named, start_time=start) as made:
        try:
            yield True
        except Exception as failure:
            made.set_attribute("error.type", getattr(failure, "code", type(failure).__qualname__))
            raise


def traceparent() -> str | None:
    """Return the context of the span that is current, as a message carries it; None where there is none.

    A publisher by Spark adds it as a column: ``rows.withColumn("traceparent", lit(traceparent()))``.
    """
    if not is_on():
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(COLUMN)


def _context(text: str) -> Any:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: Mapping[str, str] = {COLUMN: text}
    context = trace.get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()
    # It came in a message, so it may be anything.
    return context if context.is_valid else None


def _tracer() -> Any:
    own = _own_provider() if is_configured("TRACES") else None
    # A program that has no tracer provider has not imported this, or only its API.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        own = trace.get_tracer_provider()
    return None if own is None else own.get_tracer("spark_queue", own_version())


@cache
def _own_provider() -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        tell_missing(missing.name)
        return None
    provider = TracerProvider(resource=resource())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
