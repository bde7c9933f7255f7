"""`LogTail`: a state of some time ago, and every record since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_queue.core import folds
from spark_queue.core.definitions.parsing import parse_recorded
from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.records import DefinitionsApplied, JournalCreated, Kind, Record, refuse_unknown
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.log_history import LogHistory


@dataclass(frozen=True, slots=True)
class LogTail:
    """The records after a snapshot, in order; all records where there is none."""

    records: Sequence[Record]
    #: The fold of everything before, from the snapshot. It is given a source of traits before it is folded on.
    state: JournalState | None = None
    #: The history of everything before, from the same snapshot.
    history: LogHistory | None = None

    @property
    def journal_id(self) -> str | None:
        """Id of the journal; None when the log does not begin as one does."""
        if self.state is not None:
            return self.state.journal_id
        return next(
            (record.body_as(JournalCreated).journal for record in self.records if record.kind == Kind.JOURNAL_CREATED), None
        )

    @property
    def claim(self) -> Record | None:
        """The newest claim of a reign; None before the first."""
        found = next((record for record in reversed(self.records) if record.kind == Kind.EPOCH_CLAIMED), None)
        if found is None and self.state is not None and self.state.claim is not None:
            return Record(body=self.state.claim, epoch=self.state.epoch)
        return found

    @property
    def next_record(self) -> int:
        """Number of the record that comes next."""
        return len(self.records) + (0 if self.state is None else self.state.next_record)

    @property
    def last_at_ms(self) -> int:
        """Time of the newest record, in milliseconds since 1970 UTC; 0 when there is none."""
        earlier = 0 if self.state is None else self.state.last_at_ms
        return max([earlier, *(record.at_ms for record in self.records)])

    def refuse_newer(self, path: str) -> None:
        """Refuse records that only newer software can fold, before anything is written."""
        for record in self.records:
            refuse_unknown(record, path=path)
            if record.kind == Kind.DEFINITIONS_APPLIED:
                parse_recorded(record.body_as(DefinitionsApplied).definitions, path=path)

    def fold(self, traits: TraitSource) -> JournalState:
        """Return the state that the log leads to, with these traits of messages; `state` itself is folded on."""
        state = self.state or JournalState(traits)
        state.traits = traits
        folds.fold_all(state, self.records)
        return state

    def fold_history(self) -> LogHistory:
        """Return the history of the whole log; `history` itself is folded on."""
        history = self.history or LogHistory()
        history.fold(self.records)
        return history
