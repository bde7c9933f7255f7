"""The wrapper around fn, without Spark: what is reported when, and what of it Spark gets to see (DESIGN 7, P4, P6)."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pandas as pd
import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spark_queue.core.commands import OutcomeRows
from spark_queue.errors import CallerError, ConfigError, SparkQueueError
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.source.foreach_batch import BatchWrapper
from spark_queue.source.run_ends import RunEnd

QUERY = str(UUID(int=5))

#: A micro-batch of a session that knows no JVM.
ROWS = SimpleNamespace(columns=["bookmark", "item"], sparkSession=object())


class Reporter:
    """Notes what the wrapper says."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.is_barrier = False
        self.messages = 2

    def start(self) -> SimpleNamespace:
        self.told.append("start")
        return SimpleNamespace(run="run", is_barrier=self.is_barrier, messages=self.messages)

    def end(self, run: str, outcomes: Any = (), *, settle: bool = False, error: str | None = None, stopped: bool = False) -> None:
        gives_back = error is not None or stopped
        self.told.append(("give_back", run, "stopped" if stopped else error) if gives_back else ("end", run, outcomes, settle))

    def fail(self, run: str, error: str) -> None:
        self.told.append(("fail", run, error))

    def stop(self, run: str) -> None:
        self.told.append(("stop", run))

    def prove(self, offset: Any) -> None:
        self.told.append(("prove", offset))


def nothing(batch: Any, batch_id: int) -> None:
    """Accept the whole batch."""


def wrapped(fn: Any, **options: Any) -> tuple[Any, list[Any]]:
    store: Any = "store"
    wrapper: Any = BatchWrapper(fn, store=store, endpoint=Endpoint("grpc://far:1"), queue="Q", subscription="s", **options)
    reporter = wrapper._reporter = Reporter()
    return wrapper, reporter.told


@pytest.mark.parametrize("ack_early", [False, True])
def test_fn_is_announced_before_it_runs_and_its_end_before_spark_goes_on(*, ack_early: bool) -> None:
    seen: list[Any] = []

    def fn(batch: Any, batch_id: int) -> None:
        seen.append((batch, batch_id, list(told)))

    wrapper, told = wrapped(fn, ack_early=ack_early)
    wrapper(ROWS, 3)
    assert seen == [(ROWS, 3, ["start"])]
    assert told == ["start", ("end", "run", (), ack_early)]


def test_a_barrier_goes_to_its_own_function_where_there_is_one() -> None:
    """R71: neither function has to ask the batch what it is."""
    seen: list[tuple[str, Any, int]] = []

    def fn(batch: Any, batch_id: int) -> None:
        seen.append(("fn", batch, batch_id))

    def on_barrier(batch: Any, batch_id: int) -> None:
        seen.append(("on_barrier", batch, batch_id))

    for options in ({"on_barrier": on_barrier}, {}):
        wrapper, told = wrapped(fn, **options)
        for batch_id, is_barrier in enumerate([False, True, False]):
            wrapper._reporter.is_barrier = is_barrier
            wrapper(ROWS, batch_id)
        assert told == ["start", ("end", "run", (), False)] * 3
    assert seen == [("fn", ROWS, 0), ("on_barrier", ROWS, 1), ("fn", ROWS, 2), *(("fn", ROWS, n) for n in range(3))]


@pytest.mark.parametrize(
    ("on_error", "failure", "said", "is_raised"),
    [
        ("fail", ValueError("no"), ("fail", "run", "ValueError: no"), True),
        ("cancel", ValueError("no"), ("give_back", "run", "ValueError: no"), False),
        ("cancel", ValueError("\udcff"), ("give_back", "run", "ValueError: ?"), False),
        # As Py4J tells an exception of Java: a hundred lines of its stack would hide the cause, in logs and in dead letters.
        (
            "cancel",
            RuntimeError(
                "while calling o1.count.\n: E: no\n\tat a.B.c(B.java:1)\nCaused by: F: why\n\tat a.B.d(B.java:2)\n\t... 9 more\n"
            ),
            ("give_back", "run", "RuntimeError: while calling o1.count.\n: E: no\nCaused by: F: why"),
            False,
        ),
        ("cancel", CallerError("OUTCOME_INVALID", queue="Q", reason="r.", next_step="n."), "fail", True),
        ("cancel", CallerError("UNKNOWN_BOOKMARK", queue="Q", next_step="n", count=1, bookmark=1, reason="r"), "give_back", False),
    ],
)
def test_what_fn_raises_fails_the_query_or_gives_the_batch_back(
    on_error: str, failure: Exception, said: Any, *, is_raised: bool
) -> None:
    """A slip in what fn says of its rows fails it always: the batch would come back only to slip again."""

    def fn(batch: Any, batch_id: int) -> None:
        raise failure

    wrapper, told = wrapped(fn, on_error=on_error)
    if is_raised:
        with pytest.raises(type(failure)):
            wrapper(ROWS, 0)
    else:
        wrapper(ROWS, 0)
    start, outcome = told
    assert start == "start"
    assert outcome == said if isinstance(said, tuple) else outcome[0] == said


