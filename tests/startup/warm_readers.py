"""A process that has loaded what the reader of a peer needs, and is forked for each that a coordinator starts.

Nearly all that a reader costs a test is its imports.
"""

from __future__ import annotations

import importlib
import sys

from spark_queue import allocator
from tests.startup.handing_over import serve


def _read(pipe: int) -> None:
    from spark_queue.replication import sandbox

    sys.argv[1] = str(pipe)
    sandbox.main()


if __name__ == "__main__":
    allocator.leave_pandas_out()
    # A reader imports its puller with its first step.
    for name in ("spark_queue.replication.sandbox", "spark_queue.replication.puller", "spark_queue.replication.validation"):
        importlib.import_module(name)
    serve(sys.argv[1], _read)
