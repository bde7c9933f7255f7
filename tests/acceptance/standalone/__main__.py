"""Run the cluster at full size beside one machine that does the same work, and print what came of both: `make cluster`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.acceptance.standalone.cluster import DRIVERS, NAMES, Size, cluster_of, size_of
from tests.acceptance.standalone.run import Outcome, run
from tests.integration import hosts, s3_gateway
from tests.source_tree import ROOT


def main(arguments: list[str]) -> int:
    """Run it; the exit code is 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.standalone", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    given = parser.parse_args(arguments)
    if hosts.NAMESPACES not in hosts.KINDS:
        raise SystemExit(
            "Machines are network namespaces, and this user cannot make any: run this as root on Linux, with iproute2."
        )
    # Who ends it leaves nothing behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    size = size_of(given.messages)
    outcomes = {
        "cluster": _measured(NAMES, size, kills=True),
        "one machine": _measured(DRIVERS[:1], size, kills=False),
    }
    for name, outcome in outcomes.items():
        sys.stdout.write(f"{_told(name, outcome, size)}\n")
    return 1 if any(outcome.books.broken for outcome in outcomes.values()) else 0


def _measured(names: tuple[str, ...], size: Size, *, kills: bool) -> Outcome:
    server = s3_gateway.KINDS[-1]
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="cluster-", dir=build))
    began_s = time.monotonic()

    def say(what: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began_s:6.0f} s  {what}\n")

    say(f"{', '.join(names)}; S3 is {server}")
    try:
        with cluster_of(names, folder, size, server=server) as cluster:
            return run(cluster, kills=kills, say=say)
    finally:
        shutil.rmtree(folder)


def _told(name: str, outcome: Outcome, size: Size) -> str:
    books = outcome.books
    killed = ", ".join(f"{machine} at {at_s:.0f} s" for machine, at_s in outcome.killed_at_s.items()) or "nothing"
    return (
        f"{name}: {size.messages:,} messages in {outcome.took_s:.0f} s, {size.messages / outcome.took_s:,.0f}/s; "
        f"killed: {killed}; longest time between two grants {books.longest_pause_s:.1f} s; "
        f"delivered again, each explained: {books.explained_duplicates:,}; broken promises: {books.broken or 'none'}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
