"""Spark on a far store: its own file system for it, S3A, as it comes, and a bucket at which it is tuned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tests.benchmarks.far_store.server import FarServer
from tests.benchmarks.figure import NotMeasuredError
from tests.benchmarks.spark import session
from tests.integration.s3_server import BUCKET
from tests.jvm import end_jvm
from tests.source_tree import ROOT

#: S3A's jars, where they were fetched (`make bench-s3a`).
JARS = ROOT / "build" / "s3a"

#: A bucket at which S3A leaves out all requests that it may.
TUNED_BUCKET = "tuned"

#: Checkpoints by one put a file, instead of a temporary one that is renamed; only for stores.
_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_BY_ONE_PUT = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"


def check_jars() -> None:
    """Refuse to measure where S3A is not at hand."""
    if not JARS.is_dir():
        raise NotMeasuredError("`make bench-s3a` fetches Spark's file system for S3")


@contextmanager
def far_session(server: FarServer, place: Path) -> Iterator[SparkSession]:
    """Run Spark with S3A in a Java of its own: jars on its class path are those from its start."""
    keys = server.options
    settings = {
        "spark.driver.extraClassPath": str(JARS / "*"),
        "spark.driver.memory": "3g",
        "spark.hadoop.fs.s3a.endpoint": server.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": keys["aws_region"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": keys["aws_access_key_id"],
        "spark.hadoop.fs.s3a.secret.key": keys["aws_secret_access_key"],
        f"spark.hadoop.fs.s3a.bucket.{TUNED_BUCKET}.performance.flags": "*",
    }
    end_jvm()
    try:
        with session(place, settings) as spark:
            yield spark
    finally:
        end_jvm()


def bucket(*, tuned: bool) -> str:
    """Return the bucket at which S3A is tuned, or the one at which it is not."""
    return TUNED_BUCKET if tuned else BUCKET


@contextmanager
def checkpoints(spark: SparkSession, *, tuned: bool) -> Iterator[None]:
    """Let queries that start in the block write their checkpoints as is best for a store, or as Spark does by default."""
    if tuned:
        spark.conf.set(_CHECKPOINTS, _BY_ONE_PUT)
    try:
        yield
    finally:
        spark.conf.unset(_CHECKPOINTS)
