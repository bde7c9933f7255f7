"""What all tests share: a Spark session where one is asked for, and a look back for processes that were left."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import psutil
import pytest

from tests import drawn_cases
from tests.coordinator_processes import SESSION_VARIABLE, WARM_VARIABLE, coordinators_of, starter_of, warm_coordinators
from tests.seed_window import WINDOW
from tests.source_tree import ROOT
from tests.warm_processes import READERS_VARIABLE, warm_readers, warm_spark

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from pyspark.sql import SparkSession

# A shared machine pauses a test when it likes; a deadline per example would measure that.
hypothesis.settings.register_profile("shared", deadline=None)
hypothesis.settings.load_profile("shared")


#: Suites that need no Java. `make test` does not even read them for its part with Spark: that took each process some seconds.
SPARKLESS = tuple(f"{ROOT / 'tests' / suite}/" for suite in ("unit", "contract", "model", "simulation"))


def pytest_report_header() -> str:
    """Say which random worlds and programs are tried, so that what fails can be had again."""
    return f"seed window: {WINDOW} (again: SEED_WINDOW={WINDOW}, with the same SIMULATION_SEEDS and MODEL_PROGRAMS)"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark what asks for the `spark` fixture, before ``-m`` selects, and draw cases. Then deal modules out to processes.

    Each process begins with a part of those that start others and wait for them, and ends with short ones, which are shared best.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") and str(item.path).startswith(SPARKLESS):
            raise pytest.UsageError(f"{item.nodeid} needs Spark, which no part of `make test` gives it: see tests/README.md")
    if drawn_cases.DRAWS:
        items[:], left = drawn_cases.split(items)
        config.hook.pytest_deselected(items=left)
    yield
    hands = getattr(config, "workerinput", {}).get("workercount", 1)
    modules = [list(each) for _, each in itertools.groupby(items, lambda item: item.path)]
    items[:] = [item for hand in range(hands) for module in modules[hand::hands] for item in module]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the collector of cycles leave alone what lives as long as the session: thousands of tests, and all that was imported."""
    gc.collect()
    gc.freeze()
    # A generation of 700 objects is a record batch or two: looking through each took a twentieth of the simulation's time.
    gc.set_threshold(20_000, 20, 20)


def pytest_unconfigure() -> None:
    """Let it have all of that again: DuckDB tells of what it calls leaks."""
    gc.unfreeze()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Be a program with a tracer provider of its own."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


@pytest.fixture(scope="session", autouse=True)
def started_processes_heed_sigint() -> Iterator[None]:
    """Let processes that tests start heed Ctrl-C, also where the tests themselves were started in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def started_processes_heed_sigterm() -> Iterator[None]:
    """Undo what a planner that stops does to its process: others that this one starts would inherit that they ignore the signal."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session", autouse=True)
def no_coordinator_is_left() -> Iterator[None]:
    """Fail where a coordinator that this session's tests started outlives them; it is ended all the same."""
    session = os.environ[SESSION_VARIABLE] = str(uuid.uuid4())
    yield
    # One that could not start, or was told to stop, has said so before it is gone: where others take the processors long before.
    _, left = psutil.wait_procs(coordinators_of(session), timeout=20)
    told = [f"  {process.pid}, started under {starter_of(process)}" for process in left]
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=10)
    assert not left, "\n".join(["coordinators were left running:", *told])


@pytest.fixture(scope="session", autouse=True)
def processes_are_forked(no_coordinator_is_left: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let a push fork coordinators that are started on demand, and readers of peers.

    The long forms, and a file by itself, start each of them.
    """
    with contextlib.ExitStack() as forking:
        if drawn_cases.DRAWS:
            forking.enter_context(warm_coordinators(tmp_path_factory.mktemp("coordinators")))
            forking.enter_context(warm_readers(tmp_path_factory.mktemp("readers")))
        yield


@pytest.fixture
def coordinators_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each coordinator, for tests of how it starts, or of what the system shows of it."""
    monkeypatch.delenv(WARM_VARIABLE, raising=False)


@pytest.fixture
def readers_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each reader of a peer, for tests of how it ends."""
    monkeypatch.delenv(READERS_VARIABLE, raising=False)


@pytest.fixture(scope="session")
def forked_pythons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the environment of a JVM whose Pythons are forked in a push; the long forms, and a file by itself, start each."""
    if not drawn_cases.DRAWS:
        yield {}
        return
    with warm_spark(tmp_path_factory.mktemp("pythons")) as variables:
        yield variables


@pytest.fixture(scope="session")
def spark(forked_pythons: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield the one session of this process: two cores, Delta, UTC, and a quiet console."""
    from pyspark.sql import SparkSession

    from spark_queue import configure_spark

    builder = SparkSession.Builder().master("local[2]").appName("spark_queue tests")
    builder = (
        configure_spark(builder)
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile='{ROOT / 'conf' / 'log4j2.properties'}'")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in forked_pythons.items():
            patch.setenv(name, value)
        session = builder.getOrCreate()
    yield session
    session.stop()
