"""A process that has loaded what a coordinator needs, and is forked for each that is to be started on demand.

Three quarters of what a coordinator costs a test are its imports, hundreds of times. What is forked has served nothing and knows
nothing: it reads its orders from its own stdin, as one that was started does.
"""

from __future__ import annotations

import gc
import importlib
import runpy
import selectors
import signal
import socket
import sys

from spark_queue import allocator
from tests.startup.handing_over import fork_for

_MODULE = "spark_queue.coordinator"


def _main(address: str) -> None:
    _load()
    # Ctrl-C is for the tests, whose end is the end of stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if _is_forked(address):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        runpy.run_module(_MODULE, run_name="__main__", alter_sys=True)


def _load() -> None:
    allocator.leave_pandas_out()
    for name in ("pyarrow.flight", "spark_queue.coordinator.logs", "spark_queue.coordinator.process"):
        importlib.import_module(name)
    # Pages that the collector of cycles does not touch stay shared.
    gc.collect()
    gc.freeze()


def _is_forked(address: str) -> bool:
    """Fork for each who asks until stdin ends; return whether this is a forked process."""
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as selector:
        listening.bind(address)
        listening.listen(128)
        selector.register(listening, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while all(key.fileobj is listening for key, _ in selector.select()):
            caller, _ = listening.accept()
            with caller:
                if fork_for(caller):
                    return True
    return False


if __name__ == "__main__":
    _main(sys.argv[1])
