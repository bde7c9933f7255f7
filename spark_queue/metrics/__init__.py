"""Metrics: figures of journals for machines. One table, one collector, and a form for each asker (DESIGN 18).

`table` names every metric. `figures` makes the figures of a state, with the history of its log; a coordinator asks its own
state (`coordinator.metrics`), and a look from outside a followed log (`following`). `samples` makes samples of observations,
`prometheus` and `otlp` write them down. Only these two need packages of the extras, and load them when asked. A coordinator
without metrics loads `figures` alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from spark_queue.journal.store import Store


class OfJournal(Protocol):
    """A journal, as users hold it or opened."""

    @property
    def store(self) -> Store:
        """Its place."""
        ...


def exposition(journals: Iterable[OfJournal], *, per_subscription: bool = False) -> bytes:
    """Return the metrics of journals in the text format of Prometheus, by their logs; starts nothing.

    A frequent asker keeps a follower of each, as the page and ``sparkq metrics --every`` do.
    """
    from spark_queue.metrics.prometheus import render
    from spark_queue.metrics.samples import observe

    return render(observe((journal.store for journal in journals), per_subscription=per_subscription))
