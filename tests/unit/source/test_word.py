"""A report that nobody waits for arrives all the same, unless it is refused."""

from __future__ import annotations

import pytest

from spark_queue.errors import CoordinatorError, LeaseError
from spark_queue.source import word
from spark_queue.source.word import Word


def test_a_word_that_does_not_arrive_is_said_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(word, "PAUSE_S", 0.001)
    said: list[int] = []

    def say() -> None:
        said.append(len(said))
        if len(said) < 3:
            raise CoordinatorError("COORDINATOR_UNAVAILABLE", path="p", reason="nobody answered.", log="l")

    Word(say, "batch that has landed").wait()
    assert said == [0, 1, 2]
    assert caplog.text.count("does not know yet of a batch that has landed") == 2


def test_a_word_that_is_refused_is_not_said_again(caplog: pytest.LogCaptureFixture) -> None:
    said: list[int] = []

    def say() -> None:
        said.append(1)
        raise LeaseError("SINK_FENCED", attempt=1, subscription="s", queue="Q")

    Word(say, "batch that has landed").wait()
    assert said == [1]
    assert "refuses the word of a batch that has landed" in caplog.text
