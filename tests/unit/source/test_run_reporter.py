"""What batches say, from two threads: Spark's, which runs them, and the listener's, which hears of commits (DESIGN 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_queue.core import commands, replies
from spark_queue.errors import CallerError, CoordinatorError, SparkQueueError
from spark_queue.protocol.endpoint import LOCAL, Endpoint
from spark_queue.source.offsets import QueueOffset
from spark_queue.source.run_reporter import RunReporter
from tests.unit.journal.journal_on_disk import Disk


def test_proof_of_a_batch_leaves_the_next_one_to_be_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the proof of one batch is on its way the next may end, and at `query.stop()` nobody else would prove that one."""
    disk = Disk(tmp_path / "journal")
    reporter = RunReporter(disk.store, endpoint=LOCAL, queue="WORK", subscription="s")
    runs = [replies.Run(incarnation=(1, 1), lease=lease) for lease in (1, 2)]
    proven: list[int] = []

    def answer(request: Any, **_: Any) -> replies.Done:
        if isinstance(request, commands.Prove):
            proven.append(request.run.lease)
            if request.run == runs[0]:
                reporter.end(runs[1], (), settle=False)
        return replies.Done()

    for client in (reporter._client, reporter._prover):
        monkeypatch.setattr(client, "call", answer)
    reporter.end(runs[0], (), settle=False)
    for lease in (1, 2):
        reporter.prove(QueueOffset(journal=disk.journal_id, queue="WORK", subscription="s", lease=lease).to_json())
    assert proven == [1, 2]


class Heard:
    """A reporter whose two connections note what they hear."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ack_mode: str = "auto") -> None:
        self.disk = Disk(tmp_path / "journal")
        self.reporter = RunReporter(self.disk.store, endpoint=LOCAL, queue="WORK", subscription="s")
        self.run = replies.Run(incarnation=(1, 1), lease=3)
        self.requests: list[Any] = []
        self.refusal: SparkQueueError | None = None
        self.ack_mode = ack_mode
        for client in (self.reporter._client, self.reporter._prover):
            assert client._journal_id == self.disk.journal_id
            monkeypatch.setattr(client, "call", self.answer)

    def answer(self, request: Any, **_: Any) -> Any:
        assert (request.queue, request.subscription) == ("WORK", "s")
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(request)
        if isinstance(request, commands.StartRun):
            return replies.RunStarted(run=self.run, ack_mode=self.ack_mode, is_barrier=False, messages=1)
        return replies.Done()

    def proven(self, *, lease: int = 3, **other: str) -> list[int]:
        """Tell of a commit, and give the leases that were proven."""
        names = {"journal": self.disk.journal_id, "queue": "WORK", "subscription": "s", **other}
        self.reporter.prove(QueueOffset(**names, lease=lease).to_json())
        return [request.run.lease for request in self.requests if isinstance(request, commands.Prove)]


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Heard:
    return Heard(tmp_path, monkeypatch)


def test_each_end_of_a_run_says_which_and_how(heard: Heard) -> None:
    outcomes = (commands.OutcomeRows(outcome="expire", ranges=((0, 1),)),)
    run = heard.reporter.start().run
    heard.reporter.end(run, outcomes, settle=True)
    heard.reporter.fail(run, "no")
    heard.reporter.end(run, error="no")
    heard.reporter.stop(run)
    heard.reporter.end(run, stopped=True)
    said = [(each.run, each.outcomes, each.settle, each.error, each.stopped, each.cancel) for each in heard.requests[1:]]
    assert said == [
        (heard.run, outcomes, True, None, False, False),
        (heard.run, (), False, "no", False, False),
        (heard.run, (), False, "no", False, True),
        (heard.run, (), False, None, True, False),
        (heard.run, (), False, None, True, True),
    ]


def test_rows_that_are_settled_by_hand_have_no_batch_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CallerError, match="ACK_MODE_MISMATCH"):
        Heard(tmp_path, monkeypatch, ack_mode="explicit").reporter.start()


def test_failure_that_nobody_hears_does_not_hide_what_fn_raised(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    heard.refusal = CoordinatorError("COORDINATOR_UNAVAILABLE", path="j", reason="gone.", log="l")
    heard.reporter.fail(heard.run, "no")
    heard.reporter.stop(heard.run)
    assert caplog.text.count("its lease ends by itself") == 2
    # Spark would commit the batch, and its proof acknowledge what goes back.
    with pytest.raises(CoordinatorError):
        heard.reporter.end(heard.run, error="no")
    with pytest.raises(CoordinatorError):
        heard.reporter.end(heard.run, stopped=True)
    with pytest.raises(CoordinatorError):
        heard.reporter.end(heard.run, (), settle=False)


def test_commit_proves_the_run_that_ended_last_and_only_once(heard: Heard) -> None:
    assert heard.proven() == []
    heard.reporter.end(heard.run, (), settle=False)
    assert heard.proven(lease=2) == []
    assert heard.proven(subscription="t") == []
    assert heard.proven(queue="OTHER") == []
    assert heard.proven() == [3]
    assert heard.proven() == [3]


def test_batch_that_was_given_back_is_proven_too_and_one_that_failed_is_not(heard: Heard) -> None:
    """Spark takes the first for done, and runs the second again."""
    heard.reporter.fail(heard.run, "no")
    assert heard.proven() == []
    heard.reporter.end(heard.run, error="no")
    assert heard.proven() == [3]


def test_run_that_has_begun_again_is_not_proven_by_an_older_commit(heard: Heard) -> None:
    heard.reporter.end(heard.run, (), settle=False)
    heard.reporter.start()
    assert heard.proven() == []


def test_run_of_a_batch_without_a_lease_is_not_proven(heard: Heard) -> None:
    heard.reporter.end(replies.Run(incarnation=(1, 1), lease=0), (), settle=False)
    assert heard.proven(lease=0) == []


def test_proof_goes_where_the_runs_go_and_starts_no_coordinator(tmp_path: Path) -> None:
    """The planner's next call brings it too."""
    reporter = RunReporter(Disk(tmp_path / "journal").store, endpoint=Endpoint("grpc://far:1"), queue="WORK", subscription="s")
    clients = (reporter._client, reporter._prover)
    assert [(client._endpoint.addresses, client._start) for client in clients] == [("grpc://far:1", True), ("grpc://far:1", False)]
