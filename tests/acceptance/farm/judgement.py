"""What a run of the farm must show: nothing lost, nothing unexpected, everything in order, every duplicate explained by the log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from spark_queue.core.records import Kind
from tests.acceptance.farm.load import CLOSE, EXPIRE_EVERY, LINE, Order
from tests.acceptance.farm.site import Site


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Bookmarks that break a promise, and how many duplicates were explained."""

    #: Published, and neither acknowledged nor a dead letter.
    unfinished: list[int]
    #: Acknowledged, and in no file of the sink.
    lost: list[int]
    #: With more than one final outcome, or one that its consumer did not ask for.
    contradicted: list[int]
    #: In more files of the sink than the log delivered them.
    unexpected: list[int]
    #: Granted or released before something that comes first had left the queue.
    disordered: list[int]
    #: In the table more or less often than once and acknowledged, or there and not acknowledged; without a table nothing.
    misbooked: list[int]
    #: Barriers that are still held, or that a subscription did not receive exactly once.
    unreceived: list[int]
    #: Deliveries beyond the first, each of which the log explains by a grant after a return, or by a resume.
    explained_duplicates: int
    barriers: int

    @property
    def broken(self) -> dict[str, list[int]]:
        """The promises that were broken, and by what."""
        promises = ("unfinished", "lost", "contradicted", "unexpected", "disordered", "misbooked", "unreceived")
        return {name: getattr(self, name) for name in promises if getattr(self, name)}


@dataclass(slots=True)
class Deliveries:
    """What the log and the sink of one journal say of its messages."""

    #: In how many files of the sink each is.
    written: Counter[int]
    #: How often each was granted, or resumed.
    delivered: Counter[int] = field(default_factory=Counter)
    #: The reasons of its delete markers.
    outcomes: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Deliveries:
        """Read the sink of a folder."""
        runs = [json.loads(file.read_text())["bookmarks"] for file in (folder / "sink").glob("*.json")]
        return cls(Counter(bookmark for run in runs for bookmark in run))

    def hear(self, kind: str, reason: str | None, rows: Iterable[int]) -> None:
        """Take what a record says of messages."""
        if kind in (Kind.GRANTED, Kind.RESUMED):
            self.delivered.update(rows)
        elif kind == Kind.REMOVED:
            for row in rows:
                self.outcomes.setdefault(row, []).append(str(reason))

    def lost(self) -> list[int]:
        """Return what is acknowledged, and in no file of the sink."""
        return [row for row, said in self.outcomes.items() if "acknowledged" in said and not self.written[row]]

    def contradicted(self) -> list[int]:
        """Return what has more than one final outcome, or one that its consumer did not ask for."""
        return [row for row, said in self.outcomes.items() if said != [wanted(row)]]

    def unexpected(self) -> list[int]:
        """Return what is in more files of the sink than the log delivered it."""
        return [row for row, files in self.written.items() if files > self.delivered[row]]


def wanted(row: int) -> str:
    """Return the outcome that a consumer of the farm asks for, by bookmark."""
    return "forced_expire" if row % EXPIRE_EVERY == 0 else "acknowledged"


def judge(site: Site) -> Judgement:
    """Compare the sink with the log."""
    heard, order = Deliveries.of(site.folder), Order(site.load, site.published)
    #: Who must receive a barrier, and who did.
    due: Counter[tuple[int, str]] = Counter()
    received: Counter[tuple[int, str]] = Counter()
    for record in site.journal.view("history", queue="WORK").to_pylist():
        rows = [row for each in record["ranges"] or () for row in range(each["first"], each["until"])]
        detail = json.loads(record["detail"] or "{}")
        heard.hear(record["kind"], record["reason"], rows)
        match record["kind"]:
            case "granted" | "resumed":
                order.granted([row for row in rows if order.kinds[row] == LINE])
            case "removed":
                order.removed(rows)
            case "barrier_released":
                order.released(rows)
                due.update((row, name) for row in rows for name in detail["subscriptions"])
            case "barrier_received":
                received.update((row, record["subscription"]) for row in rows)
    lines = {row for row in range(site.published) if order.kinds[row] == LINE}
    closes = {row for row in range(site.published) if order.kinds[row] == CLOSE}
    return Judgement(
        unfinished=sorted(lines - heard.outcomes.keys()),
        lost=heard.lost(),
        contradicted=heard.contradicted() + sorted(heard.outcomes.keys() - lines),
        unexpected=heard.unexpected(),
        disordered=order.violations,
        misbooked=[] if site.table is None else _misbooked(site.table, heard.outcomes),
        unreceived=sorted({row for row, _ in (due - received) + (received - due)} | closes - {row for row, _ in due}),
        explained_duplicates=sum(files - 1 for row, files in heard.written.items() if row not in closes),
        barriers=len(closes),
    )


def _misbooked(table: Path, outcomes: Mapping[int, list[str]]) -> list[int]:
    """Compare the table with what is acknowledged; it is read by Delta alone."""
    booked = Counter(map(int, DeltaTable(table).to_pyarrow_table(columns=["bookmark"]).column(0).to_numpy()))
    acknowledged = {row for row, said in outcomes.items() if "acknowledged" in said}
    return sorted({row for row in acknowledged | booked.keys() if booked[row] != (row in acknowledged)})
