"""The Java process behind this Python's Spark sessions, which outlives each of them."""

from __future__ import annotations

import subprocess

from pyspark import SparkContext

_END_S = 120


def end_jvm() -> None:
    """End it, if it runs, and wait until it has; the next session starts another, with a class path of its own."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    assert process.stdin is not None, "its end ends the JVM"
    process.stdin.close()
    process.wait(_END_S)
    SparkContext._gateway = SparkContext._jvm = None
