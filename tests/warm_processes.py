"""Processes that have loaded much, and are forked for those that are to be started (`startup/handing_over.py`)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import ROOT

#: The environment variable that says where a process is that becomes each reader of a peer.
READERS_VARIABLE = "WARM_READERS"


@contextlib.contextmanager
def warm(program: str, place: Path, *arguments: str, environment: dict[str, str]) -> Iterator[str]:
    """Run a program of `tests/startup` until the end of the block, and yield the address at which it is forked."""
    address = str(place / "warm")
    command = [sys.executable, "-m", f"tests.startup.{program}", address, *arguments]
    # A forked process keeps what the system shows as its environment: no test is its starter.
    around = {name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=around | {"OPENBLAS_NUM_THREADS": "1"}, cwd=ROOT) as process:
        try:
            yield address
        finally:
            assert process.stdin is not None
            process.stdin.close()


@contextlib.contextmanager
def warm_spark(place: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a JVM whose Pythons are forked until the end of the block."""
    # Spark gives its Pythons this seed of hashes, and has what they print at once.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}
    with warm("warm_spark", place, environment=environment) as address:
        yield {"WARM_SPARK": address}


@contextlib.contextmanager
def warm_readers(place: Path) -> Iterator[None]:
    """Let processes that read a peer be forked, until the end of the block, from a process that is loaded already."""
    with warm("warm_readers", place, environment=dict(os.environ)) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv(READERS_VARIABLE, address)
        yield
