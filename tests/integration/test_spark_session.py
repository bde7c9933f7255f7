"""The session that tests and notebooks get, and the file that spark-submit reads, set Spark up alike (DESIGN 9)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from spark_queue import configure_spark
from spark_queue.session import coordinates, found, worker_python
from tests.source_tree import ROOT

#: Four starts side by side on a busy machine; reached only when something hangs.
START_S = 800


def submitted_settings() -> dict[str, str]:
    """Read conf/spark-defaults.conf as java.util.Properties does, as far as the file goes."""
    text = (ROOT / "conf" / "spark-defaults.conf").read_text(encoding="utf-8")
    joined = "".join(part if number == 0 else part.lstrip() for number, part in enumerate(text.split("\\\n")))
    lines = [line.split(maxsplit=1) for line in joined.splitlines() if line and not line.startswith("#")]
    return {key: value.strip() for key, value in lines}


def test_session_settings_are_those_of_the_submitted_jobs() -> None:
    settings = dict(configure_spark(SparkSession.Builder())._options)
    submitted = submitted_settings()
    linked = {path.resolve() for path in ROOT.glob(submitted.pop("spark.jars"))}
    assert {Path(path) for path in settings.pop("spark.jars").split(",")} == linked
    assert settings.items() <= submitted.items()


def test_coordinates_are_those_that_delta_would_resolve() -> None:
    settings = configure_spark_with_delta_pip(SparkSession.Builder())._options
    assert coordinates() == settings["spark.jars.packages"]


def test_jars_and_packages_of_the_caller_stay() -> None:
    builder = SparkSession.Builder().config("spark.jars", "own.jar")
    settings = configure_spark(builder, packages=["a:b:1", "c:d:2"])._options
    assert settings["spark.jars"].split(",") == ["own.jar", *map(str, found())]
    assert settings["spark.jars.packages"] == "a:b:1,c:d:2"


def test_client_of_a_connect_server_needs_no_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "spark.jars" not in configure_spark(SparkSession.Builder().remote("sc://server"))._options
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("executable", "given"),
    [
        ("/opt/venv/bin/python", {"PYSPARK_PYTHON": "/opt/venv/bin/python"}),
        ("/opt/my venv/bin/python3", {"PYSPARK_PYTHON": "python3", "PATH": "/opt/my venv/bin:/usr/bin:/bin"}),
    ],
)
def test_workers_are_this_python_also_where_its_path_has_a_space(
    executable: str, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark runs ``command -v`` on it without quotes, and finds no Python data source where that fails."""
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert worker_python() == given
    configure_spark(SparkSession.Builder())
    assert {name: os.environ[name] for name in given} == given


#: Each start makes sure of Delta's catalog, which stands in the jars.
START = """
from pyspark.sql import SparkSession
from spark_queue import configure_spark
spark = configure_spark(SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")).getOrCreate()
spark.sql("SHOW TABLES").collect()
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.delta
@pytest.mark.timeout(START_S + 100)
def test_sessions_that_start_at_once_on_an_empty_cache_fetch_once_and_all_work(tmp_path: Path) -> None:
    """The repository is one on disk, made of the jars that set-up has fetched: no test needs a network."""
    (tmp_path / "spark-defaults.conf").write_text(f"spark.jars.ivySettings {repository(tmp_path)}\n", encoding="utf-8")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "an empty cache"), "SPARK_CONF_DIR": str(tmp_path)}
    command = [sys.executable, "-c", START]
    sessions = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [session.communicate(timeout=START_S)[1] for session in sessions]
    assert [session.returncode for session in sessions] == [0] * 2, told
    assert sum(text.count("are fetched into") for text in told) == 1
    [jars, lock] = sorted((tmp_path / "an empty cache" / "spark_queue").iterdir())
    assert (lock.name, {path.name for path in jars.iterdir()}) == (f"{jars.name}.lock", {path.name for path in found()})


def repository(place: Path) -> Path:
    """Lay the jars out as a Maven repository, of which Delta's needs the others, and give the settings that name it to Ivy."""
    modules = []
    for jar in found():
        # The name that Spark gives a jar: group_artifact-version.jar, where a group has no underscore.
        group, _, rest = jar.stem.partition("_")
        artifact, _, version = rest.rpartition("-")
        modules.append((group, artifact, version, jar))
    for group, artifact, version, jar in modules:
        folder = place.joinpath("repository", *group.split("."), artifact, version)
        folder.mkdir(parents=True)
        (folder / f"{artifact}-{version}.jar").symlink_to(jar)
        needs = modules if artifact.startswith("delta-spark_") else []
        others = "".join(f"<dependency>{_named(*other[:3])}</dependency>" for other in needs if other[1] != artifact)
        itself = f"<modelVersion>4.0.0</modelVersion>{_named(group, artifact, version)}"
        pom = f"<project>{itself}<dependencies>{others}</dependencies></project>"
        (folder / f"{artifact}-{version}.pom").write_text(pom, encoding="utf-8")
    settings = place / "ivysettings.xml"
    root = (place / "repository").as_uri()
    settings.write_text(
        f'<ivysettings><settings defaultResolver="disk"/><resolvers><ibiblio name="disk" m2compatible="true" root="{root}"/>'
        "</resolvers></ivysettings>",
        encoding="utf-8",
    )
    return settings


def _named(group: str, artifact: str, version: str) -> str:
    return f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"


@pytest.mark.delta
def test_session_writes_delta_and_reads_it_back(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    spark.range(3).write.format("delta").save(path)
    assert_df_equality(spark.read.format("delta").load(path), spark.range(3), ignore_nullable=True, ignore_row_order=True)
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.parametrize(("name", "kept"), [("FileContextBased", "again"), ("FileSystemBased", "once")])
def test_the_default_alone_replaces_the_files_of_a_batch_that_runs_again(
    spark: SparkSession, tmp_path: Path, name: str, kept: str
) -> None:
    """Why `configure_spark` leaves the class of Spark's checkpoint files alone, though another one is faster."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext._jsc
    streaming = jvm.org.apache.spark.sql.execution.streaming
    package = streaming if spark.version.startswith("4.0") else streaming.checkpointing
    path, configuration = jvm.org.apache.hadoop.fs.Path, context.hadoopConfiguration()
    files = getattr(package, f"{name}CheckpointFileManager")(path(str(tmp_path)), configuration)
    replaces = True
    for text in ("once", "again"):
        # As a state store writes the changes of a batch.
        stream = files.createAtomic(path(str(tmp_path / "1.delta")), replaces)
        stream.write(bytearray(text.encode()))
        stream.close()
    assert (tmp_path / "1.delta").read_text(encoding="utf-8") == kept
    assert "spark.sql.streaming.checkpointFileManagerClass" not in configure_spark(SparkSession.Builder())._options
