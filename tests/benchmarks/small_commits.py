"""A publisher process: ``python -m tests.benchmarks.small_commits JOURNAL COMMITS PAUSE_MS``.

Its standard input has the storage options, as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from spark_queue import Journal
from tests.benchmarks.journals import TOPIC

#: Messages of one commit.
COMMIT_ROWS = 10


def main(path: str, commits: int, pause_ms: int, storage_options: dict[str, str]) -> None:
    """Publish at a steady pace; every message says which commit it is of, and when its publish began."""
    never = threading.Event()
    with Journal(path, storage_options=storage_options).publisher("bench") as publisher:
        began_s = time.monotonic()
        for commit in range(commits):
            never.wait(max(0.0, began_s + commit * pause_ms / 1e3 - time.monotonic()))
            value = json.dumps({"commit": commit, "sent_ms": time.time() * 1e3})
            publisher.publish([{"value": value}] * COMMIT_ROWS, topic=TOPIC)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.load(sys.stdin))
