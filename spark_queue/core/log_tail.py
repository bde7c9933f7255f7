"""`LogTail`: a state of some time ago, and every record since."""

from __future__ import annotations

from spark_queue.core import folds
from spark_queue.core.definitions.parsing import parse_recorded
from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.records import DefinitionsApplied, JournalCreated, Kind, Record, refuse_unknown
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.log_history import LogHistory


class LogTail(list[Record]):
    """The records after `state`, in order; all of them when there is no state.

    Attributes
    ----------
    state : JournalState or None
        From a snapshot: the fold of everything before. It is given a source of traits before it is folded on.
    history : LogHistory or None
        From the same snapshot: the history of everything before.
    """

    state: JournalState | None = None
    history: LogHistory | None = None

    @property
    def journal_id(self) -> str | None:
        """Id of the journal; None when the log does not begin as one does."""
        if self.state is not None:
            return self.state.journal_id
        return next((record.body_as(JournalCreated).journal for record in self if record.kind == Kind.JOURNAL_CREATED), None)

    @property
    def claim(self) -> Record | None:
        """The newest claim of a reign; None before the first."""
        found = next((record for record in reversed(self) if record.kind == Kind.EPOCH_CLAIMED), None)
        if found is None and self.state is not None and self.state.claim is not None:
            return Record(body=self.state.claim, epoch=self.state.epoch)
        return found

    @property
    def next_record(self) -> int:
        """Number of the record that comes next."""
        return len(self) + (0 if self.state is None else self.state.next_record)

    @property
    def last_at_ms(self) -> int:
        """Time of the newest record, in milliseconds since 1970 UTC; 0 when there is none."""
        earlier = 0 if self.state is None else self.state.last_at_ms
        return max([earlier, *(record.at_ms for record in self)])

    def refuse_newer(self, path: str) -> None:
        """Refuse records that only newer software can fold, before anything is written."""
        for record in self:
            refuse_unknown(record, path=path)
            if record.kind == Kind.DEFINITIONS_APPLIED:
                parse_recorded(record.body_as(DefinitionsApplied).definitions, path=path)

    def fold(self, traits: TraitSource) -> JournalState:
        """Return the state that the log leads to, with these traits of messages; `state` itself is folded on."""
        state = self.state or JournalState(traits)
        state.traits = traits
        folds.fold_all(state, self)
        return state

    def fold_history(self) -> LogHistory:
        """Return the history of the whole log; `history` itself is folded on."""
        history = self.history or LogHistory()
        history.fold(self)
        return history
