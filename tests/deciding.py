"""Commands for an engine that a test holds itself."""

from __future__ import annotations

from typing import Any

from spark_queue.core import commands, folds
from spark_queue.core.engine import Engine
from spark_queue.core.records import Kind
from spark_queue.core.replies import Granted
from spark_queue.core.state.lease import Lease
from tests.records import record_of


def decide(engine: Engine, command: commands.AnyCommand, *, now_ms: int) -> Any:
    """Return the reply to a command, as whatever its caller expects."""
    return engine.decide(command, now_ms=now_ms)


def claim(engine: Engine, *, epoch: int, now_ms: int, host: str = "here", address: str = "memory", pid: int = 1) -> None:
    """Begin a reign, as an election does: record its claim. The epoch must be one above the newest."""
    detail = {"host": host, "address": address, "pid": pid}
    at_ms = max(now_ms, engine.state.last_at_ms)
    record = record_of(kind=Kind.EPOCH_CLAIMED, record=engine.state.next_record, epoch=epoch, at_ms=at_ms, detail=detail)
    folds.fold(engine.state, record)
    engine._pending.append(record)
    engine._reign_began_at_ms = now_ms


def started(
    engine: Engine, queue: str, subscription: str, *, max_backlog: int, ack_mode: str = "auto", filter_sql: str | None = None,
    now_ms: int,
) -> dict[str, Any]:  # fmt: skip
    """Start a planner, with its first call; return the fields by which its commands name it."""
    drawn = decide(engine, commands.DrawIncarnation(queue=queue, subscription=subscription), now_ms=now_ms)
    planner: dict[str, Any] = {"queue": queue, "subscription": subscription, "incarnation": drawn.incarnation}
    wishes: dict[str, Any] = {"ack_mode": ack_mode, "max_backlog": max_backlog, "filter": filter_sql}
    engine.decide(commands.Attach(**planner, call=1, **wishes), now_ms=now_ms)
    return planner


def leased(engine: Engine, command: commands.Next, *, now_ms: int) -> Lease | None:
    """Return the lease that a `Next` is granted; None when nothing is there."""
    reply = engine.decide(command, now_ms=now_ms)
    if reply is None:
        return None
    assert isinstance(reply, Granted)
    return engine.state.ledger(command.queue).leases[reply.lease]


def due_by_all(engine: Engine) -> int | None:
    """Return when something is due, by asking every queue."""
    return min((due_at_ms for due_at_ms in map(engine._due_ms, engine.state.queues) if due_at_ms is not None), default=None)
