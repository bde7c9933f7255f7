"""A lease: the messages that a subscription has in hand, until when. Changed only by `ledger` as it folds records."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyroaring import BitMap64

from spark_queue.core.records import Incarnation
from spark_queue.core.state.attempt import Attempt
from spark_queue.core.state.verdict import Verdict


@dataclass(slots=True, kw_only=True)
class Lease:
    """The latest grant of a subscription, or an older one that still holds rows (explicit mode, and of a receiver).

    Always ``leased ⊆ recoverable ⊆ rows`` until the proof, after which nothing is recoverable.
    """

    number: int
    subscription: str
    #: The rows that the micro-batch reads: as granted, or as the last resume recorded them (P2).
    rows: BitMap64
    #: Still leased.
    leased: BitMap64
    #: Rows that a resume or a late proof may still cover: held, or come back and in no later lease (P2, P5).
    recoverable: BitMap64
    granted_at_ms: int
    #: When it was granted or last resumed; the renewal limit counts from it.
    begun_at_ms: int
    due_at_ms: int
    #: The planner start that it was granted to, or that took it over.
    incarnation: Incarnation
    #: Most messages the grant had asked for.
    limit: int
    #: Whether it is a piece of its subscription's failed batch.
    searches: bool = False
    #: Whether its one message is a barrier, which no lease holds: it is the subscription's until the proof (R71).
    is_barrier: bool = False
    proven: bool = False
    #: Whether it was taken over or resumed since it was granted (P6).
    resumed: bool = False
    #: Whether rows that came back from it were never asked for, and thus are not counted as delivered.
    undelivered: bool = False
    #: Of a receiver: whether a renewal has named it (R138).
    confirmed: bool = False
    #: At-most-once: the planner start that was given the rows.
    handed_to: Incarnation | None = None
    #: At-most-once: whether its period ended before its proof, so that it counts in no backlog and keeps no key (R31).
    lapsed: bool = False
    #: Outcomes of its batch so far, not yet in effect; each row has one.
    staged: dict[Verdict, BitMap64] = field(default_factory=dict)
    #: The error of fn in the last run, if it reported one.
    failure: str | None = None
    #: Whether its last run ended without having failed, and uncommitted as far as is known: that says nothing about its messages.
    stopped: bool = False
    #: Whether its failed or stopped batch goes back with the proof, since it is done for Spark (`on_error="cancel"`).
    gives_back: bool = False
    #: Runs in a row that ended without any report.
    vanished_runs: int = 0
    #: The attempt by which its batch is to stand in a sink, or stands there by now.
    attempt: Attempt | None = None
    #: The newest attempt of its batch that was fenced: the run that prepared it is over.
    fenced: Attempt | None = None
    #: Rows that a resume left out though the same planner start had them before: its run may have read them (R124).
    lost: BitMap64 = field(default_factory=BitMap64)

    @property
    def is_in_doubt(self) -> bool:
        """Whether nobody knows if its batch stands in the sink: nothing may become of its messages (R123)."""
        return self.attempt is not None and not self.attempt.landed

    @property
    def has_landed(self) -> bool:
        """Whether its batch stands in the sink: its messages are settled as prepared, at any end of it (R126)."""
        return self.attempt is not None and self.attempt.landed

    @property
    def is_fenced(self) -> bool:
        """Whether the run that reads it now was fenced: even if Spark commits, its messages stand in no sink (R127)."""
        return self.fenced is not None and self.fenced.incarnation == self.incarnation

    @property
    def is_whole(self) -> bool:
        """Whether its rows may be read as they are: nothing of it went back, or nothing of it can; never one of at most once."""
        return self.is_barrier or self.has_landed or len(self.leased) == len(self.rows)

    @property
    def succeeded(self) -> bool:
        """Whether its batch read something, and nothing failed on it."""
        return bool(self.rows) and self.failure is None and not self.gives_back

    def stage(self, verdict: Verdict, rows: BitMap64) -> None:
        """Note the verdict on rows; an earlier one on them is replaced."""
        for other in list(self.staged):
            self.staged[other] -= rows
            if not self.staged[other]:
                del self.staged[other]
        self.staged[verdict] = self.staged[verdict] | rows if verdict in self.staged else rows.copy()
