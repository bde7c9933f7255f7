"""Commits as Spark tells of them: the query's own, of whatever sources it has, until it ends (DESIGN 7)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from spark_queue.source.foreach_batch import ProofListener, _JavaListener

OWN, OTHER = UUID(int=1), UUID(int=2)


def listening(committed: Any) -> tuple[Any, list[Any]]:
    """Give a listener to the own query, and who listens at its session."""
    listeners: list[Any] = []
    session: Any = SimpleNamespace(streams=SimpleNamespace(addListener=listeners.append, removeListener=listeners.remove))
    listener: Any = ProofListener(session, committed)
    listener.listen(OWN)
    return listener, listeners


def progress(query: UUID, *ends: str | None) -> Any:
    return SimpleNamespace(progress=SimpleNamespace(id=query, sources=[SimpleNamespace(endOffset=end) for end in ends]))


def test_only_the_offsets_of_the_own_query_are_handed_on() -> None:
    """Another source's offset need not be JSON, nor an object; it names no lease."""
    heard: list[Any] = []
    listener, _ = listening(heard.append)
    listener.onQueryProgress(progress(OTHER, '{"lease": 1}'))
    listener.onQueryProgress(progress(OWN, "7", "not JSON", None, '{"lease": 2}'))
    assert heard == [{}, {}, {}, {"lease": 2}]


def test_proof_that_fails_harms_neither_the_query_nor_the_other_sources(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    def committed(offset: Any) -> None:
        heard.append(offset)
        raise OSError("nobody there")

    listener, _ = listening(committed)
    listener.onQueryProgress(progress(OWN, '{"lease": 1}', '{"lease": 2}'))
    assert heard == [{"lease": 1}, {"lease": 2}]
    assert "nobody there" in caplog.text


def test_query_is_listened_to_once_until_it_ends_and_again_when_it_restarts() -> None:
    listener, listeners = listening(lambda _offset: None)
    listener.listen(OWN)
    assert listeners == [listener]
    listener.onQueryTerminated(SimpleNamespace(id=OTHER))
    assert listeners == [listener]
    listener.onQueryTerminated(SimpleNamespace(id=OWN))
    assert listeners == []
    listener.listen(OWN)
    assert listeners == [listener]


def test_events_of_the_jvm_are_heard_without_a_copy_of_all_that_is_in_them() -> None:
    """What pyspark makes of an event costs a fifth of a second; two calls tell that it is another query's."""
    heard: list[Any] = []
    listener, listeners = listening(heard.append)
    asked: list[str] = []

    def event(query: UUID, *ends: str) -> Any:
        def sources() -> list[Any]:
            asked.append("sources")
            return [SimpleNamespace(endOffset=lambda end=end: end) for end in ends]

        found = SimpleNamespace(id=lambda: SimpleNamespace(toString=lambda: str(query)), sources=sources)
        return SimpleNamespace(progress=lambda: found, id=found.id)

    java = _JavaListener(listener)
    java.onQueryStarted(event(OWN))
    java.onQueryIdle(event(OWN))
    java.onQueryProgress(event(OTHER, '{"lease": 1}'))
    assert (heard, asked) == ([], [])
    java.onQueryProgress(event(OWN, "7", '{"lease": 2}'))
    assert heard == [{}, {"lease": 2}]
    java.onQueryTerminated(event(OTHER))
    assert listeners == [listener]
    java.onQueryTerminated(event(OWN))
    assert listeners == []
