"""The job of a write's tasks, and their reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from spark_queue.journal.staging import StagedFile, StagingPlan
    from spark_queue.protocol.endpoint import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """A write, as its options describe it; picklable."""

    journal_id: str
    endpoint: Endpoint
    #: How files of each message type are staged.
    plans: Mapping[str, StagingPlan]
    #: The type of all rows; None where it follows from the rows' own topics.
    message_type: str | None
    #: The journal's definitions as stored, for those topics; empty where the type is known.
    definitions: Mapping[str, Any]
    publisher: str | None
    sequence_column: str | None
    #: The user's ``txnAppId`` and ``txnVersion``.
    txn_app_id: str | None = None
    txn_version: int = 0
    #: Checkpoint of the stream's query, where the driver can read it; and its name, by which Spark's default place has one.
    checkpoint: str | None = None
    query_name: str | None = None


class Staged(WriterCommitMessage):
    """The files that one task staged."""

    def __init__(
        self, *, message_type: str | None, file: StagedFile | None, query_id: str | None, checkpoint: str | None = None
    ) -> None:
        self.message_type = message_type
        #: None for a task without rows.
        self.file = file
        #: The query whose micro-batch it is, which only tasks know.
        self.query_id = query_id
        #: The query's checkpoint, where it is in Spark's default place.
        self.checkpoint = checkpoint
