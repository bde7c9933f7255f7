"""What the coordinator would answer to a command: its own engine, on the journal as it is now, and nobody commits the records."""

from __future__ import annotations

from spark_queue.core.commands import AnyCommand
from spark_queue.core.deciding.engine import Engine
from spark_queue.core.replies import CoreReply, LeasedRows
from spark_queue.journal.expressions import check_command
from spark_queue.journal.layout import Store
from spark_queue.journal.open import open_journal
from spark_queue.views import state_at


def answer_dry(store: Store, command: AnyCommand) -> CoreReply:
    """Return the answer to a command without doing what it says; starts nothing and changes nothing.

    Parameters
    ----------
    store
        Where the journal is.
    command
        Not one of a planner, which may wait, and asks for rows.

    Raises
    ------
    SparkQueueError
        The refusal.
    """
    moment = state_at(open_journal(store))
    check_command(moment.state, command)
    reply = Engine(moment.state).decide(command, now_ms=moment.now_ms)
    if reply is None or isinstance(reply, LeasedRows):
        raise AssertionError("only planners wait, and ask for rows")
    return reply
