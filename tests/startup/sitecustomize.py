"""Lets each Python that Spark starts load PySpark from where it is installed, which a start of Python does by itself.

Spark names its own zip of PySpark before that, and the jar of its core, in which there is nothing for Python. Both are read for
each task: their directories, thousands of names, by Python code. That took a tenth of the processor time of the tests with Spark.
`tools/test.sh` puts this directory onto `PYTHONPATH`.
"""

from __future__ import annotations

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith(("/pyspark.zip", "-src.zip")) and "/jars/spark-core" not in entry]
