"""Burdens that a process of our own does without: memory of a moment ago, and pandas."""

from __future__ import annotations

import ctypes
import sys


def return_free_memory() -> None:
    """Return free memory to the system: with glibc, free pieces between others that stay do not go by themselves."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def leave_pandas_out() -> None:
    """Let this process do without pandas: 37 MiB, and a quarter of a coordinator's start.

    Nothing here uses it but callers that have it themselves. Arrow loads it, where it is installed, for the first array that it
    makes: to find out whether its values are of pandas.
    """
    sys.meta_path.insert(0, _NoPandas())


class _NoPandas:
    """Finder that says of pandas, and of nothing else, that it is not there."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002 - as Python calls it.
        if name == "pandas":
            raise ModuleNotFoundError("A process of spark_queue does without pandas.", name=name)
