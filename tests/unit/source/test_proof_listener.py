"""Commits as Spark tells of them: the query's own, of whatever sources it has, until it ends (DESIGN 7)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock
from uuid import UUID

import pytest

from spark_queue.source.proof_listener import ProofListener

OWN, OTHER = UUID(int=1), UUID(int=2)


def listening(committed: Any) -> tuple[ProofListener, list[Any]]:
    """Give a listener to the own query, and who listens at the session that started it."""
    listeners: list[Any] = []
    streams = SimpleNamespace(addListener=listeners.append, removeListener=listeners.remove)
    query = SimpleNamespace(sparkSession=lambda: SimpleNamespace(streams=lambda: streams))
    copy: Any = mock.MagicMock()
    copy._jvm.java.util.UUID.fromString = UUID
    copy._jsparkSession.sharedState().activeStreamingQueries.return_value = {OWN: query}
    copy._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper = lambda listener: listener
    return ProofListener(copy, str(OWN), committed), listeners


def event(query: UUID, *ends: str | None) -> Any:
    """Return an event of the JVM; of another query's, nobody asks what is in it."""

    def sources() -> list[Any]:
        assert query == OWN
        return [SimpleNamespace(endOffset=lambda end=end: end) for end in ends]

    found = SimpleNamespace(id=lambda: SimpleNamespace(toString=lambda: str(query)), sources=sources)
    return SimpleNamespace(progress=lambda: found, id=found.id)


def test_only_the_offsets_of_the_own_query_are_handed_on() -> None:
    """Another source's offset need not be JSON, nor an object; it names no lease."""
    heard: list[Any] = []
    listener, _ = listening(heard.append)
    listener.onQueryStarted(event(OWN))
    listener.onQueryIdle(event(OWN))
    listener.onQueryProgress(event(OTHER, '{"lease": 1}'))
    assert heard == []
    listener.onQueryProgress(event(OWN, "7", "not JSON", None, '{"lease": 2}'))
    assert heard == [{}, {}, {}, {"lease": 2}]


def test_proof_that_fails_harms_neither_the_query_nor_the_other_sources(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    def committed(offset: Any) -> None:
        heard.append(offset)
        raise OSError("nobody there")

    listener, _ = listening(committed)
    listener.onQueryProgress(event(OWN, '{"lease": 1}', '{"lease": 2}'))
    assert heard == [{"lease": 1}, {"lease": 2}]
    assert "nobody there" in caplog.text


def test_a_query_is_listened_to_until_it_ends() -> None:
    listener, listeners = listening(lambda _offset: None)
    assert listeners == [listener]
    listener.onQueryTerminated(event(OTHER))
    assert (listeners, listener.query_id) == ([listener], str(OWN))
    listener.onQueryTerminated(event(OWN))
    assert (listeners, listener.query_id) == ([], None)
