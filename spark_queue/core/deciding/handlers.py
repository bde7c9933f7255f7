"""Who decides about each command, what a repeat of it is answered, and what follows from each record: the engine's tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spark_queue.core import commands
from spark_queue.core.deciding import batch_runs, delivery, manual_settlement, pausing, redriving
from spark_queue.core.deciding.expression_failures import count_failed_expressions
from spark_queue.core.deciding.instances import peer_changes, transfers
from spark_queue.core.deciding.instances.peer_changes import PeersWork
from spark_queue.core.deciding.instances.replicating import end_letters_elsewhere
from spark_queue.core.deciding.removal import end_letters, remove_reached
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Emit, Record
from spark_queue.core.replies import CoreReply, Done, LeasedRows
from spark_queue.core.state.journal_state import JournalState

#: Who decides about each command of a queue. A handler gives None where nothing is there yet.
HANDLERS: Mapping[type[commands.Command], Callable[[UnitOfWork, Any], CoreReply | LeasedRows | None]] = {
    commands.DrawIncarnation: delivery.draw_incarnation,
    commands.Attach: delivery.attach,
    commands.Next: delivery.next_lease,
    commands.Rows: delivery.lease_rows,
    commands.Renew: delivery.renew,
    commands.Leave: delivery.leave,
    commands.Unsubscribe: delivery.unsubscribe,
    commands.StartRun: batch_runs.start_run,
    commands.EndRun: batch_runs.end_run,
    commands.Prove: batch_runs.prove_run,
    commands.Settle: manual_settlement.settle,
    commands.SettleWhere: manual_settlement.settle_where,
    commands.Purge: manual_settlement.purge,
    commands.FindDeadLetters: redriving.find_dead_letters,
    commands.Redrive: redriving.redrive,
    commands.Pause: pausing.pause,
    commands.Unpause: pausing.unpause,
    commands.ProxiedTransfer: transfers.switch,
}

#: Who decides about each command about the instances of a journal.
PEER_HANDLERS: Mapping[type[commands.Command], Callable[[PeersWork, Any], CoreReply]] = {
    commands.SkipLost: peer_changes.skip_lost,
    commands.ResetPeer: peer_changes.reset,
    commands.ForgetPeer: peer_changes.forget,
    commands.DrainTo: peer_changes.drain,
    commands.Restored: peer_changes.restored,
}

#: What would take effect a second time when its caller asks again after a lost reply, and what is answered then. Planners' calls
#: are numbered, and what batches say is about one lease.
DONE_BEFORE: Mapping[type[commands.Command], Callable[[JournalState, Any], CoreReply]] = {
    commands.Settle: manual_settlement.settled_before,
    commands.SettleWhere: manual_settlement.settled_where_before,
    commands.Purge: manual_settlement.purged_before,
    commands.Redrive: redriving.redriven_before,
    **{
        command: lambda _state, _command: Done()
        for command in (
            *(commands.Apply, commands.Unsubscribe, commands.Pause, commands.Unpause, commands.Revive, commands.ProxiedTransfer),
            *(commands.SkipLost, commands.ResetPeer, commands.Restored),
        )
    },
}

#: What follows from a record at once, in this order, beside its fold (which also fills the active part of a queue, `depth`):
#: dead letters that were settled end in their source, what was acknowledged before its turn leaves, failed expressions are
#: counted. Each records what it does, from which the same follows. Barriers come last, once a command is done.
CONSEQUENCES: Sequence[Callable[[JournalState, Record, Emit], None]] = (
    end_letters, end_letters_elsewhere, remove_reached, count_failed_expressions,
)  # fmt: skip
