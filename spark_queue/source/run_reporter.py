"""Reports of a batch function's runs to the coordinator: start, outcomes, failure, proof."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from spark_queue import tracing
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.core import commands, replies
from spark_queue.errors import CallerError, LeaseError, SparkQueueError
from spark_queue.journal.reader import open_reader
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.settings.types import EXPLICIT
from spark_queue.source.offsets import QueueOffset

_log = logging.getLogger(__name__)

#: A proof that takes longer is left to the planner.
PROOF_TIMEOUT_S = 5.0


class RunReporter:
    """Reports the runs of one subscription, one at a time; holds a connection."""

    def __init__(self, store: Store, *, endpoint: Endpoint, queue: str, subscription: str) -> None:
        #: The journal that the batches come from.
        self.journal_id = journal_id = open_reader(store).journal_id
        self._client = CoordinatorClient(store, journal_id, endpoint=endpoint)
        # A proof is worth no start of a coordinator: the planner's next one brings it too.
        self._prover = CoordinatorClient(store, journal_id, endpoint=endpoint, start=False)
        self._who: dict[str, Any] = {"queue": queue, "subscription": subscription}
        self._offset = QueueOffset(journal=journal_id, queue=queue, subscription=subscription)
        #: The run that ended last and is not known to be proven.
        self._unproven: replies.Run | None = None

    def start(self, *, sink: bool = False) -> replies.RunStarted:
        """Report the start of a run, and whether it appends to a sink; returns the run, and whether its batch is a barrier."""
        self._unproven = None
        started = cast(replies.RunStarted, self.say(commands.StartRun, sink=sink))
        if started.ack_mode == EXPLICIT:
            raise CallerError(
                "ACK_MODE_MISMATCH",
                **self._who,
                ack_mode=EXPLICIT,
                what="foreach_batch",
                needed="auto",
                next_step="Leave option ackMode out, or pass fn to foreachBatch itself and settle rows with queue.settle.",
            )
        return started

    def say(self, command: Callable[..., commands.AnyCommand], **fields: Any) -> Any:
        """Send another command about a run of the subscription, or of another one of the queue; returns the reply."""
        return self._client.call(command(**{**self._who, **fields}))

    def nudge(self, message_type: str, version: int | None) -> None:
        """Tell the coordinator of a publish, at a version of its log where that is known."""
        self._prover.nudge(message_type, version)

    def end(
        self,
        run: replies.Run,
        outcomes: tuple[commands.OutcomeRows, ...] = (),
        *,
        settle: bool = False,
        error: str | None = None,
        stopped: bool = False,
    ) -> None:
        """Report the outcomes of a run; or its error, or its stop, by which its whole batch goes back."""
        said: dict[str, Any] = {"outcomes": outcomes, "settle": settle, "error": error, "stopped": stopped}
        command = commands.EndRun(**self._who, run=run, **said, cancel=error is not None or stopped)
        self._client.call(command)
        self._unproven = run

    def await_proof(self, run: replies.Run) -> None:
        """Note that a run has ended of which its sink says all that there is to say."""
        self._unproven = run

    def fail(self, run: replies.Run, error: str) -> None:
        """Report the failure of a run; where the report fails, too, the user must still see fn's own exception."""
        self._try_to_end(commands.EndRun(**self._who, run=run, error=error))

    def stop(self, run: replies.Run) -> None:
        """Report the stop of a run from outside, which is held against no message."""
        self._try_to_end(commands.EndRun(**self._who, run=run, stopped=True))

    def _try_to_end(self, command: commands.EndRun) -> None:
        try:
            self._client.call(command)
        except SparkQueueError as reason:
            _log.warning("the end of a batch was not reported, so its lease ends by itself: %s", reason)

    def prove(self, offset: Mapping[str, Any]) -> None:
        """Report Spark's commit of the batch of an offset, if it is the one that ended last.

        A newer run has the older one proven: its lease was granted for the proof.
        """
        run = self._unproven
        if run is None or not run.lease or not self._is_of(run, offset):
            return
        subscription = self._who["subscription"]
        with tracing.span("settle", self._who["queue"], destination__subscription__name=subscription, spark_queue__lease=run.lease):
            self._prover.call(commands.Prove(**self._who, run=run), timeout_s=PROOF_TIMEOUT_S)
        # Asked from the listener's thread: meanwhile a newer run may have ended, whose proof is still to come.
        if self._unproven is run:
            self._unproven = None

    def _is_of(self, run: replies.Run, offset: Mapping[str, Any]) -> bool:
        try:
            return self._offset.check(offset).lease == run.lease
        except LeaseError:
            # Another source of the same query.
            return False
