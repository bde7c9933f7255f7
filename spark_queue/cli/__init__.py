"""``sparkq``: looking after journals from a terminal. Nothing here needs Spark or Java."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from spark_queue.cli.app import run

    run()
