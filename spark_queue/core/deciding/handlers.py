"""The engine's tables: the handler of each command, the answer to a repeat of it, and the consequences of each record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_queue.core import commands
from spark_queue.core.deciding import batch_runs, delivery, manual_settlement, pausing, receiving, redriving, sinks
from spark_queue.core.deciding.instances import replicating, transfers
from spark_queue.core.deciding.instances.replicating import end_letters_elsewhere
from spark_queue.core.deciding.isolation import count_failed_expressions
from spark_queue.core.deciding.removal import end_letters, remove_reached
from spark_queue.core.records import Emit, Record
from spark_queue.core.replies import CoreReply, Done, LeasedRows
from spark_queue.core.state.journal_state import JournalState


@dataclass(frozen=True, slots=True)
class Handling:
    """How a command is decided, and how a repeat of one that took effect is answered."""

    #: Gets a `UnitOfWork`, or for the instances of a journal `PeersWork`; gives None where nothing is there yet. None where the
    #: engine itself acts, on the journal as a whole.
    handler: Callable[[Any, Any], CoreReply | LeasedRows | None] | None
    #: The answer to a caller that asks again after a lost reply; None where asking twice acts once: planners' calls are
    #: numbered, and calls of batches are about one lease.
    done_before: Callable[[JournalState, Any], CoreReply] | None = None


def done(_state: JournalState, _command: commands.Command) -> Done:
    """Answer a repeat of a command that is answered with `Done`."""
    return Done()


#: The handling of each command.
HANDLERS: Mapping[type[commands.Command], Handling] = {
    commands.DrawIncarnation: Handling(delivery.draw_incarnation),
    commands.Attach: Handling(delivery.attach),
    commands.Next: Handling(delivery.next_lease),
    commands.Rows: Handling(delivery.lease_rows),
    commands.RowsTaken: Handling(delivery.rows_taken),
    commands.Renew: Handling(delivery.renew),
    commands.Leave: Handling(delivery.leave),
    commands.SettleHeld: Handling(receiving.settle_held, receiving.settled_held_before),
    commands.Unsubscribe: Handling(delivery.unsubscribe, done),
    commands.StartRun: Handling(batch_runs.start_run),
    commands.EndRun: Handling(batch_runs.end_run),
    commands.Prove: Handling(batch_runs.prove_run),
    commands.Prepare: Handling(sinks.prepare),
    commands.Landed: Handling(sinks.landed),
    commands.Fenced: Handling(sinks.fenced),
    commands.SinkUnreadable: Handling(sinks.sink_unreadable),
    commands.FindAttempts: Handling(sinks.find_attempts),
    commands.Settle: Handling(manual_settlement.settle, manual_settlement.settled_before),
    commands.SettleWhere: Handling(manual_settlement.settle_where, manual_settlement.settled_where_before),
    commands.Purge: Handling(manual_settlement.purge, manual_settlement.purged_before),
    commands.FindDeadLetters: Handling(redriving.find_dead_letters),
    commands.Redrive: Handling(redriving.redrive, redriving.redriven_before),
    commands.Pause: Handling(pausing.pause, done),
    commands.Unpause: Handling(pausing.unpause, done),
    commands.ProxiedTransfer: Handling(transfers.switch, done),
    commands.Apply: Handling(None, done),
    commands.Revive: Handling(None, done),
    commands.Follow: Handling(None, done),
    commands.GiveUpFiles: Handling(None, done),
    commands.ForgetLost: Handling(None, done),
    commands.SkipLost: Handling(replicating.skip_or_reset, done),
    commands.ResetPeer: Handling(replicating.skip_or_reset, done),
    commands.ForgetPeer: Handling(replicating.forget),
    commands.DrainTo: Handling(replicating.drain),
    commands.ReturnWithout: Handling(replicating.return_without, done),
    commands.Restored: Handling(replicating.restored, done),
}

#: The consequences of a record, in this order, beside its fold (which also fills the active part of a queue, `depth`):
#: dead letters that were settled end in their source, messages acknowledged before their turn leave, failed expressions are
#: counted. Each makes records, which have the same consequences. Barriers come last, once a command is done.
CONSEQUENCES: Sequence[Callable[[JournalState, Record, Emit], None]] = (
    end_letters, end_letters_elsewhere, remove_reached, count_failed_expressions,
)  # fmt: skip
