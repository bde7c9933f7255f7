"""Spark for notebooks and plain Python; under spark-submit the same settings come from ``conf/spark-defaults.conf``.

Delta's jars for Spark: fetched once for a user by Spark's own package resolution, found by every start after that.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import TYPE_CHECKING

from spark_queue.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)

_ONE_BATCH = "A query with availableNow ends after one batch of at most `maxBacklog` messages: start it again until it finds none."
_NO_FIGURES = "Spark's progress does not show the queue's figures."
_NO_DELTA = "Delta is not built for it: a session has no Delta tables of Spark's own. Queues, and `into` a table, need none."

#: The Sparks that queues run on, and the lacks of each.
LACKS: dict[str, tuple[str, ...]] = {
    "4.0": (_ONE_BATCH, _NO_FIGURES),
    "4.1": (_ONE_BATCH, _NO_FIGURES),
    "4.2": (),
    "4.3": (_NO_DELTA,),
}

#: Scala of the Spark that pip installs.
_SCALA = "2.13"

#: Delta names older versions of jars that Spark already brings; without them there are 13 MB to fetch instead of 86.
_BROUGHT_BY_SPARK = ",".join(
    f"{group}:*"
    for group in (
        *("com.fasterxml.jackson.core", "com.github.luben", "com.google.code.findbugs", "commons-logging", "commons-pool"),
        *("io.airlift", "javax.annotation", "org.apache.hadoop", "org.apache.logging.log4j", "org.apache.parquet"),
        *("org.locationtech.jts", "org.roaringbitmap", "org.slf4j", "org.xerial.snappy"),
    )
)

#: The Delta that is fetched. It is built for some Sparks, and not for those of which nothing stands here.
_DELTA = "4.4.0"
_OF_SPARK = {
    "4.0": "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104",
    "4.1": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    "4.2": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
}

#: The jars to fetch, with the SHA-256 of each: a repository may be named by anybody's settings, and its jars run as the user.
SHA256 = {
    "com.fasterxml.jackson.datatype_jackson-datatype-jdk8-2.13.5.jar":
        "e58761751fea8a00dc626aae1c5f1be38c5cfd487aeb333d933a4ab5f5a73c55",
    "io.delta_delta-kernel-api-4.4.0.jar": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    "io.delta_delta-kernel-defaults-4.4.0.jar": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    "io.delta_delta-kernel-unitycatalog-4.4.0.jar": "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    **{f"io.delta_delta-spark_{spark}_{_SCALA}-{_DELTA}.jar": digest for spark, digest in _OF_SPARK.items()},
    "io.delta_delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar": "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar": "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150",
}  # fmt: skip


def jars() -> list[Path]:
    """Return the jars, fetching missing ones; where another process is fetching, wait for it.

    There are none for a Spark that Delta is not built for: see `has_delta`.

    Raises
    ------
    ConfigError
        DELTA_JARS_MISSING when they cannot be fetched, or are not the ones that are known.
    """
    return found() or (_fetched() if has_delta() else [])


def found() -> list[Path]:
    """Return the jars that are there: all or none."""
    return sorted(directory().glob("*.jar"))


def _known() -> dict[str, str]:
    """Return the jars to fetch for the installed Spark."""
    others = {f"io.delta_delta-spark_{spark}_{_SCALA}-{_DELTA}.jar" for spark in _OF_SPARK.keys() - {spark_minor()}}
    return {jar: digest for jar, digest in SHA256.items() if jar not in others}


def directory() -> Path:
    """Return the directory of the jars that fit the installed packages, whether it is there or not."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "spark_queue" / coordinates().partition(":")[2].replace(":", "-")


def coordinates() -> str:
    """Return the Maven coordinates of Delta for the installed Spark, as the package `delta` would."""
    return f"io.delta:delta-spark_{spark_minor()}_{_SCALA}:{_DELTA}"


def has_delta() -> bool:
    """Return whether there is a Delta for the installed Spark; without it a session reads and writes no Delta tables by itself.

    Raises
    ------
    ConfigError
        DELTA_JARS_MISSING where pyspark is not installed.
    """
    return spark_minor() in _OF_SPARK


def spark_minor() -> str:
    """Return the installed Spark's version as `LACKS` names it.

    Raises
    ------
    ConfigError
        DELTA_JARS_MISSING where pyspark is not installed.
    """
    try:
        return ".".join(version("pyspark").split(".")[:2])
    except PackageNotFoundError as missing:
        reason = f"the Python package '{missing.name}' tells which, and {sys.executable} does not have it."
        raise ConfigError("DELTA_JARS_MISSING", reason=reason, next_step="Install spark-queue[spark].") from None


