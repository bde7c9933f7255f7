"""Where Delta's jars come from: found whole or not at all, fetched by one process at a time, whatever was killed before."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import psutil
import pytest

from spark_queue import session
from spark_queue.errors import ConfigError
from tests.source_tree import ROOT

#: Ends the wait for a process; reached only when something hangs.
WAIT_S = 60

#: Stands for Spark: puts a jar where `spark.jars.ivy` says, half of it first, and counts how often it was asked.
SUBMIT = """#!/usr/bin/env bash
for argument; do [[ $argument != spark.jars.ivy=* ]] || ivy=${argument#*=}; done
echo asked >>"$FAKE/asked"
mkdir "$ivy/jars"
printf half >"$ivy/jars/delta.jar"
"""

Fake = Callable[[str], Path]

#: What the fake Spark brings when nothing is wrong.
KNOWN = {"delta.jar": hashlib.sha256(b"a whole").hexdigest()}

FETCH = [
    sys.executable, "-c", f"from spark_queue import session; session.SHA256 = {KNOWN}; print(*session.jars())",
]  # fmt: skip


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Return what makes a Spark whose `spark-submit` goes on as a script says, beside an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "a spark"))
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setattr(session, "SHA256", KNOWN)

    def make(script: str) -> Path:
        submit = tmp_path / "a spark" / "bin" / "spark-submit"
        submit.parent.mkdir(parents=True, exist_ok=True)
        submit.write_text(SUBMIT + script, encoding="utf-8")
        submit.chmod(0o755)
        return tmp_path

    return make


def test_jars_are_fetched_once_and_found_from_then_on(fake: Fake) -> None:
    place = fake('printf "a whole" >"$ivy/jars/delta.jar"')
    assert session.found() == []
    [jar] = session.jars()
    assert (jar.parent, jar.read_text()) == (session.directory(), "a whole")
    assert session.jars() == session.found() == [jar]
    assert (place / "asked").read_text() == "asked\n"
    assert {path.name for path in jar.parent.parent.iterdir()} == {jar.parent.name, f"{jar.parent.name}.lock"}


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ('printf "a hole" >"$ivy/jars/delta.jar"', "delta.jar"),
        ('printf "a whole" >"$ivy/jars/delta.jar"; printf more >"$ivy/jars/other.jar"', "other.jar"),
        ('rm "$ivy/jars/delta.jar"', "delta.jar"),
    ],
    ids=["another one", "one more", "one less"],
)
def test_jars_that_are_not_the_known_ones_are_never_found(fake: Fake, script: str, named: str) -> None:
    """What a Maven repository gives runs as the user: whoever can change it must not."""
    fake(script)
    with pytest.raises(ConfigError, match=rf"DELTA_JARS_MISSING.*not what its authors published, in {named} \("):
        session.jars()
    assert session.found() == []
    fake('printf "a whole" >"$ivy/jars/delta.jar"')
    assert [jar.name for jar in session.jars()] == ["delta.jar"]


def test_the_known_jars_are_of_the_version_that_is_asked_for() -> None:
    """Also those that this machine has, which somebody fetched once."""
    group, artifact, version = session.coordinates().split(":")
    assert f"{group}_{artifact}-{version}.jar" in session.SHA256
    assert {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in session.found()} in ({}, session._known())


def test_processes_that_start_at_once_fetch_once_and_all_find_the_jars(fake: Fake) -> None:
    place = fake('read -r -t 1 <>"$FAKE/nothing"; printf "a whole" >"$ivy/jars/delta.jar"')
    os.mkfifo(place / "nothing")
    started = [subprocess.Popen(FETCH, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    told = {process.communicate(timeout=WAIT_S)[0] for process in started}
    assert told == {f"{session.directory() / 'delta.jar'}\n"}
    assert (place / "asked").read_text() == "asked\n"


def test_a_killed_fetch_leaves_nothing_that_is_found_and_the_next_begins_anew(fake: Fake) -> None:
    place = fake('echo $$ >"$FAKE/ready"; read -r <>"$FAKE/nothing"')
    for pipe in ("ready", "nothing"):
        os.mkfifo(place / pipe)
    killed = subprocess.Popen(FETCH, cwd=ROOT, stderr=subprocess.DEVNULL)
    downloader = psutil.Process(int((place / "ready").read_text()))
    killed.send_signal(signal.SIGKILL)
    killed.wait(WAIT_S)
    assert session.found() == []
    fake('printf "a whole" >"$ivy/jars/delta.jar"')
    waiting = subprocess.Popen(FETCH, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    # What downloads for the dead process still writes, so nobody else may begin.
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(2)
    downloader.kill()
    assert waiting.communicate(timeout=WAIT_S)[0].strip() == str(session.directory() / "delta.jar")
    assert session.found()[0].read_text() == "a whole"


def test_a_fetch_that_fails_tells_the_reason_where_the_rest_stands_and_what_to_do(fake: Fake) -> None:
    fake('printf "no network: delta not found\\n\\tat Maven.java:1\\n\\n" >&2; exit 1')
    with pytest.raises(
        ConfigError, match=r"DELTA_JARS_MISSING.*'no network: delta not found'.*draft/log.*doctor --fetch"
    ) as refusal:
        session.jars()
    assert "Maven.java" not in str(refusal.value)
    assert session.found() == []


def test_a_cache_that_cannot_be_written_is_named_with_the_variable_that_moves_it(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    with pytest.raises(ConfigError, match=r"DELTA_JARS_MISSING.*Not a directory.*/dev/null/nowhere.*XDG_CACHE_HOME"):
        session.jars()


def test_without_the_package_that_names_the_version_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(session, "version", version)
    with pytest.raises(ConfigError, match=r"DELTA_JARS_MISSING.*'pyspark'.*Install spark-queue\[spark\]"):
        session.jars()


def test_the_cache_lies_in_the_home_directory_unless_it_was_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert session.directory().parent == tmp_path / ".cache" / "spark_queue"
