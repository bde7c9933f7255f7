"""Reading what Prometheus is told, as Prometheus does."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def values(text: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the value of each series, by its name and its labels."""
    families = text_string_to_metric_families(text.decode())
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def value(text: bytes, name: str, **labels: str) -> float | None:
    """Return the value of the one series of a name that has some labels; None where there is none."""
    found = [each for (told, has), each in values(text).items() if told == name and labels.items() <= dict(has).items()]
    assert len(found) <= 1, f"{name} has {len(found)} series with {labels}"
    return found[0] if found else None
