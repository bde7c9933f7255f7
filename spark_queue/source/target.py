"""The place that a read of the data source is about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The queue or topic of a read, as the journal said when it was loaded; a running query keeps it."""

    journal_id: str
    #: Empty for a view.
    message_type: str = ""
    #: The topic whose messages are read; empty for a queue or a view.
    topic: str = ""
    #: The table that its message type follows; None where its messages are published.
    table: str | None = None
    #: The columns of the message type, as Spark DDL; None where the reader has chosen some.
    columns: str | None = None
