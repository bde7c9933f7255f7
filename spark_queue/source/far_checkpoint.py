"""A warning of a checkpoint that costs each batch more than its table: Spark writes two files of its own there (DESIGN 19)."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from spark_queue.source.checkpoint_place import FAR, is_far
from spark_queue.source.running_query import running_query

_log = logging.getLogger(__name__)


def warn_of_far_checkpoint(session: SparkSession, query_id: str) -> None:
    """Warn where the checkpoint of a query that appends with its acknowledgements is on an object store."""
    try:
        location = checkpoint_of(session, query_id)
    except Exception as reason:  # noqa: BLE001 - it asks for what Spark's vendors may have changed.
        _log.info("it is unknown where the checkpoint of query %s is: %s", query_id, reason)
        return
    if is_far(location):
        _log.warning(FAR, location)


def checkpoint_of(session: SparkSession, query_id: str) -> str:
    """Return the checkpoint of a running query, as Spark has resolved it; what Spark does not know raises as it comes."""
    return str(running_query(session, query_id).resolvedCheckpointRoot())
