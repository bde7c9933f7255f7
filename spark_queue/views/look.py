"""Looking at a journal from outside its coordinator: fold the control log, then count on from the message logs."""

from __future__ import annotations

from datetime import datetime

from spark_queue.clock import SystemClock
from spark_queue.coordinator.entering import Entrance, PreparedFacts
from spark_queue.core.engine import Engine
from spark_queue.journal.open import DeltaJournal
from spark_queue.views.moment import Moment, moment_of


def look(journal: DeltaJournal, as_of: datetime | int | None = None) -> Moment:
    """Give the journal at a moment; starts nothing and changes nothing.

    Looking at now, what was published and has not entered yet counts as entered, by the coordinator's own rule: whether one
    happens to run makes no difference (DESIGN 15.15).

    Parameters
    ----------
    journal
        An open journal.
    as_of
        An aware time or a record number; None for now.

    Raises
    ------
    CallerError
        RECORD_UNKNOWN or TIMESTAMP_AMBIGUOUS.
    """
    facts = PreparedFacts(journal.facts)
    moment = moment_of(journal.records(), facts, as_of=as_of, now_ms=SystemClock().wall_ms())
    if as_of is None:
        entrance = Entrance(journal, Engine(moment.state), facts)
        for message_type in moment.state.message_types:
            while entrance.admit(message_type, now_ms=moment.now_ms):
                continue
    return moment