def spark_home() -> Path:
    """Return the Spark that this interpreter starts: the one that SPARK_HOME names, or pip's, which is not imported for it."""
    named = os.environ.get("SPARK_HOME")
    return Path(named) if named else Path(str(distribution("pyspark").locate_file("pyspark")))


def _fetched() -> list[Path]:
    folder = directory()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not found():
                _fetch(folder, lock.fileno())
    except OSError as failure:
        reason = f"they cannot be stored: {failure}."
        next_step = "Let the environment variable XDG_CACHE_HOME name a directory that this user may write."
        raise ConfigError("DELTA_JARS_MISSING", reason=reason, next_step=next_step) from failure
    return found()


def _fetch(folder: Path, lock: int) -> None:
    _LOG.warning("Delta's jars for Spark are fetched into %s, this once.", folder)
    draft = folder.with_name(f"{folder.name}.draft")
    # Leftovers of a process that was killed.
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    _resolve(draft, lock)
    _check(draft / "jars")
    shutil.rmtree(folder, ignore_errors=True)
    (draft / "jars").rename(folder)
    shutil.rmtree(draft)


def _check(fetched: Path) -> None:
    """Refuse jars that are not the ones that are known; they stay in the draft, where nobody uses them."""
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in fetched.glob("*.jar")}
    known = _known()
    strange = sorted(name for name in found.keys() | known.keys() if found.get(name) != known.get(name))
    if strange:
        reason = f"what was fetched for {coordinates()} is not what its authors published, in {', '.join(strange)} ({fetched})."
        next_step = "See which Maven repository `spark.jars.ivySettings` in Spark's spark-defaults.conf names."
        raise ConfigError("DELTA_JARS_MISSING", reason=reason, next_step=next_step)


def _resolve(ivy: Path, lock: int) -> None:
    """Let Spark resolve, as it does before any program: with the repositories and settings that its spark-defaults.conf names."""
    home, nothing, log = spark_home(), ivy / "nothing.py", ivy / "log"
    nothing.touch()
    environment = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [str(home / "bin" / "spark-submit"), "--master", "local", "--deploy-mode", "client", "--packages", coordinates()]
    command += ["--exclude-packages", _BROUGHT_BY_SPARK, "--conf", f"spark.jars.ivy={ivy}", str(nothing)]
    with log.open("wb") as output:
        given = os.environ | environment
        done = subprocess.run(
            command, env=given, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, pass_fds=(lock,)
        )
    if done.returncode:
        # Frames of Java's stack are indented.
        said = [line for line in log.read_text(errors="replace").splitlines() if line.strip() == line != ""]
        reason = f"Spark's package resolution failed with '{said[-1] if said else 'nothing said'}' (all of it: {log})."
        next_step = (
            "See that a Maven repository can be reached (`spark.jars.ivySettings` in Spark's spark-defaults.conf may name "
            "another), and run `sparkq doctor --fetch`."
        )
        raise ConfigError("DELTA_JARS_MISSING", reason=reason, next_step=next_step)


_SETTINGS = {"spark.sql.session.timeZone": "UTC"}

#: How Spark, from 4.1 on, speaks with its Python workers. Over TCP each task of a Python source waits 40 ms (measured): the second
#: of two small writes waits for the acknowledgement of the first, which is delayed.
_OF_WORKERS = {
    "spark.python.unix.domain.socket.enabled": "true",
    # By default in a folder of the Java process. That of a YARN container is longer than a socket's path may be.
    "spark.python.unix.domain.socket.dir": "/tmp",  # noqa: S108 - Spark draws the names.
}

