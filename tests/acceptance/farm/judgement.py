"""What a run of the farm must show: nothing lost, nothing unexpected, every duplicate explained by the log."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from spark_queue import Journal
from tests.acceptance.farm.consumer import EXPIRE_EVERY


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
    #: Deliveries beyond the first, each of which the log explains by a grant after a return, or by a resume.
    explained_duplicates: int


def judge(folder: Path, journal: Journal, published: int) -> Judgement:
    """Compare the sink with the log."""
    runs = [json.loads(file.read_text())["bookmarks"] for file in (folder / "sink").glob("*.json")]
    written = Counter(bookmark for run in runs for bookmark in run)
    delivered: Counter[int] = Counter()
    outcomes: dict[int, list[str]] = {}
    for record in journal.view("history", queue="WORK").to_pylist():
        rows = [row for each in record["ranges"] or () for row in range(each["first"], each["until"])]
        if record["kind"] in ("granted", "resumed"):
            delivered.update(rows)
        elif record["kind"] == "removed":
            for row in rows:
                outcomes.setdefault(row, []).append(record["reason"])
    wanted = {row: "forced_expire" if row % EXPIRE_EVERY == 0 else "acknowledged" for row in range(published)}
    return Judgement(
        unfinished=[row for row in wanted if row not in outcomes],
        lost=[row for row, said in outcomes.items() if "acknowledged" in said and not written[row]],
        contradicted=[row for row, said in outcomes.items() if said != [wanted.get(row)]],
        unexpected=[row for row, files in written.items() if files > delivered[row]],
        explained_duplicates=sum(files - 1 for files in written.values()),
    )
