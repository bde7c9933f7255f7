"""How a run ended that raised: what Spark says of its query and of itself decides, and else what was raised."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from spark_queue.source.run_ends import RunEnd, end_of

QUERY = str(UUID(int=5))


def java(name: str, condition: str | None = None, cause: Any = None) -> Any:
    """Return an exception of Java."""
    return SimpleNamespace(
        getClass=lambda: SimpleNamespace(getName=lambda: name), getCondition=lambda: condition, getCause=lambda: cause
    )


def raised(thrown: Any) -> Any:
    """Return an exception as Py4J makes it of one of Java."""
    failure: Any = RuntimeError("an error occurred while calling o61.count")
    failure.java_exception = thrown
    return failure


def session(*, active: bool | None = True, is_stopped: Any = False, query_id: str | None = QUERY) -> Any:
    """Return a session with a query that is active, has been told to stop, or is not known any more (None)."""

    def stopped() -> bool:
        if isinstance(is_stopped, BaseException):
            raise is_stopped
        return bool(is_stopped)

    query = None if active is None else SimpleNamespace(isActive=lambda: active)
    context = SimpleNamespace(isStopped=stopped, getLocalProperty={"sql.streaming.queryId": query_id}.get)
    queries = {QUERY: query}
    of_java = SimpleNamespace(
        sparkContext=lambda: context,
        sharedState=lambda: SimpleNamespace(activeStreamingQueries=lambda: SimpleNamespace(get=queries.get)),
    )
    uuid = SimpleNamespace(fromString=lambda text: text)
    return SimpleNamespace(_jsparkSession=of_java, _jvm=SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(UUID=uuid))))


SPARK = "org.apache.spark.SparkException"


@pytest.mark.parametrize("where", [session(), session(query_id=None), SimpleNamespace(), object()])
@pytest.mark.parametrize(
    "failure",
    [
        ValueError("no"),
        SystemExit(1),
        raised(java(SPARK, "TASK_FAILED", java("java.lang.RuntimeException"))),
        # A sink that answers too late: of a class that Java calls an interruption.
        raised(java(SPARK, None, java("java.net.SocketTimeoutException"))),
        raised(java("com.example.Failed", "SPARK_JOB_CANCELLED")),
        PySparkException("divided by zero"),
    ],
)
def test_a_failure_of_the_function_or_of_a_task_is_its_own(failure: BaseException, where: Any) -> None:
    assert end_of(failure, where) is RunEnd.FAILED


@pytest.mark.parametrize("where", [session(), object()])
@pytest.mark.parametrize(
    "failure",
    [
        KeyboardInterrupt(),
        raised(java("java.lang.InterruptedException")),
        raised(java(SPARK, "SPARK_JOB_CANCELLED")),
        raised(java("java.util.concurrent.ExecutionException", None, java(SPARK, "SPARK_JOB_CANCELLED"))),
        raised(java(SPARK, None, java("java.nio.channels.ClosedByInterruptException"))),
    ],
)
def test_an_interrupt_and_a_cancelled_job_come_from_outside(failure: BaseException, where: Any) -> None:
    assert end_of(failure, where) is RunEnd.STOPPED
    for wrapped in (_from(failure), _while_handling(failure)):
        assert end_of(wrapped, where) is RunEnd.STOPPED


def _from(failure: BaseException) -> BaseException:
    try:
        raise ValueError("booking failed") from failure
    except ValueError as wrapped:
        return wrapped


def _while_handling(failure: BaseException) -> BaseException:
    try:
        try:
            raise failure
        finally:
            raise ValueError("cleaning up failed")
    except ValueError as wrapped:
        return wrapped


def test_spark_connect_tells_by_its_conditions() -> None:
    ended: Any = PySparkException("ended")
    ended.getCondition = lambda: "OPERATION_CANCELED"
    of_connect: Any = object()
    assert end_of(ended, of_connect) is RunEnd.STOPPED


@pytest.mark.parametrize("where", [session(active=False), session(active=None), session(is_stopped=True)])
def test_whatever_is_raised_by_a_query_that_was_stopped_comes_from_outside(where: Any) -> None:
    assert end_of(ValueError("the connection was closed"), where) is RunEnd.STOPPED


@pytest.mark.parametrize("gone", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()])
def test_nobody_knows_why_a_spark_is_gone(gone: Exception) -> None:
    thrown: Any = SimpleNamespace()
    assert end_of(raised(thrown), session(is_stopped=gone)) is RunEnd.LOST


def test_a_spark_that_cannot_be_asked_leaves_the_failure_its_own(caplog: pytest.LogCaptureFixture) -> None:
    assert end_of(ValueError("no"), session(is_stopped=TypeError("no such method"))) is RunEnd.FAILED
    assert "counts as a failure: no such method" in caplog.text
