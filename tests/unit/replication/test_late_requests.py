"""Requests in a log that is read long after they were written: who asked waits no more (R104, DESIGN 17.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue.core.deciding.instances.replicating import News
from spark_queue.core.deciding.instances.transfers import OPEN_MS
from spark_queue.replication import peer_log, puller
from spark_queue.replication.exchange import ApplyPulled
from tests.fake_clock import FakeClock
from tests.unit.replication.sites import Site, three_sites


def requests_heard(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[News]:
    """Return where the requests will be that a site takes from logs."""
    heard, hand_over = list[News](), site.hand_over

    def noted(pull: ApplyPulled) -> bool:
        heard.extend(news for news in pull.pulled.news if news.is_request)
        return hand_over(pull)

    monkeypatch.setattr(site, "hand_over", noted)
    return heard


@pytest.mark.parametrize(
    ("records", "rows"), [(10_000, 500_000), (5, 500_000), (10_000, 1)], ids=["all at once", "in chunks", "in parts"]
)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_request_is_over_in_whichever_chunk_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_late: bool, records: int, rows: int
) -> None:
    clock = FakeClock()
    sites = three_sites(tmp_path, clock)
    clock.advance(100)
    sites["virginia"].loop.step([])  # Who waited waits no more.
    if is_late:
        clock.advance(OPEN_MS)
    sites["tokyo"].publish(104)
    sites["virginia"].pull("tokyo", sites["tokyo"].path)
    monkeypatch.setattr(peer_log, "CHUNK_RECORDS", records)
    monkeypatch.setattr(puller, "PART_ROWS", rows)
    heard = requests_heard(sites["frankfurt"], monkeypatch)
    assert sites["frankfurt"].pull("virginia", sites["virginia"].path) is None
    assert len(heard) == (0 if is_late else 1)
