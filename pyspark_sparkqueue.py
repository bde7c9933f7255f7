"""Makes ``.format("sparkqueue")`` known to Spark, which imports every top-level module named ``pyspark_*``.

Importing it cannot fail where pyspark is installed: one broken module of that name would break every data source lookup.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Stands for `spark_queue.source.datasource.SparkQueueDataSource` until a source is made."""

    @classmethod
    def name(cls) -> str:
        """Return the short name of the format."""
        return "sparkqueue"

    def __new__(cls, options: dict[str, str]) -> Any:
        """Make the real source; where its packages are missing, say which and in which interpreter."""
        try:
            from spark_queue.source.datasource import SparkQueueDataSource  # noqa: PLC0415 - its failure is what is reported here.
        except ImportError as missing:
            text = (
                f"The data source 'sparkqueue' needs the Python package '{missing.name}', which {sys.executable} does not have. "
                "Install spark-queue into that interpreter on the driver and on every executor, or let PYSPARK_PYTHON name "
                "the interpreter that has it; `--py-files` cannot carry it."
            )
            raise ImportError(text, name=missing.name, path=missing.path) from missing
        return SparkQueueDataSource(options)
