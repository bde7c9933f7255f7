"""Starting a coordinator as a process of its own: exec'ed, never forked with state, detached, with its options on stdin."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import msgspec

from spark_queue.errors import CoordinatorError, error
from spark_queue.journal.store import Store
from spark_queue.protocol import user_files
from spark_queue.protocol.host import Report, StartOptions, location_of

_MODULE = "spark_queue.coordinator"

#: A coordinator lives long and holds little, but recovery and large calls need memory for a while: it goes back to the system
#: instead of waiting for the next of them. Other systems than Linux ignore these variables.
_FRUGAL = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(128 * 1024),
    "MALLOC_MMAP_THRESHOLD_": str(128 * 1024),
}


def launch(options: StartOptions, *, timeout_s: float) -> str:
    """Start a coordinator process and return the address that serves now: its own, or that of one it found alive."""
    location = location_of(Store(options.path, options.storage_options))
    log = user_files.open_log(options.journal_id, location)
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(),
            start_new_session=True,
        )
    finally:
        os.close(log)
    # It lives on after this call; its exit status must be collected while this process lives.
    threading.Thread(target=child.wait, name="coordinator-exit", daemon=True).start()
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdout:
        _send(child.stdin, options)
        line = _read_line(child.stdout, timeout_s)
    return _address(line, options.path, str(user_files.log_path(options.journal_id, location)), timeout_s)


def environment() -> dict[str, str]:
    """Return the environment of a coordinator process."""
    # The child must run the same code as its starter, which may have found it through sys.path alone, as under spark-submit.
    root = str(Path(__file__).parents[2])
    known = os.environ.get("PYTHONPATH", "")
    return {**_FRUGAL, **os.environ, "PYTHONPATH": os.pathsep.join([root, known] if known else [root])}


def _send(pipe: IO[bytes], options: StartOptions) -> None:
    try:
        with pipe:
            pipe.write(msgspec.json.encode(options))
    except BrokenPipeError:
        # It ended before it read: the missing report says so better than this would.
        pass


def _read_line(pipe: IO[bytes], timeout_s: float) -> bytes | None:
    """Return the report; empty when the child ended without one, None when the time is over."""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        return pipe.readline() if selector.select(timeout_s) else None


def _address(line: bytes | None, path: str, log: str, timeout_s: float) -> str:
    if not line:
        reason = f"it did not report within {timeout_s:.0f} s." if line is None else "it ended without a report."
        raise CoordinatorError("COORDINATOR_UNAVAILABLE", path=path, reason=reason, log=log)
    try:
        report = msgspec.json.decode(line, type=Report)
    except msgspec.DecodeError:
        reason = "its report cannot be read."
        raise CoordinatorError("COORDINATOR_UNAVAILABLE", path=path, reason=reason, log=log) from None
    if report.address is None:
        raise error(str(report.code), report.facts)
    return report.address
