"""What a write is, and what its tasks hand to its commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from spark_queue.journal.staging import StagedFile, StagingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """What a write is, as far as the options say; picklable."""

    journal_id: str
    coordinator: str | None
    #: How files of each message type are staged.
    plans: Mapping[str, StagingPlan]
    #: The type of all rows; None where the rows' own topics tell.
    message_type: str | None
    #: The journal's definitions as stored, for those topics; empty where the type is known.
    definitions: Mapping[str, Any]
    publisher: str | None
    sequence_column: str | None
    #: A Delta transaction id and version that the user gave (``txnAppId``, ``txnVersion``).
    transaction: tuple[str, int] | None


class Staged(WriterCommitMessage):
    """What one task staged."""

    def __init__(self, *, message_type: str | None, file: StagedFile | None, query_id: str | None) -> None:
        self.message_type = message_type
        #: None for a task without rows.
        self.file = file
        #: The query whose micro-batch it is; only tasks are told.
        self.query_id = query_id
