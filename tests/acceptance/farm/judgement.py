"""What a run of the farm must show: nothing lost, nothing unexpected, everything in order, every duplicate explained by the log."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from spark_queue import Journal
from tests.acceptance.farm.load import CLOSE, EXPIRE_EVERY, LINE, Load, Order


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
    #: Barriers that are still held, or that a subscription did not receive exactly once.
    unreceived: list[int]
    #: Deliveries beyond the first, each of which the log explains by a grant after a return, or by a resume.
    explained_duplicates: int
    barriers: int

    @property
    def broken(self) -> dict[str, list[int]]:
        """The promises that were broken, and by what."""
        promises = ("unfinished", "lost", "contradicted", "unexpected", "disordered", "unreceived")
        return {name: getattr(self, name) for name in promises if getattr(self, name)}


def judge(folder: Path, journal: Journal, published: int, load: Load) -> Judgement:
    """Compare the sink with the log."""
    runs = [json.loads(file.read_text())["bookmarks"] for file in (folder / "sink").glob("*.json")]
    written = Counter(bookmark for run in runs for bookmark in run)
    delivered: Counter[int] = Counter()
    outcomes: dict[int, list[str]] = {}
    order = Order(load, published)
    #: Who must receive a barrier, and who did.
    due: Counter[tuple[int, str]] = Counter()
    received: Counter[tuple[int, str]] = Counter()
    for record in journal.view("history", queue="WORK").to_pylist():
        rows = [row for each in record["ranges"] or () for row in range(each["first"], each["until"])]
        detail = json.loads(record["detail"] or "{}")
        match record["kind"]:
            case "granted" | "resumed":
                delivered.update(rows)
                order.granted([row for row in rows if order.kinds[row] == LINE])
            case "removed":
                order.removed(rows)
                for row in rows:
                    outcomes.setdefault(row, []).append(record["reason"])
            case "barrier_released":
                order.released(rows)
                due.update((row, name) for row in rows for name in detail["subscriptions"])
            case "barrier_received":
                received.update((row, record["subscription"]) for row in rows)
    lines = [row for row in range(published) if order.kinds[row] == LINE]
    wanted = {row: "forced_expire" if row % EXPIRE_EVERY == 0 else "acknowledged" for row in lines}
    closes = {row for row in range(published) if order.kinds[row] == CLOSE}
    return Judgement(
        unfinished=[row for row in wanted if row not in outcomes],
        lost=[row for row, said in outcomes.items() if "acknowledged" in said and not written[row]],
        contradicted=[row for row, said in outcomes.items() if said != [wanted.get(row)]],
        unexpected=[row for row, files in written.items() if files > delivered[row]],
        disordered=order.violations,
        unreceived=sorted({row for row, _ in (due - received) + (received - due)} | closes - {row for row, _ in due}),
        explained_duplicates=sum(files - 1 for row, files in written.items() if row not in closes),
        barriers=len(closes),
    )
