"""What an expression of PromQL names: a tokenizer that is just good enough for our own rules and boards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from spark_queue.metrics.table import METRICS, Metric, MetricKind

#: Labels that whoever scrapes adds.
SCRAPED = frozenset({"instance", "job"})

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\$\w+|\d\w*|\w+|[^\s\w]')
#: What Prometheus tells of alerts that fire.
_ALERTS = re.compile(r"ALERTS\{[^}]*\}")
_GROUPING = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORDS = _GROUPING | {"and", "or", "unless", "offset", "bool", "inf", "nan"}


@dataclass
class Named:
    """The names in an expression."""

    metrics: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)


def names(expression: str) -> Named:
    """Return the metrics that an expression reads, and the labels that it selects or groups by."""
    found, tokens = Named(), _TOKEN.findall(_ALERTS.sub("1", expression))
    inside = ""
    for token, following, before in zip(tokens, [*tokens[1:], ""], ["", *tokens[:-1]], strict=True):
        if token == "{" or (token == "(" and before in _GROUPING):
            inside = "}" if token == "{" else ")"
        elif token == inside:
            inside = ""
        elif not re.match(r"[A-Za-z_]", token) or token.lower() in _WORDS:
            continue
        elif inside == ")" or (inside == "}" and following in "=!"):
            found.labels.add(token)
        elif not inside and following not in {"(", "by", "without"} and before != "[":
            found.metrics.add(token)
    return found


def table() -> dict[str, Metric]:
    """Return the metric behind each name that a series may have."""
    known = {metric.name: metric for metric in METRICS if metric.kind is not MetricKind.HISTOGRAM}
    for metric in METRICS:
        if metric.kind is MetricKind.HISTOGRAM:
            known |= {f"{metric.name}_{part}": metric for part in ("bucket", "sum", "count")}
    return known


def problems(expression: str) -> Iterator[str]:
    """Say which names of an expression nothing has."""
    found, known = names(expression), table()
    yield from (f"there is no metric {name}" for name in sorted(found.metrics - known.keys()))
    labels = {label for name in found.metrics & known.keys() for label in known[name].labels} | SCRAPED
    if any(name.endswith("_bucket") for name in found.metrics):
        labels.add("le")
    yield from (f"none of its metrics has label {name}" for name in sorted(found.labels - labels))
    if not found.metrics:
        yield "it names no metric"
