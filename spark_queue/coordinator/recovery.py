"""Recovery, which is the normal start: everything that a reign knows is the fold of the log (DESIGN 3.5)."""

from __future__ import annotations

from spark_queue import allocator
from spark_queue.coordinator.election import Reign
from spark_queue.coordinator.inbox import Inbox
from spark_queue.coordinator.loop import Loop
from spark_queue.coordinator.pulling import PeerPullers
from spark_queue.core import folds
from spark_queue.core.engine import Engine
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.entering import PreparedTraits, Sequencer
from spark_queue.ports import JournalPort


def recover(reign: Reign, journal: JournalPort, inbox: Inbox, *, pullers: PeerPullers, ends_idle: bool) -> Loop:
    """Fold the log, and make the first commit of the reign; the loop that is given can serve."""
    traits = PreparedTraits(journal.traits)
    engine = Engine(_fold(reign, traits))
    entrance = Sequencer(journal, engine, traits)
    entrance.recover()
    loop = Loop(
        journal=journal,
        engine=engine,
        entrance=entrance,
        inbox=inbox,
        clock=reign.clock,
        epoch=reign.epoch,
        ends_idle=ends_idle,
        pullers=pullers,
    )
    # The take-over is durable, and messages published meanwhile have entered, before the first call is heard.
    loop.step([])
    allocator.return_free_memory()
    return loop


def take_over(reign: Reign, traits: PreparedTraits) -> Engine:
    """Fold the log and begin the reign; its records are still to be committed."""
    engine = Engine(_fold(reign, traits))
    engine.take_over(now_ms=reign.clock.now_ms())
    return engine


def _fold(reign: Reign, traits: PreparedTraits) -> JournalState:
    state = reign.state or JournalState(traits)
    state.traits = traits
    state.foresee(reign.records)
    while reign.records:
        # One by one, so that each is freed once it is folded.
        folds.fold(state, reign.records.popleft())
    state.foresee(())
    return state
