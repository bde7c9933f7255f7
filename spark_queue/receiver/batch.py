"""Several messages as an Arrow table, settled as a whole but for exceptions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from spark_queue.core.commands import OutcomeRows
from spark_queue.core.records import Outcome
from spark_queue.receiver.bodies import brought_up
from spark_queue.receiver.message import Message, Settlement, Settles


class MessageBatch:
    """Some messages, handed out together.

    Attributes
    ----------
    messages : tuple of Message
        The messages, which may be settled one by one, too.
    is_barrier : bool
        Whether it is a barrier, which is a batch of its own.
    """

    def __init__(self, receiver: Settles, messages: Sequence[Message]) -> None:
        self._receiver = receiver
        self.messages = tuple(messages)
        self.is_barrier = messages[0].is_barrier
        self._table: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def table(self) -> pa.Table:
        """The messages: their columns, and ``bookmark``, ``lease``, ``delivery_count``, ``cancel_count`` and ``is_barrier``."""
        if self._table is None:
            parts = []
            # The message type may have got columns while its messages came: the newest lease has those of now.
            newest, _ = max(self.messages, key=lambda each: each.lease).place
            for rows, some in groupby((each.place for each in self.messages), key=lambda place: place[0]):
                parts.append(brought_up(rows.table.take(pa.array([row for _, row in some], pa.int64())), newest.table.schema))
            table = pa.concat_tables(parts, promote_options="default")
            for name, kind in (
                ("bookmark", pa.int64()), ("delivery_count", pa.int32()), ("cancel_count", pa.int32()), ("is_barrier", pa.bool_()),
                ("lease", pa.int64()),
            ):  # fmt: skip
                table = table.append_column(name, pa.array([getattr(each, name) for each in self.messages], kind))
            self._table = table
        return self._table

    def settle(self, exceptions: Any = None) -> list[Settlement]:
        """Acknowledge the messages that are not settled yet, but for exceptions.

        Parameters
        ----------
        exceptions
            A table of Arrow or pandas as `Queue.foreach_batch` takes it: ``bookmark``, ``outcome``, and optionally
            ``retry_after`` and ``error``.

        Raises
        ------
        CallerError
            OUTCOME_INVALID for what is wrong with the table; nothing was settled.
        """
        others = {each.bookmark: each for each in self.messages if each.said is None}
        said: list[tuple[Message, str, dict[str, Any]]] = []
        for outcome in () if exceptions is None else self._read(exceptions, others):
            about = {"retry_after_ms": outcome.retry_after_ms, "error": outcome.error}
            rows = (row for first, until in outcome.ranges for row in range(first, until))
            said += [(others.pop(row), outcome.outcome, about) for row in rows]
        for message, named, _ in said:
            message.check_outcome(named)
        said += [(each, Outcome.ACKNOWLEDGE, {}) for each in others.values()]
        return [self._receiver.settle(message, outcome, **about) for message, outcome, about in said]

    def _read(self, exceptions: Any, known: Collection[int]) -> tuple[OutcomeRows, ...]:
        # It loads numpy, which other receivers do without.
        from spark_queue.client.outcome_table import evaluated, invalid, outcome_columns, read_outcomes  # noqa: PLC0415 - as said.

        queue, names = self._receiver.queue, getattr(exceptions, "column_names", None) or list(map(str, exceptions.columns))
        found = read_outcomes(queue, evaluated(queue, exceptions, outcome_columns(queue, names, self.table.column_names)))
        for outcome in found:
            for first, until in outcome.ranges:
                if (stranger := next((row for row in range(first, until) if row not in known), None)) is not None:
                    raise invalid(queue, f"bookmark {stranger} is not in the batch, or is settled.", "Name only rows of the batch.")
        return found
