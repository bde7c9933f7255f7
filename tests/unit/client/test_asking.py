"""Asking a coordinator once, and what a coordinator process is started with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import spark_queue
from spark_queue.client import coordinator_client
from spark_queue.client.launcher import environment
from spark_queue.core import commands, replies
from spark_queue.errors import CoordinatorError
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint

ROOT = str(Path(spark_queue.__file__).parent.parent)


@pytest.mark.parametrize("fails", [False, True])
def test_one_question_keeps_no_connection(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    seen: list[Any] = []

    class Client:
        def __init__(self, *given: object, **options: object) -> None:
            seen.append((*given, options))

        def call(self, request: commands.Pause, *, timeout_s: float) -> replies.Done:
            seen.append((request.queue, timeout_s))
            if fails:
                raise CoordinatorError("COORDINATOR_DEPOSED", epoch=1, path="/j", reason="newer")
            return replies.Done()

        def close(self) -> None:
            seen.append("closed")

    monkeypatch.setattr(coordinator_client, "CoordinatorClient", Client)
    store, pause = Store("/j"), commands.Pause(queue="Q")
    if fails:
        with pytest.raises(CoordinatorError):
            coordinator_client.call_once(store, "J", pause, endpoint=Endpoint("host:1"), timeout_s=5.0)
    else:
        assert coordinator_client.call_once(store, "J", pause, endpoint=Endpoint("host:1"), timeout_s=5.0) == replies.Done()
    assert seen == [(store, "J", {"endpoint": Endpoint("host:1"), "start": True}), ("Q", 5.0), "closed"]


@pytest.mark.parametrize(("known", "paths"), [(None, [ROOT]), ("", [ROOT]), ("/a:/b", [ROOT, "/a", "/b"])])
def test_a_started_process_finds_this_code_and_no_more_than_its_starter(
    monkeypatch: pytest.MonkeyPatch, known: str | None, paths: list[str]
) -> None:
    """An empty entry would be the working directory, whose modules anybody might have put there."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if known is not None:
        monkeypatch.setenv("PYTHONPATH", known)
    assert environment()["PYTHONPATH"].split(os.pathsep) == paths
