"""What a process may do that was forked from one that had used a journal; real ones are in `integration/test_forks.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_queue import Journal, forks
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.errors import CallerError
from spark_queue.protocol import wire


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks._Use, "process", os.getpid() + 1)


def test_nothing_of_a_store_is_touched(tmp_path: Path, forked: None) -> None:
    with pytest.raises(CallerError, match="JOURNAL_FORKED"):
        Journal.create(str(tmp_path / "shop"))
    assert list(tmp_path.iterdir()) == []


def test_a_client_refuses_before_it_waits_for_a_lock_that_nobody_will_release(tmp_path: Path, forked: None) -> None:
    client = CoordinatorClient(Journal(str(tmp_path)).store, "j")
    assert client._finding.acquire()
    with pytest.raises(CallerError, match="JOURNAL_FORKED"):
        client.call(wire.Stop())


def test_first_use_makes_a_process_the_one_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks._Use, "process", None)
    forks.check_process()
    forks.check_process()
    assert forks._Use.process == os.getpid()


def test_a_panic_about_anything_else_is_left_as_it_is() -> None:
    class PanicException(BaseException):
        pass

    forks.check_panic(PanicException("index out of bounds"))
    forks.check_panic(OSError("fork failed"))
    with pytest.raises(CallerError, match="JOURNAL_FORKED"):
        forks.check_panic(PanicException("The tokio runtime does not support forked processes"))
