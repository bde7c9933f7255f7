"""Which Java Spark would start, and that a wrong one is refused by name before a JVM is (JAVA_UNSUITABLE)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_queue import configure_spark, session
from spark_queue.cli import doctor
from spark_queue.errors import ConfigError

#: What a Java says, on stderr.
OPENJDK = '>&2 echo "Picked up JAVA_TOOL_OPTIONS: -Xmx1g"; >&2 echo \'openjdk version "{}" 2026-01-20\''


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the place of a host that has a shell, a Spark and no Java; `bin` is its PATH."""
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bash").symlink_to(bash)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "a spark"))
    for name in ("JAVA_HOME", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    # Python's own workers, and no jars: whoever fetches some here has gone on without a Java.
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    monkeypatch.setattr(session, "jars", lambda: [Path("delta.jar")])
    return tmp_path


def install(place: Path, script: str) -> Path:
    """Make a Java that answers as a script does, and return its home."""
    java = place / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(f"#!{shutil.which('bash')}\n{script}\n", encoding="utf-8")
    java.chmod(0o755)
    return place


@pytest.mark.parametrize(("said", "version"), [("17.0.16", 17), ("21", 21), ("21.0.8-ea", 21)])
def test_a_java_on_the_path_is_found(host: Path, said: str, version: int) -> None:
    install(host, OPENJDK.format(said))
    assert session.java() == (str(host / "bin" / "java"), version)
    assert configure_spark(SparkSession.Builder())._options["spark.jars"] == "delta.jar"


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (OPENJDK.format("11.0.20"), "and '{}' is Java 11."),
        (OPENJDK.format("1.8.0_292"), "and '{}' is Java 8."),
        (OPENJDK.format("25.0.1"), "and '{}' is Java 25."),
        ("echo no JVM here; exit 1", "and '{}' says no version but 'no JVM here'."),
        ("exit 1", "and '{}' says no version but ''."),
    ],
    ids=["11", "8", "25", "garbage", "nothing"],
)
def test_a_java_that_spark_does_not_run_on_is_refused(host: Path, script: str, found: str) -> None:
    install(host, script)
    with pytest.raises(ConfigError) as refusal:
        configure_spark(SparkSession.Builder())
    assert str(refusal.value).startswith("[JAVA_UNSUITABLE] Spark needs Java 17 or 21, ")
    assert found.format(host / "bin" / "java") in str(refusal.value)
    assert "set the environment variable JAVA_HOME to its directory" in str(refusal.value)


def test_no_java_at_all_is_refused(host: Path) -> None:
    with pytest.raises(ConfigError, match=r"JAVA_UNSUITABLE.*17 or 21, and there is no 'java'\."):
        configure_spark(SparkSession.Builder())
    (host / "bin" / "bash").unlink()
    with pytest.raises(ConfigError, match=r"JAVA_UNSUITABLE.*none could be started"):
        session.java()


def test_java_home_goes_before_the_path(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Spark's own scripts, which look no further where it names nothing."""
    install(host, OPENJDK.format("17.0.16"))
    monkeypatch.setenv("JAVA_HOME", str(install(host / "a jdk", OPENJDK.format("21.0.8"))))
    assert session.java() == (str(host / "a jdk" / "bin" / "java"), 21)
    monkeypatch.setenv("JAVA_HOME", str(host / "gone"))
    with pytest.raises(ConfigError, match="there is no '.*gone/bin/java'"):
        configure_spark(SparkSession.Builder())
    monkeypatch.setenv("JAVA_HOME", "")
    assert session.java() == (str(host / "bin" / "java"), 17)


def test_a_java_that_sparks_own_settings_name_is_the_one(host: Path) -> None:
    """Spark's scripts read spark-env.sh before they look for a Java."""
    install(host, OPENJDK.format("11.0.20"))
    jdk = install(host / "a jdk", OPENJDK.format("17.0.16"))
    script = host / "a spark" / "bin" / "load-spark-env.sh"
    script.parent.mkdir(parents=True)
    script.write_text(f"echo reading; JAVA_HOME='{jdk}'\n", encoding="utf-8")
    assert session.java() == (str(jdk / "bin" / "java"), 17)


def test_nobody_asks_for_a_java_where_no_jvm_is_started(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(host, f"echo asked >>'{host / 'asked'}'; {OPENJDK.format('11.0.20')}")
    assert "spark.jars" not in configure_spark(SparkSession.Builder().remote("sc://server"))._options
    with monkeypatch.context() as patch:
        patch.setenv("SPARK_REMOTE", "sc://server")
        assert "spark.jars" not in configure_spark(SparkSession.Builder())._options
    # What spark-submit tells the program that it has started.
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(session, "_check_submitted", lambda: None)
    options = configure_spark(SparkSession.Builder())._options
    assert options["spark.jars"] == "delta.jar"
    assert not options.keys() & session._OF_WORKERS.keys(), "spark-submit's own settings say it"
    assert not (host / "asked").exists()


def test_doctor_says_the_same_and_fails_nobody_who_runs_no_spark(host: Path) -> None:
    found = doctor._java()
    assert (found.result, found.found) == ("warning", "JAVA_UNSUITABLE")
    assert found.advice.endswith("The queue itself needs no Java.")
    install(host, OPENJDK.format("21.0.8"))
    assert (doctor._java().result, doctor._java().found) == ("ok", f"21 at {host / 'bin' / 'java'}")