@pytest.mark.parametrize("ended", [SystemExit(3), SystemExit(), GeneratorExit()])
@pytest.mark.parametrize("on_error", ["fail", "cancel"])
def test_fn_that_ends_its_thread_fails_the_batch_by_name(on_error: str, ended: BaseException) -> None:
    """Spark hears of exceptions alone: after anything else its query would wait for ever, and the run would stay open."""

    def fn(batch: Any, batch_id: int) -> None:
        raise ended

    wrapper, told = wrapped(fn, on_error=on_error)
    if on_error == "fail":
        with pytest.raises(CallerError, match=f"BATCH_FUNCTION_ENDED.*'Q' ended by {type(ended).__name__}"):
            wrapper(ROWS, 0)
    else:
        wrapper(ROWS, 0)
    assert (told[1][0], "BATCH_FUNCTION_ENDED" in told[1][2]) == ("fail" if on_error == "fail" else "give_back", True)


@pytest.mark.parametrize(
    ("on_error", "end", "said"),
    [
        ("fail", RunEnd.FAILED, ("fail", "run", "ValueError: no")),
        ("fail", RunEnd.STOPPED, ("stop", "run")),
        ("cancel", RunEnd.STOPPED, ("give_back", "run", "stopped")),
        ("fail", RunEnd.LOST, None),
        ("cancel", RunEnd.LOST, None),
    ],
)
def test_only_the_functions_own_failure_is_told_as_one(
    on_error: str, end: RunEnd, said: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R42: what ends a run from outside is held against no message; why a Spark is gone nobody knows, so nothing is said."""
    monkeypatch.setattr("spark_queue.source.foreach_batch.end_of", lambda failure, session: end)

    def fn(batch: Any, batch_id: int) -> None:
        raise ValueError("no")

    wrapper, told = wrapped(fn, on_error=on_error)
    if on_error == "cancel" and said is not None:
        wrapper(ROWS, 0)
    else:
        with pytest.raises(ValueError, match="no"):
            wrapper(ROWS, 0)
    assert told[1:] == ([] if said is None else [said])
    assert end is RunEnd.FAILED or "does not count against its messages" in caplog.text


@pytest.mark.parametrize("on_error", ["fail", "cancel"])
def test_an_interrupt_of_fn_is_no_failure(on_error: str) -> None:
    def fn(batch: Any, batch_id: int) -> None:
        raise KeyboardInterrupt

    wrapper, told = wrapped(fn, on_error=on_error)
    if on_error == "fail":
        with pytest.raises(CallerError, match=r"BATCH_FUNCTION_ENDED.*KeyboardInterrupt"):
            wrapper(ROWS, 0)
    else:
        wrapper(ROWS, 0)
    assert told[1] == (("stop", "run") if on_error == "fail" else ("give_back", "run", "stopped"))


@pytest.mark.parametrize(("rows", "reaches_fn"), [(0, False), (3, True)])
def test_a_batch_without_rows_does_not_reach_fn(rows: int, *, reaches_fn: bool) -> None:
    """R42: a batch without messages may have rows all the same, of a state, or of another source of its query."""
    seen: list[Any] = []
    wrapper, told = wrapped(lambda batch, batch_id: seen.append(batch))
    wrapper._reporter.messages = 0
    batch = SimpleNamespace(columns=[], sparkSession=object(), count=lambda: rows)
    wrapper(batch, 0)
    assert (seen == [batch]) is reaches_fn
    assert told == ["start", ("end", "run", (), False)]


def test_rows_that_cannot_be_counted_are_a_failure() -> None:
    wrapper, told = wrapped(nothing)
    wrapper._reporter.messages = 0
    with pytest.raises(ZeroDivisionError):
        wrapper(SimpleNamespace(columns=[], sparkSession=object(), count=lambda: 1 // 0), 0)
    assert [said[0] for said in told[1:]] == ["fail"]


def test_report_that_fails_fails_the_batch() -> None:
    """P4: Spark must not commit a batch whose outcomes nobody heard of."""
    wrapper, _ = wrapped(nothing, on_error="cancel")
    refusal = CallerError("OUTCOME_INVALID", queue="Q", reason="r.", next_step="n.")

    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise refusal

    wrapper._reporter.end = refuse
    with pytest.raises(SparkQueueError, match="OUTCOME_INVALID"):
        wrapper(ROWS, 0)


def test_fn_may_name_exceptions_in_an_arrow_table() -> None:
    """R39, R43: where a batch was collected once, no second job is needed to say what came of its rows."""
    table = pa.table({"Bookmark": [4, 5, 9], "item": ["a", "b", "c"], "outcome": ["expire"] * 3, "error": ["late"] * 3})
    wrapper, told = wrapped(lambda batch, batch_id: table)
    wrapper(ROWS, 0)
    said = OutcomeRows(outcome="expire", ranges=((4, 6), (9, 10)), retry_after_ms=None, error="late")
    assert told == ["start", ("end", "run", (said,), False)]


def test_fn_may_name_exceptions_in_a_pandas_frame() -> None:
    """R39, R43: what pandas calls missing was not given, whatever it made of the column."""
    frame = pd.DataFrame({
        "Bookmark": [4.0, 5.0, 9.0],
        "item": [object(), "b", 1],
        "outcome": ["cancel", "cancel", "expire"],
        "retry_after": [pd.Timedelta("1.5s"), pd.NaT, pd.NaT],
        "error": [float("nan"), None, "late"],
    })  # fmt: skip
    wrapper, told = wrapped(lambda batch, batch_id: frame)
    wrapper(ROWS, 0)
    ((_, _, said, _),) = told[1:]
    assert set(said) == {
        OutcomeRows(outcome="cancel", ranges=((4, 5),), retry_after_ms=1_500),
        OutcomeRows(outcome="cancel", ranges=((5, 6),)),
        OutcomeRows(outcome="expire", ranges=((9, 10),), error="late"),
    }


@pytest.mark.parametrize("missing", [float("nan"), None, pd.NA])
@pytest.mark.parametrize("given", [1.5, "1.5s", pd.Timedelta("1.5s")])
def test_a_pandas_frame_may_leave_retry_after_out(given: Any, missing: Any) -> None:
    frame = pd.DataFrame({"bookmark": [1, 2], "outcome": ["cancel", "cancel"], "retry_after": [given, missing]})
    wrapper, told = wrapped(lambda batch, batch_id: frame)
    wrapper(ROWS, 0)
    assert {said.retry_after_ms for said in told[1][2]} == {1_500, None}


def test_a_pandas_frame_of_mixed_values_is_refused_by_name() -> None:
    frame = pd.DataFrame({"bookmark": [1, "x"], "outcome": ["expire", "expire"]})
    wrapper, _ = wrapped(lambda batch, batch_id: frame)
    with pytest.raises(CallerError, match=r"OUTCOME_INVALID.*the pandas DataFrame cannot be read.*bookmark"):
        wrapper(ROWS, 0)


def test_an_arrow_table_with_a_column_that_means_nothing_is_refused() -> None:
    wrapper, told = wrapped(lambda batch, batch_id: pa.table({"bookmark": [1], "outcome": ["expire"], "eror": ["x"]}))
    with pytest.raises(CallerError, match=r"OUTCOME_INVALID.*column 'eror' has no meaning here.*'error'"):
        wrapper(ROWS, 0)
    assert [each if isinstance(each, str) else each[0] for each in told] == ["start", "fail"]


def test_fn_may_return_nothing_but_a_table() -> None:
    wrapper, told = wrapped(lambda batch, batch_id: [1])
    with pytest.raises(CallerError, match="fn returned list"):
        wrapper(ROWS, 0)
    assert [each if isinstance(each, str) else each[0] for each in told] == ["start", "fail"]


def test_unknown_on_error_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'BAD_VALUE.*on_error.*"fail" or "cancel"'):
        wrapped(nothing, on_error="ignore")


def batch_of(query_id: str | None) -> Any:
    """Return a micro-batch in a copy of the session that started its query, or in none."""
    context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": query_id}.get)
    return SimpleNamespace(columns=[], sparkSession=SimpleNamespace(sparkContext=context, _jsparkSession="copy"))


def test_commits_of_the_running_query_are_heard_by_one_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper, told = wrapped(nothing)
    listeners: list[Any] = []

    def listen(session: Any, query_id: str, committed: Any) -> Any:
        assert session._jsparkSession == "copy"
        listeners.append(SimpleNamespace(query_id=query_id, committed=committed))
        return listeners[-1]

    monkeypatch.setattr("spark_queue.source.foreach_batch.ProofListener", listen)
    wrapper(batch_of(QUERY), 0)
    wrapper(batch_of(QUERY), 1)
    [listener] = listeners
    listener.committed({"lease": 4})
    assert told[-1] == ("prove", {"lease": 4})
    # The query has ended, and is started again.
    listener.query_id = None
    wrapper(batch_of(QUERY), 2)
    assert [each.query_id for each in listeners] == [None, QUERY]


def test_outside_of_a_query_nothing_is_listened_to() -> None:
    wrapper, _ = wrapped(nothing)
    wrapper(batch_of(None), 0)
    wrapper(ROWS, 0)
    assert wrapper._listener is None


def test_a_spark_that_does_not_tell_of_its_queries_fails_no_batch(caplog: pytest.LogCaptureFixture) -> None:
    wrapper, told = wrapped(nothing)
    wrapper(batch_of(QUERY), 0)
    assert told == ["start", ("end", "run", (), False)]
    assert "commits of query" in caplog.text


def test_wrapper_that_is_shipped_takes_no_connection_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a Connect server; there it connects by itself."""
    wrapper, _ = wrapped(nothing, on_error="cancel", ack_early=True)
    wrapper._listener = object()
    shipped = pickle.loads(pickle.dumps(wrapper))
    assert (shipped._reporter, shipped._listener) == (None, None)
    made: list[Any] = []

    def connect(*place: Any, **about: Any) -> Reporter:
        made.append((place, about))
        return Reporter()

    monkeypatch.setattr("spark_queue.source.foreach_batch.RunReporter", connect)
    shipped(ROWS, 0)
    shipped(ROWS, 1)
    assert made == [(("store",), {"endpoint": Endpoint("grpc://far:1"), "queue": "Q", "subscription": "s"})]
    assert shipped._reporter.told == ["start", ("end", "run", (), True)] * 2


class Batch:
    """A micro-batch of messages that carry the contexts of their sends."""

    def __init__(self, contexts: list[str] | Exception) -> None:
        self.columns = ["item", "traceparent"]
        self.sparkSession = ROWS.sparkSession
        self._contexts = contexts
        self.dropna = self.distinct = lambda: self

    def select(self, column: str) -> Batch:
        assert column == "traceparent"
        return self

    def limit(self, _limit: int) -> Batch:
        return self

    def collect(self) -> list[tuple[str]]:
        if isinstance(self._contexts, Exception):
            raise self._contexts
        return [(each,) for each in self._contexts]


def test_a_batch_is_a_span_that_is_linked_to_the_sends_of_its_messages(spans: InMemorySpanExporter) -> None:
    contexts = [f"00-{'a' * 32}-{digit * 16}-01" for digit in "bc"]
    wrapper, told = wrapped(nothing)
    wrapper(Batch(contexts), 3)
    [span] = spans.get_finished_spans()
    assert (span.name, span.kind, span.parent) == ("process Q", trace.SpanKind.CONSUMER, None)
    assert [f"{link.context.span_id:x}" for link in span.links] == ["b" * 16, "c" * 16]
    attributes = dict(span.attributes or {})
    assert (attributes["messaging.destination.subscription.name"], attributes["messaging.spark_queue.batch"]) == ("s", 3)
    # A span without links is no reason to fail a batch.
    wrapper(Batch(ValueError("gone")), 4)
    assert told == ["start", ("end", "run", (), False)] * 2
    assert len(spans.get_finished_spans()[1].links) == 0


def test_without_spans_nobody_reads_a_batch() -> None:
    wrapper, told = wrapped(nothing)
    wrapper(Batch(AssertionError("read")), 3)
    assert told == ["start", ("end", "run", (), False)]
