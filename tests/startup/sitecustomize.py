"""What each Python does at first that tests start: `tools/test.sh` puts this directory onto ``PYTHONPATH``.

It loads PySpark from where it is installed, which a start of Python does by itself. Spark names its own zip of PySpark before that,
and the jar of its core, in which there is nothing for Python. Both are read for each task: their directories, thousands of names,
by Python code. That took a tenth of the processor time of the tests with Spark.

And it lets a process that is loaded already become the coordinator that was to be started on demand (`warm_coordinators.py`), or
what Spark was to start (`warm_spark.py`), or a coordinator to read a peer (`warm_readers.py`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path[:] = [entry for entry in sys.path if not entry.endswith(("/pyspark.zip", "-src.zip")) and "/jars/spark-core" not in entry]

_HERE = Path(__file__).parent

# Where other code is named first, a copy or a file that Spark ships, that has to be loaded.
_IS_OURS = Path(sys.path[0]) in (_HERE, _HERE.parents[1])

_SPARKS = (
    "pyspark.daemon",
    "pyspark.sql.connect.streaming.worker.foreach_batch_worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
)

if _IS_OURS and "WARM_COORDINATORS" in os.environ and sys.orig_argv[1:] == ["-m", "spark_queue.coordinator"]:
    from tests.startup.handing_over import hand_over

    hand_over(os.environ["WARM_COORDINATORS"])

if _IS_OURS and "WARM_SPARK" in os.environ and sys.orig_argv[1] == "-m" and sys.orig_argv[2] in _SPARKS:
    from tests.startup.handing_over import hand_over

    hand_over(os.environ["WARM_SPARK"], is_watched=True)

if _IS_OURS and "WARM_READERS" in os.environ and sys.orig_argv[1] == "-c" and "spark_queue.replication.sandbox" in sys.orig_argv[2]:
    from tests.startup.handing_over import hand_over

    # The first argument is the descriptor of its pipe.
    hand_over(os.environ["WARM_READERS"], is_watched=True, descriptors=[int(sys.orig_argv[3])])
