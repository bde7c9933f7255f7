"""The books of a run on a cluster: what the log says, beside what executors saw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_queue import Journal
from tests.acceptance.standalone.driver import QUEUE

#: How often something happened to each message.
Counts = np.ndarray[Any, np.dtype[np.uint16]]


@dataclass(frozen=True, kw_only=True)
class Books:
    """What a run came to; the promises that it broke are empty."""

    #: Messages that were published twice, or never seen.
    misnumbered: int
    #: Neither acknowledged once nor anything else.
    unfinished: int
    #: Acknowledged, and seen by no executor.
    lost: int
    #: Seen more often than the log delivered them.
    unexpected: int
    #: Seen with another body than was published.
    wrong_bodies: int
    #: Seen beyond the first time; the log explains each by a grant after a return, or by a resume.
    explained_duplicates: int
    #: The machines whose executors saw messages, and whether one of them saw the disk of a driver.
    executors: frozenset[str]
    saw_a_driver_disk: bool
    #: The longest time between two grants, in seconds.
    longest_pause_s: float

    @property
    def broken(self) -> dict[str, int]:
        """The promises that were broken, and how often."""
        promises = ("misnumbered", "unfinished", "lost", "unexpected", "wrong_bodies")
        return {name: getattr(self, name) for name in promises if getattr(self, name)}


def balance(journal: Journal, sinks: Iterable[Path], messages: int) -> Books:
    """Compare what drivers kept with the log."""
    seen = pa.concat_tables([pq.read_table(file) for sink in sinks for file in sink.glob("*.parquet")])
    bookmarks, ids = (pc.list_flatten(seen.column(name)).to_numpy() for name in ("bookmarks", "ids"))
    # There are as many bookmarks as messages; what is published twice has bookmarks beyond, taken or not.
    missing, beyond = messages - len(np.unique(ids)), np.count_nonzero(np.unique(bookmarks) >= messages)
    misnumbered = missing + beyond + journal.queue(QUEUE).status().queue_depth
    written = _counted(bookmarks, messages)
    delivered, acknowledged, others = (np.zeros(messages, np.uint16) for _ in range(3))
    granted_at: list[datetime] = []
    for record in journal.view("history", queue=QUEUE).to_pylist():
        match record["kind"]:
            case "granted" | "resumed":
                granted_at.append(record["at"])
                counts = delivered
            case "removed":
                counts = acknowledged if record["reason"] == "acknowledged" else others
            case _:
                continue
        for each in record["ranges"] or ():
            counts[each["first"] : each["until"]] += 1
    return Books(
        misnumbered=int(misnumbered),
        unfinished=int(((acknowledged != 1) | (others != 0)).sum()),
        lost=int(((acknowledged > 0) & (written == 0)).sum()),
        unexpected=int((written > delivered).sum()),
        wrong_bodies=int(seen.column("wrong_bodies").to_numpy().sum()),
        explained_duplicates=int(written.sum() - np.count_nonzero(written)),
        executors=frozenset(map(str, seen.column("executor").to_pylist())),
        saw_a_driver_disk=any(seen.column("driver_disk").to_pylist()),
        longest_pause_s=_longest(sorted(granted_at)),
    )


def _counted(bookmarks: Any, messages: int) -> Counts:
    return np.bincount(bookmarks[bookmarks < messages], minlength=messages).astype(np.uint16)


def _longest(moments: Sequence[datetime]) -> float:
    return max(((later - earlier).total_seconds() for earlier, later in pairwise(moments)), default=0.0)