_OF_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta's default of 50 tasks costs seconds on small tables.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def configure_spark(builder: SparkSession.Builder, *, packages: Iterable[str] = ()) -> SparkSession.Builder:
    """Set a session builder up for queues and Delta: jars, extension, catalog, the Python of the executors and its sockets.

    For a Spark that Delta is not built for, it is set up for queues alone, which need none; a warning says so.

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
        JAVA_UNSUITABLE when Spark would start no Java, or one that it does not run on; DELTA_JARS_MISSING when Delta's jars are
        not on this machine, and cannot be fetched, or not in the Java that spark-submit has started.
    """
    # Only this interpreter is known to have our packages; one that was chosen on purpose stands.
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ.update(worker_python())
    options = builder._options  # noqa: SLF001 - A builder cannot be asked.
    # A server of Spark Connect has its own Java and jars.
    is_remote = options.get("spark.remote", os.environ.get("SPARK_REMOTE", "")).startswith("sc:")
    with_delta = is_remote or has_delta()
    # Under spark-submit a JVM runs already, as its own settings say.
    starts_jvm = not is_remote and "PYSPARK_GATEWAY_PORT" not in os.environ
    if not with_delta:
        _LOG.warning("Spark %s: %s", version("pyspark"), _NO_DELTA)
    for key, value in (_SETTINGS | (_OF_WORKERS if starts_jvm else {}) | (_OF_DELTA if with_delta else {})).items():
        builder = builder.config(key, value)
    if coordinates := ",".join(packages):
        builder = builder.config("spark.jars.packages", coordinates)
    if starts_jvm:
        java()
    if not is_remote and with_delta:
        if not starts_jvm:
            _check_submitted()
        named = filter(None, options.get("spark.jars", "").split(","))
        builder = builder.config("spark.jars", ",".join([*named, *map(str, jars())]))
    return builder


def _check_submitted() -> None:
    """Refuse a Java that was started without Delta: the first query would fail in it, or the first batch, for a class."""
    from pyspark import SparkContext  # noqa: PLC0415 - Plain Python asks this module for jars, and has no pyspark.

    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - There is no other way to ask.
        return
    SparkContext._ensure_initialized()  # noqa: SLF001 - What the builder does next.
    loader = SparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]  # noqa: SLF001
    try:
        loader.loadClass(_OF_DELTA["spark.sql.catalog.spark_catalog"])
    except Exception:  # noqa: BLE001 - py4j's error of Java's ClassNotFoundException.
        reason = "spark-submit had started Java before this program ran, without them."
        next_step = f"Start the job with `spark-submit --jars '{directory()}/*.jar'`; `sparkq doctor --fetch` puts them there."
        raise ConfigError("DELTA_JARS_MISSING", reason=reason, next_step=next_step) from None


def worker_python() -> dict[str, str]:
    """Return the environment in which the workers of a Spark are this interpreter.

    Spark asks a shell whether it is there, without quotes. So where its path has a space, or the like, it goes by its name alone.
    """
    if shlex.quote(sys.executable) == sys.executable:
        return {"PYSPARK_PYTHON": sys.executable}
    python = Path(sys.executable)
    return {"PYSPARK_PYTHON": python.name, "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


#: Java versions that Spark runs on.
JAVA_VERSIONS = (17, 21)

#: Starts the Java that Spark's script `spark-class` would, by the settings of spark-env.sh, and prints its path on a line before.
_JAVA_VERSION = """
[ ! -r "$SPARK_HOME/bin/load-spark-env.sh" ] || . "$SPARK_HOME/bin/load-spark-env.sh" >/dev/null 2>&1
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
command -v "$java" || { echo "$java"; exit 127; }
"$java" -version 2>&1
"""
_NOT_FOUND = 127

#: How long Java may need to print its version, in seconds.
_JAVA_S = 60


def java() -> tuple[str, int]:
    """Return the path of the Java that Spark starts, which JAVA_HOME names or else PATH has, and its version.

    Raises
    ------
    ConfigError
        JAVA_UNSUITABLE when there is none, or Spark does not run on it.
    """
    home = {}
    with suppress(PackageNotFoundError):
        home["SPARK_HOME"] = str(spark_home())
    try:
        done = subprocess.run(
            ["bash", "-c", _JAVA_VERSION],  # noqa: S607 - Spark's scripts use the PATH's, too.
            env=os.environ | home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace", timeout=_JAVA_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise ConfigError("JAVA_UNSUITABLE", found=f"none could be started: {failure}") from failure
    path, _, answer = done.stdout.partition("\n")
    # Until Java 8 versions began with 1.
    told = re.search(r'version "(?:1\.)?(\d+)', answer)
    if told is None:
        is_missing = done.returncode == _NOT_FOUND and not answer
        found = f"there is no '{path}'" if is_missing else f"'{path}' says no version but '{answer.strip()[:100]}'"
        raise ConfigError("JAVA_UNSUITABLE", found=found)
    if int(told[1]) not in JAVA_VERSIONS:
        raise ConfigError("JAVA_UNSUITABLE", found=f"'{path}' is Java {told[1]}")
    return path, int(told[1])
