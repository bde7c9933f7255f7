"""Alert rules and the Grafana board in conf/ name only metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # It has no types.

from spark_queue.core.records import DEAD_LETTER_REASONS
from spark_queue.metrics.table import METRICS
from tests.source_tree import ROOT
from tests.unit.metrics.promql import SCRAPED, names, problems, table

RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "conf" / "prometheus-alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
#: What is asked of them on made-up series.
ON_SERIES: list[dict[str, Any]] = yaml.safe_load((ROOT / "tests" / "alerts.yml").read_text(encoding="utf-8"))["tests"]
BOARD: dict[str, Any] = json.loads((ROOT / "conf" / "grafana-board.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]

_LABEL_VALUES = re.compile(r"label_values\((?P<expression>.*), (?P<label>\w+)\)")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_names_what_there_is(rule: dict[str, Any]) -> None:
    assert list(problems(rule["expr"])) == []
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert re.fullmatch(r"\d+[smh]", rule["for"])
    told = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    known = {label for name in names(rule["expr"]).metrics for label in table()[name].labels}
    assert told <= known
    # Grouping leaves only what it names.
    grouped = re.match(r"(?:max|sum|count) by \(([^)]*)\)", rule["expr"])
    assert grouped is None or told <= set(grouped[1].split(", "))


def test_each_alert_has_a_name_of_its_own() -> None:
    assert max(Counter(rule["alert"] for rule in RULES).values()) == 1


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_alert_is_seen_to_fire_and_to_be_silent(rule: dict[str, Any]) -> None:
    """`make alerts` asks promtool."""
    asked = [each for test in ON_SERIES for each in test["promql_expr_test"] if f'"{rule["alert"]}"' in each["expr"]]
    assert {bool(each["exp_samples"]) for each in asked} == {False, True}


def test_deaths_are_those_that_make_dead_letters() -> None:
    [expression] = [rule["expr"] for rule in RULES if rule["alert"] == "SparkQueueDeadLettersGrow"]
    # Of series that grow, and of those that come with their first letter.
    [reasons, again] = re.findall(r'reason=~"([^"]*)"', expression)
    assert again == reasons
    assert set(reasons.split("|")) == DEAD_LETTER_REASONS


@pytest.mark.parametrize(("title", "target"), TARGETS, ids=lambda each: each if isinstance(each, str) else each["refId"])
def test_panel_names_what_there_is(title: str, target: dict[str, Any]) -> None:
    assert list(problems(target["expr"])) == []
    known = {label for name in names(target["expr"]).metrics for label in table()[name].labels} | SCRAPED
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    unit, expressions = panel["fieldConfig"]["defaults"]["unit"], [target["expr"] for target in panel["targets"]]
    assert (unit == "s") == all(re.search(r"_seconds(_bucket)?\{", each) is not None for each in expressions)
    assert (unit in ("cps", "Bps")) == all("rate(" in each and "histogram_quantile" not in each for each in expressions)
    # Two journals may have a queue, or a peer, of one name.
    assert panel["type"] == "stat" or all("{{journal}}" in target["legendFormat"] for target in panel["targets"])


def test_variables_of_the_board_are_labels_that_there_are() -> None:
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}
    used = {name for _, target in TARGETS for name in re.findall(r"\$(\w+)", target["expr"])} - {"__rate_interval"}
    assert used <= variables.keys()
    for name in used:
        found = _LABEL_VALUES.fullmatch(variables[name]["query"])
        assert found is not None
        assert list(problems(found["expression"])) == []
        assert found["label"] in table()[next(iter(names(found["expression"]).metrics))].labels


def test_panels_stand_beside_each_other() -> None:
    places = Counter((panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in BOARD["panels"])
    assert max(places.values()) == 1
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_what_must_wake_somebody_has_an_alert() -> None:
    read = {name for rule in RULES for name in names(rule["expr"]).metrics}
    assert {
        "sparkqueue_oldest_message_age_seconds", "sparkqueue_removed_messages_total", "sparkqueue_queue_alarm",
        "sparkqueue_coordinator_last_seen_timestamp_seconds", "sparkqueue_peer_behind_seconds", "sparkqueue_peer_trouble",
        "sparkqueue_coordinator_serving", "sparkqueue_journal_up",
    } <= read  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("sparkqueue_nothing > 1", ["there is no metric sparkqueue_nothing"]),
        ("node_load1 > 1", ["there is no metric node_load1"]),
        ('sparkqueue_queue_depth{peer="x"}', ["none of its metrics has label peer"]),
        ("sum by (reason) (rate(sparkqueue_entered_messages_total[5m]))", ["none of its metrics has label reason"]),
        ("sum by (le) (sparkqueue_queue_depth)", ["none of its metrics has label le"]),
        ("sparkqueue_lease_duration_seconds", ["there is no metric sparkqueue_lease_duration_seconds"]),
        ("time() > 5", ["it names no metric"]),
    ],
)
def test_a_name_that_is_not_there_is_told(expression: str, found: list[str]) -> None:
    assert [each for each in problems(expression) if each != "it names no metric" or found == [each]] == found


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_of_metrics_are_found_in_an_expression(metric: Any) -> None:
    text = f'sum by ({", ".join(metric.labels)}) (rate({metric.name}{{{metric.labels[0]}=~"a|b{{"}}[5m] offset 1h)) > bool 0.5'
    assert names(text).metrics == {metric.name}
    assert names(text).labels == set(metric.labels)
