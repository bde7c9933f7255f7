"""What is told of journals from outside is what `sparkq status` and `sparkq peers status` say of them."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spark_queue import Journal
from spark_queue.core.records import Outcome
from spark_queue.core.replies import QueueStatus
from spark_queue.errors import ConfigError
from spark_queue.metrics import exposition
from spark_queue.metrics.prometheus import render
from spark_queue.metrics.samples import Observation, collect, figures_at, observation
from spark_queue.metrics.table import METRICS, MetricKind, Scope
from spark_queue.views import JournalView, queue_status
from tests.unit.metrics.exposed import value
from tests.unit.views.views_world import START_MS, ViewsWorld


def observed(view: JournalView) -> Observation:
    return observation(view.journal.store, figures_at(view))


@pytest.fixture
def busy(tmp_path: Path) -> ViewsWorld:
    """Make a queue with something of everything."""
    world = ViewsWorld(tmp_path)
    world.publish(1, 2, 3)
    world.publish(*range(4, 12), now_ms=START_MS + 5_000)
    world.attach(now_ms=START_MS + 6_000)
    world.next(2, now_ms=START_MS + 6_000)
    world.next(3, now_ms=START_MS + 8_000)
    world.settle(Outcome.EXPIRE, 8, now_ms=START_MS + 9_000, error="no such item")
    world.commit()
    return world


def test_each_figure_of_each_queue_equals_its_status(busy: ViewsWorld) -> None:
    point = busy.moment(START_MS + 20_000)
    text = render(collect([observed(point)]))
    numbers = {metric.figure: metric for metric in METRICS if metric.scope is Scope.QUEUE}
    for queue in ("WORK", "FAILED", "OTHER"):
        status = queue_status(point, queue)
        figures = {entry.name: getattr(status, entry.name) for entry in fields(QueueStatus) if entry.name in numbers}
        figures["alarm"] = status.alarm is not None
        told = {name: value(text, numbers[name].name, queue=queue) for name in figures}
        assert told == {name: float(figure or 0) for name, figure in figures.items()}
    assert (value(text, "sparkqueue_dead_letters", queue="WORK"), value(text, "sparkqueue_queue_depth", queue="WORK")) == (1, 8)
    assert [value(text, "sparkqueue_dead_letter_queue", queue=queue) for queue in ("WORK", "FAILED", "OTHER")] == [0, 1, 0]
    assert value(text, "sparkqueue_records_total") == point.state.next_record


def test_the_log_tells_of_leases_delays_and_why_messages_left(busy: ViewsWorld) -> None:
    found = observed(busy.moment(START_MS + 20_000))
    text = render(collect([found], per_subscription=True))
    assert value(text, "sparkqueue_removed_messages_total", queue="WORK", reason="acknowledged") == 2
    assert value(text, "sparkqueue_removed_messages_total", queue="WORK", reason="forced_expire") == 1
    # What has not happened is told as well.
    assert value(text, "sparkqueue_returned_messages_total", queue="OTHER", reason="lease_expired") == 0
    assert value(text, "sparkqueue_lease_duration_seconds_sum", queue="WORK") == 2
    assert value(text, "sparkqueue_subscription_lease_duration_seconds_count", queue="WORK", subscription="s") == 1
    # 0 and 1 after 6 s, 2 after 8 s, 3 and 4 after 3 s.
    assert value(text, "sparkqueue_delivery_delay_seconds_sum", queue="WORK") == 26
    assert value(text, "sparkqueue_delivery_delay_seconds_bucket", queue="WORK", le="5.0") == 2
    assert value(text, "sparkqueue_subscription_backlog_messages", queue="WORK", subscription="s") == 3


def test_subscriptions_are_told_on_request_only(busy: ViewsWorld) -> None:
    assert b'subscription="s"' not in exposition([busy.journal])
    assert b'subscription="s"' in exposition([busy.journal], per_subscription=True)


def test_every_series_is_in_the_table(busy: ViewsWorld) -> None:
    known = {metric.name.removesuffix("_total"): metric for metric in METRICS}
    for family in text_string_to_metric_families(exposition([busy.journal], per_subscription=True).decode()):
        metric = known[family.name]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        bounds = {"le"} if metric.kind is MetricKind.HISTOGRAM else set[str]()
        assert {frozenset(each.labels) - bounds for each in family.samples} == {frozenset(metric.labels)}


def test_a_journal_that_cannot_be_read_breaks_no_other(busy: ViewsWorld, tmp_path: Path) -> None:
    gone = Journal(str(tmp_path / "gone"))
    text = exposition([gone, busy.journal])
    assert value(text, "sparkqueue_journal_up", journal=gone.path) == 0
    assert value(text, "sparkqueue_journal_up", journal=busy.journal.path) == 1
    assert value(text, "sparkqueue_queue_depth", queue="WORK") == 8


def test_a_missing_package_is_named_with_what_installs_it(busy: ViewsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"EXTRA_MISSING.*pip install 'spark-queue\[metrics\]'"):
        exposition([busy.journal])
