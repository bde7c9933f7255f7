"""A process that has loaded what Spark's Pythons need, and is forked for each that Spark starts.

Each start of a query starts some, whose imports cost several times what they do then: numpy, Arrow, pandas, PySpark, and modules
that plan a read. Spark's daemon loads nothing before it forks a worker, so that each worker would load them again.
"""

from __future__ import annotations

import importlib
import sys

from tests.startup.handing_over import serve

#: They are run, not imported; what they import is loaded.
_PROGRAMS = (
    "pyspark.daemon",
    "pyspark.sql.connect.streaming.worker.foreach_batch_worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
)

_LOADED = (
    "pandas",
    "pyarrow.flight",
    "pyarrow.parquet",
    "pyspark.worker",
    "pyspark.sql.pandas.types",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "spark_queue.source.datasource",
    "spark_queue.source.loading",
    "spark_queue.source.planner",
    "spark_queue.source.writing",
)

if __name__ == "__main__":
    for name in (*_PROGRAMS, *_LOADED):
        importlib.import_module(name)
    for name in _PROGRAMS:
        del sys.modules[name]
    serve(sys.argv[1])
