"""A writer of a Delta table that knows nothing of queues: ``python -m tests.benchmarks.small_appends TABLE COMMITS PAUSE_MS``."""

from __future__ import annotations

import json
import sys
import threading
import time

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.benchmarks.small_commits import COMMIT_ROWS


def main(path: str, commits: int, pause_ms: int) -> None:
    """Append at a steady pace; every row says which commit it is of, and when its append began."""
    never, began_s = threading.Event(), time.monotonic()
    for commit in range(commits):
        never.wait(max(0.0, began_s + commit * pause_ms / 1e3 - time.monotonic()))
        value = json.dumps({"commit": commit, "sent_ms": time.time() * 1e3})
        write_deltalake(DeltaTable(path), pa.table({"value": [value] * COMMIT_ROWS}), mode="append")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
