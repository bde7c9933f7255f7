"""A process that has loaded what a coordinator needs, and is forked for each that is to be started on demand.

Three quarters of what a coordinator costs a test are its imports, hundreds of times. What is forked has served nothing and knows
nothing: it reads its orders from its own stdin, as one that was started does.
"""

from __future__ import annotations

import importlib
import sys

from spark_queue import allocator
from tests.startup.handing_over import serve

if __name__ == "__main__":
    allocator.leave_pandas_out()
    for name in ("pyarrow.flight", "spark_queue.coordinator.logs", "spark_queue.coordinator.process"):
        importlib.import_module(name)
    serve(sys.argv[1])
