"""A query that runs, as Spark's JVM has it: pyspark has no way of its own to a query of another session."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def running_query(session: SparkSession, query_id: str) -> Any:
    """Return the query of an id, whichever session started it; None where it does not run."""
    # Python's own context is gone where Spark was stopped, and this is not.
    java: Any = session._jsparkSession  # noqa: SLF001 - as said above.
    jvm: Any = session._jvm  # noqa: SLF001 - as said above.
    return java.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query_id))
