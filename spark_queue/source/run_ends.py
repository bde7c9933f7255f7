"""The ends of a run that raised: by a failure of its own, from outside, or with the Spark that ran it (P4, DESIGN 8)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_queue.source.running_query import running_query

_log = logging.getLogger(__name__)

#: The property of Spark's threads that names the query whose batch they run.
QUERY_ID = "sql.streaming.queryId"

#: Spark's errors of work that was ended from outside: a job of a cancelled group, an operation of Spark Connect that was
#: interrupted, or one whose session is over.
_ENDED = frozenset({
    "SPARK_JOB_CANCELLED", "OPERATION_CANCELED", "INVALID_HANDLE.OPERATION_ABANDONED", "INVALID_HANDLE.SESSION_CLOSED",
    "INVALID_HANDLE.SESSION_NOT_FOUND",
})  # fmt: skip

#: Java's exceptions in a thread that was interrupted. A time-out of a connection has a class of its own, though it is one of these.
_INTERRUPTED = frozenset({"java.lang.InterruptedException", "java.nio.channels.ClosedByInterruptException"})


class RunEnd(Enum):
    """The end of a run that raised."""

    #: By its function, or by a task: its messages may be to blame.
    FAILED = auto()
    #: From outside: its messages have nothing to do with it.
    STOPPED = auto()
    #: With the Spark that ran it, as with a driver that is killed: nobody knows why.
    LOST = auto()


def end_of(failure: BaseException, session: SparkSession) -> RunEnd:
    """Return the end of a run, by its exception and by the state of its query."""
    if any(map(_tells_of_outside, _chain(failure))):
        return RunEnd.STOPPED
    if getattr(session, "_jsparkSession", None) is None:
        # Spark Connect: a worker knows of no query.
        return RunEnd.FAILED
    try:
        return RunEnd.STOPPED if _is_over(session) else RunEnd.FAILED
    except (Py4JNetworkError, OSError):
        return RunEnd.LOST
    except Exception as reason:  # noqa: BLE001 - it asks for what Spark's vendors may have changed.
        _log.warning(
            ("it is unknown whether the query was stopped, so the exception of its function counts as a failure: %s"), reason
        )
        return RunEnd.FAILED


def _is_over(session: SparkSession) -> bool:
    """Return whether the query, or all of Spark, was stopped: both are marked so before a run can fail of it."""
    java: Any = session._jsparkSession  # noqa: SLF001 - Python's own context is gone where Spark was stopped.
    if java.sparkContext().isStopped():
        return True
    query_id = java.sparkContext().getLocalProperty(QUERY_ID)
    if query_id is None:
        return False
    query = running_query(session, query_id)
    return query is None or not query.isActive()


def _chain(failure: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and those that it was raised from, or while they were handled."""
    known: set[int] = set()
    each: BaseException | None = failure
    while each is not None and id(each) not in known:
        known.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _tells_of_outside(failure: BaseException) -> bool:
    if isinstance(failure, KeyboardInterrupt):
        return True
    if isinstance(failure, PySparkException) and failure.getCondition() in _ENDED:
        return True
    thrown = getattr(failure, "_origin", None) or getattr(failure, "java_exception", None)
    try:
        return any(map(_is_interruption, _causes(thrown)))
    except Exception:  # noqa: BLE001 - a gateway that is gone: the next call to it finds out.
        return False


def _causes(thrown: Any) -> Iterator[Any]:
    """Yield an exception of Java, and its causes; a chain of them never ends in itself, but may be long."""
    for _ in range(20):
        if thrown is None:
            return
        yield thrown
        thrown = thrown.getCause()


def _is_interruption(thrown: Any) -> bool:
    name = thrown.getClass().getName()
    return name in _INTERRUPTED or (name == "org.apache.spark.SparkException" and thrown.getCondition() in _ENDED)
