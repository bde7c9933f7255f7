"""Spark for notebooks and plain Python; under spark-submit the same settings come from ``conf/spark-defaults.conf``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta's default of 50 tasks costs seconds on small tables.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def configure_spark(builder: SparkSession.Builder, *, packages: Iterable[str] = ()) -> SparkSession.Builder:
    """Set a session builder up for queues and Delta: packages, extension, catalog and the Python of the executors.

    Parameters
    ----------
    builder
        What ``SparkSession.builder`` gives; settings made on it afterwards win.
    packages
        Maven coordinates to resolve beside Delta's.

    Returns
    -------
    SparkSession.Builder
        The same builder.
    """
    from delta import configure_spark_with_delta_pip  # noqa: PLC0415 - importing spark_queue needs no Spark.

    # Only this interpreter is known to have our packages; one that was chosen on purpose stands.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    return configure_spark_with_delta_pip(builder, extra_packages=list(packages))
