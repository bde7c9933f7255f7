"""Lets ``python -m spark_queue.cli`` run the command line."""

from __future__ import annotations

from spark_queue.cli import main

main()
