"""Spark for notebooks and plain Python; under spark-submit the same settings come from ``conf/spark-defaults.conf``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from spark_queue import delta_jars

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
    """Set a session builder up for queues and Delta: jars, extension, catalog and the Python of the executors.

    Parameters
    ----------
    builder
        What ``SparkSession.builder`` gives; settings made on it afterwards win. Jars that ``spark.jars`` names already stay.
    packages
        Maven coordinates that Spark resolves beside, at each start.

    Returns
    -------
    SparkSession.Builder
        The same builder.

    Raises
    ------
    ConfigError
        DELTA_JARS_MISSING when Delta's jars are not on this machine, and cannot be fetched.
    """
    # Only this interpreter is known to have our packages; one that was chosen on purpose stands.
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ.update(worker_python())
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    if coordinates := ",".join(packages):
        builder = builder.config("spark.jars.packages", coordinates)
    options = builder._options  # noqa: SLF001 - A builder cannot be asked.
    # A server of Spark Connect has its own.
    if not options.get("spark.remote", "").startswith("sc:"):
        named = filter(None, options.get("spark.jars", "").split(","))
        builder = builder.config("spark.jars", ",".join([*named, *map(str, delta_jars.jars())]))
    return builder


def worker_python() -> dict[str, str]:
    """Return the environment in which the workers of a Spark are this interpreter.

    Spark asks a shell whether it is there, without quotes. So where its path has a space, or the like, it goes by its name alone.
    """
    if shlex.quote(sys.executable) == sys.executable:
        return {"PYSPARK_PYTHON": sys.executable}
    python = Path(sys.executable)
    return {"PYSPARK_PYTHON": python.name, "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
