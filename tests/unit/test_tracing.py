"""Spans of OpenTelemetry: what they are called, what they say, and how a batch is linked to the publishes of its messages."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spark_queue import Journal, tracing
from spark_queue.errors import CallerError
from tests.unit.metrics.otel_collector import collector

DEFINITIONS = {
    "message_types": {
        "traced": {"columns": "item STRING, traceparent STRING", "topics": ["TRACED"]},
        "plain": {"columns": "item STRING", "topics": ["PLAIN"]},
    }
}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(str(tmp_path / "journal"), DEFINITIONS)


def column(journal: Journal) -> list[str | None]:
    """Return what each published message carries."""
    rows = pa.concat_tables([pq.read_table(path) for path in sorted(Path(journal.path).glob("messages/traced/*.parquet"))])
    found: list[str | None] = rows["traceparent"].to_pylist()
    return found


def test_a_publish_is_a_send(spans: InMemorySpanExporter, journal: Journal) -> None:
    journal.publish([{"item": "kettle"}, {"item": "lamp"}], topic="PLAIN")
    [span] = spans.get_finished_spans()
    assert (span.name, span.kind) == ("send PLAIN", trace.SpanKind.PRODUCER)
    assert dict(span.attributes or {}) == {
        "messaging.system": "spark_queue",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "PLAIN",
        "messaging.batch.message_count": 2,
    }


def test_messages_carry_the_context_of_their_send_where_they_have_a_column_for_it(
    spans: InMemorySpanExporter, journal: Journal
) -> None:
    journal.publish([{"item": "kettle"}, {"item": "lamp"}], topic="TRACED")
    [span] = spans.get_finished_spans()
    # What follows are flags.
    expected = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-"
    assert [str(each)[: len(expected)] for each in column(journal)] == [expected, expected]


def test_a_context_that_rows_bring_stays(spans: InMemorySpanExporter, journal: Journal) -> None:
    brought = f"00-{'a' * 32}-{'b' * 16}-01"
    journal.publish([{"item": "kettle", "traceparent": brought}], topic="TRACED")
    assert column(journal) == [brought]


def test_without_spans_messages_carry_nothing(journal: Journal) -> None:
    assert not tracing.is_on()
    journal.publish([{"item": "kettle"}], topic="TRACED")
    assert column(journal) == [None]
    assert tracing.traceparent() is None


def test_what_processes_a_batch_is_linked_to_the_sends_and_is_no_child_of_them(spans: InMemorySpanExporter) -> None:
    sent = []
    for _ in range(2):
        with tracing.span("send", "ORDERS"):
            sent.append(str(tracing.traceparent()))
    of_strangers = ["", "nonsense", f"00-{'0' * 32}-{'b' * 16}-01"]
    with tracing.span(
        "process", "WORK", links=[*sent, *of_strangers], destination__subscription__name="east", spark_queue__lease=7
    ):
        pass
    first, second, process = spans.get_finished_spans()
    assert process.kind is trace.SpanKind.CONSUMER
    assert [link.context.span_id for link in process.links] == [first.context.span_id, second.context.span_id]
    assert process.parent is None
    assert process.context.trace_id not in {first.context.trace_id, second.context.trace_id}
    attributes = dict(process.attributes or {})
    assert attributes["messaging.destination.subscription.name"] == "east"
    assert attributes["messaging.spark_queue.lease"] == 7


@pytest.mark.parametrize("operation", ["receive", "settle"])
def test_calls_are_those_of_a_client(operation: str, spans: InMemorySpanExporter) -> None:
    with tracing.span(operation, "WORK", begun_ms=1_700_000_000_000, spark_queue__lease=7, batch__message_count=None):
        pass
    [span] = spans.get_finished_spans()
    assert (span.attributes or {})["messaging.spark_queue.lease"] == 7
    assert "messaging.batch.message_count" not in (span.attributes or {})
    assert (span.kind, span.start_time) == (trace.SpanKind.CLIENT, 1_700_000_000_000_000_000)


def test_a_failure_is_told_by_its_code(spans: InMemorySpanExporter, journal: Journal) -> None:
    journal.publish([{"item": "kettle"}], topic="PLAIN", publisher="p", first_sequence=5)
    with pytest.raises(CallerError), tracing.span("settle", "WORK"):
        raise CallerError("RECORD_UNKNOWN", what="Record", value=9, reason="not there", first=0, last=1)
    failed = spans.get_finished_spans()[-1]
    assert (failed.attributes or {})["error.type"] == "RECORD_UNKNOWN"
    assert failed.status.status_code is trace.StatusCode.ERROR


def test_spans_go_where_the_environment_says(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as (address, sent):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{address}/v1/traces")
        tracing._own_provider.cache_clear()
        try:
            journal.publish([{"item": "kettle"}], topic="PLAIN")
            tracing._own_provider().shutdown()
            path, body = sent.get(timeout=30)
        finally:
            tracing._own_provider.cache_clear()
    [resource] = ExportTraceServiceRequest.FromString(body).resource_spans
    assert (path, [span.name for span in resource.scope_spans[0].spans]) == ("/v1/traces", ["send PLAIN"])
