"""``/metrics`` of the page: what Prometheus is told of its journals (DESIGN 18)."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from spark_queue.journal.layout import Store
from spark_queue.metrics.observing import LogObserver
from spark_queue.metrics.prometheus import content_type, render
from spark_queue.metrics.samples import collect


class MetricsSite:
    """Answers scrapes, one after the other: what logs told before is kept from one to the next."""

    def __init__(self, stores: Iterable[Store]) -> None:
        self._observers = [LogObserver(store) for store in stores]
        self._lock = threading.Lock()

    async def metrics(self, _: Request) -> Response:
        """Return the metrics of all journals."""
        return Response(await to_thread.run_sync(self._told), media_type=content_type())

    def _told(self) -> bytes:
        with self._lock:
            return render(collect([each.observe() for each in self._observers]))
