"""``/metrics`` of the page: what Prometheus is told of its journals (DESIGN 18)."""

from __future__ import annotations

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from spark_queue.following.followed_metrics import FollowedMetrics
from spark_queue.metrics.prometheus import content_type, render


class MetricsSite:
    """Answers scrapes.

    Parameters
    ----------
    followed : FollowedMetrics
        The journals of the page.
    """

    def __init__(self, followed: FollowedMetrics) -> None:
        self._followed = followed

    async def metrics(self, _: Request) -> Response:
        """Return the metrics of all journals."""
        return Response(await to_thread.run_sync(self._told), media_type=content_type())

    def _told(self) -> bytes:
        return render(self._followed.families())
