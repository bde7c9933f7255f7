"""Metrics of a coordinator: the state that it decides by, asked of its loop, and figures of its process alone (DESIGN 18).

Nothing of it exists where nobody asked for metrics. Otherwise a commit costs one measurement of time and one entry in a queue; a
thread of its own folds committed records.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from spark_queue.clock import SystemClock
from spark_queue.coordinator.inbox import Call, ClosedError, Inbox
from spark_queue.coordinator.logins import CallerTokens
from spark_queue.core.log_tail import LogTail
from spark_queue.core.records import Record
from spark_queue.core.state.log_history import Histogram, LogHistory
from spark_queue.errors import SparkQueueError
from spark_queue.journal.store import Store
from spark_queue.journal.store_files import requests_made
from spark_queue.metrics import otlp
from spark_queue.metrics.figures import JournalFigures, Observe, with_heard
from spark_queue.metrics.prometheus import listen
from spark_queue.metrics.samples import Family, Observation, ProcessFigures, collect, observation
from spark_queue.metrics.table import COMMIT_BOUNDS_S
from spark_queue.ports import ControlLog
from spark_queue.protocol.certificates import tls_context
from spark_queue.protocol.discovery import read_heard
from spark_queue.protocol.guesses import GuessLimit
from spark_queue.protocol.host import Bind, MetricsOptions, StartOptions
from spark_queue.protocol.http_ports import check_reach, chosen_token
from spark_queue.views.journal_view import find_damage, find_head

_LOG = logging.getLogger(__name__)


class PastReader(Protocol):
    """A journal whose log can be read."""

    def tail(self) -> LogTail:
        """Return the log tail of the control log, from the newest usable snapshot on."""
        ...


class ProcessMetrics:
    """The metrics of one process, from its start on; safe to be asked by any thread."""

    def __init__(self, store: Store, journal_id: str, *, per_subscription: bool) -> None:
        self._store = store
        self._journal_id = journal_id
        self._per_subscription = per_subscription
        self._lock = threading.Lock()
        self._commit_duration = Histogram(COMMIT_BOUNDS_S)
        self._refusals: Counter[str] = Counter()
        #: Records that the history has not folded yet; None once it learns nothing more.
        self._committed: queue.SimpleQueue[Sequence[Record]] | None = queue.SimpleQueue()
        self._history: LogHistory | None = None
        #: Damage of message files, by queue: those of one queue are looked at with each question, the next one's with the next,
        #: since a store should not pay for all of them at once.
        self._damages: dict[str, str] = {}
        #: Newest versions of the tables that message types follow, by queue, looked at in the same turns.
        self._heads: dict[str, int | None] = {}
        self._looks_at = ""
        #: Of the reign that serves; None while this process stands by.
        self._inbox: Inbox | None = None

    def serves(self, journal: PastReader, inbox: Inbox) -> None:
        """Ask a reign for its figures from now on, and read the history in its log."""
        self._inbox = inbox
        threading.Thread(target=self._follow, args=(journal,), name="metrics", daemon=True).start()

    def committed(self, records: Sequence[Record], seconds: float) -> None:
        """Note a commit to the control log, and how long it took."""
        with self._lock:
            self._commit_duration.observe(seconds)
        committed = self._committed
        if committed is not None:
            committed.put(records)

    def refused(self, code: str) -> None:
        """Count a call that was refused."""
        with self._lock:
            self._refusals[code] += 1

    def measured(self, log: ControlLog) -> ControlLog:
        """Return a control log that notes its commits here."""
        return MeasuredLog(log, self)

    def families(self) -> Sequence[Family]:
        """Return all metrics as they are now."""
        return collect([self._observation()], per_subscription=self._per_subscription)

    def _observation(self) -> Observation:
        found = self._ask()
        with self._lock:
            history = None if self._history is None else {name: each.copy() for name, each in self._history.queues.items()}
            process = ProcessFigures(
                serving=found is not None,
                commit_duration=self._commit_duration.copy(),
                refusals=dict(self._refusals),
                store_requests=requests_made(),
            )
        if found is None:
            return Observation(journal=self._store.path, observed_at_ms=SystemClock().wall_ms(), process=process)
        found = replace(found, history=history)
        try:
            self._look_at_files(found)
            told = with_heard(found, read_heard(self._store, self._journal_id))
            return replace(observation(self._store, told), process=process)
        except SparkQueueError as trouble:
            _LOG.warning("Metrics are incomplete: %s", trouble)
            return Observation(journal=self._store.path, observed_at_ms=found.now_ms, figures=found, process=process)

    def _ask(self) -> JournalFigures | None:
        """Return the figures of the reign; None where it is over, or has not begun."""
        if self._inbox is None:
            return None
        call = Call(Observe(damages=self._damages, heads=self._heads, looks_at=self._looks_at), lambda: False)
        try:
            self._inbox.submit(call)
        except ClosedError:
            return None
        call.wait()
        return call.figures

    def _look_at_files(self, found: JournalFigures) -> None:
        """Look at the files and the table of a queue, and choose the next one; the next question carries what was found."""
        names = sorted(each.queue for each in found.statuses)
        if found.needed is not None:
            damage = find_damage(self._store, found.needed)
            others = {name: text for name, text in self._damages.items() if name in names and name != self._looks_at}
            self._damages = others if damage is None else {**others, self._looks_at: damage}
        looked_at = next((each for each in found.statuses if each.queue == self._looks_at), None)
        if looked_at is not None and looked_at.table is not None and looked_at.table_version is not None:
            head = find_head(self._store, looked_at.table, looked_at.table_version)
            self._heads = {**self._heads, self._looks_at: head}
        self._looks_at = next((name for name in names if name > self._looks_at), next(iter(names), ""))

    def _follow(self, journal: PastReader) -> None:
        committed = self._committed
        assert committed is not None, "a history begins once"
        try:
            history = journal.tail().fold_history()
            # Records committed meanwhile are in both; a fold passes over those that it knows.
            with self._lock:
                self._history = history
            while True:
                records = committed.get()
                with self._lock:
                    history.fold(records)
        except Exception as trouble:  # noqa: BLE001  # All else is shown, and no memory fills with records that nobody reads.
            _LOG.warning("Metrics have no history, since the log cannot be read from its beginning: %s", trouble)
            self._committed, self._history = None, None


class MeasuredLog:
    """A control log that notes its commits."""

    def __init__(self, log: ControlLog, metrics: ProcessMetrics) -> None:
        self._log = log
        self._metrics = metrics

    def load(self) -> LogTail:
        """See `ports.ControlLog`."""
        return self._log.load()

    def check(self, *, epoch: int) -> None:
        """See `ports.ControlLog`."""
        self._log.check(epoch=epoch)

    def append(self, records: Sequence[Record], *, epoch: int) -> None:
        """See `ports.ControlLog`."""
        begun_s = time.perf_counter()
        self._log.append(records, epoch=epoch)
        self._metrics.committed(records, time.perf_counter() - begun_s)


def start(options: StartOptions) -> tuple[ProcessMetrics | None, str | None]:
    """Make the metrics that the options ask for; see `process.start_metrics`."""
    asked = options.metrics
    exporter = otlp.exporter()
    if asked is None and exporter is None:
        return None, None
    store = Store(options.path, options.storage_options)
    metrics = ProcessMetrics(store, options.journal_id, per_subscription=asked is not None and asked.per_subscription)
    if exporter is not None:
        otlp.push(metrics.families, exporter)
    return metrics, None if asked is None else _listen(metrics, asked, options.bind)


def _listen(metrics: ProcessMetrics, asked: MetricsOptions, bind: Bind) -> str:
    """Answer scrapes where it was asked for, beyond this host only with a certificate and a token."""
    cert, key, address = bind.tls_cert, bind.tls_key, f"{asked.host}:{asked.port}"
    needed = {"tls_cert": cert, "tls_key": key, "metrics_token_file": asked.token_file}
    reaches_others = check_reach("the metrics are", asked.host, address, **needed)
    tls = tls_context(cert, key) if reaches_others and cert is not None and key is not None else None
    if asked.token_file is None:
        return listen(metrics.families, host=asked.host, port=asked.port)
    logins, guesses = CallerTokens(chosen_token(Path(asked.token_file), "--metrics-token-file")), GuessLimit()

    def admits(header: bytes, address: str) -> bool | None:
        return guesses.looked_at(address, lambda: logins.is_own(header))

    return listen(metrics.families, host=asked.host, port=asked.port, tls=tls, admits=admits)
