"""A release does what README says where there is no checkout: it is built, installed in environments of its own, and used there."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.docs import pages, ways
from tests.release.installed import Installed, build, contents, sdist_in, wheel_in
from tests.source_tree import ROOT
from tests.unit.test_packaging import PROJECT

#: An extra may bring half a gigabyte; reached only when something hangs.
pytestmark = pytest.mark.timeout(1_800)

#: How many order lines the job consumes.
LINES = 1_000

#: A queue of the guide's, and what is published to it.
MAIL = """
[message_types.mail]
columns = "name STRING, address STRING"
topics = ["MAIL"]
[queues.MAIL]
underlying_topic = "MAIL"
dead_letter_queue = "FAILED"
[queues.FAILED]
message_type = "mail"
"""
MAILS = "name,address\nann,ann@shop.test\nnobody,\nbob,bob@slow.example\neve,eve@shop.test\n"


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Yield the wheel in an environment that goes with the tests, which add an extra after the other to it."""
    place = tmp_path_factory.mktemp("installed")
    found = Installed(place)
    found.install(str(wheel_in(dist)))
    yield found
    for journal in found.work.rglob("control"):
        found.run("sparkq", "stop", str(journal.parent))
    shutil.rmtree(place)


def test_the_wheel_has_what_is_in_the_repository_and_nothing_else(dist: Path) -> None:
    command = ["git", "ls-files", "spark_queue", "pyspark_sparkqueue.py"]
    tracked = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert {name for name in contents(wheel_in(dist)) if ".dist-info/" not in name} == set(tracked)


def test_the_sdist_gives_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    sdist = sdist_in(dist)
    with tarfile.open(sdist) as opened:
        opened.extractall(tmp_path, filter="data")
    rebuilt = build(tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path / "dist")
    assert contents(wheel_in(rebuilt)) == contents(wheel_in(dist))


def test_the_command_line_works_without_extras(installed: Installed) -> None:
    assert installed.says("sparkq", "--version") == f"sparkq {PROJECT['version']}\n"
    assert "doctor" in installed.says("sparkq", "--help")
    findings = {each["check"]: each for each in json.loads(installed.says("sparkq", "doctor", "--json"))}
    assert {findings[name]["result"] for name in ("python", "packages", "token", "store", "coordinator")} == {"ok"}
    (installed.work / "queues.toml").write_text(pages.example("defining"), encoding="utf-8")
    (installed.work / "orders.csv").write_text("item\nkettle\nlamp\n", encoding="utf-8")
    installed.says("sparkq", "init", "counter", "queues.toml")
    installed.says("sparkq", "publish", "counter", "orders.csv", "--topic", "ORDERS")
    assert json.loads(installed.says("sparkq", "peek", "counter", "WORK", "--json"))
    place = installed.says("python", "-c", "import spark_queue; print(spark_queue.__file__)")
    assert Path(place.strip()).is_relative_to(installed.python.parents[1])


def test_a_worker_needs_neither_spark_nor_java(installed: Installed) -> None:
    """As the guide shows it, before any test here has added Spark; the worker finds no program but those of its environment."""
    work, alone = installed.work, {"PATH": str(installed.python.parent)}
    (work / "mail.toml").write_text(MAIL, encoding="utf-8")
    (work / "mail.csv").write_text(MAILS, encoding="utf-8")
    installed.says("sparkq", "init", "shop", "mail.toml", **alone)
    installed.says("sparkq", "publish", "shop", "mail.csv", "--topic", "MAIL", **alone)
    (work / "worker.py").write_text(pages.example("processing"), encoding="utf-8")
    # Its threads print into each other.
    said = installed.says("python", "worker.py", **alone)
    assert [said.count(each) for each in ("mail to", "ann@shop.test", "eve@shop.test", "bob@", "2 sent")] == [2, 1, 1, 0, 1]
    (work / "mailer.py").write_text("def send(message):\n    pass\n", encoding="utf-8")
    installed.says("sparkq", "publish", "shop", "mail.csv", "--topic", "MAIL", **alone)
    assert installed.says("sparkq", "work", "shop", "MAIL", "mailer:send", "--until-empty", **alone).startswith("4 acknowledged")
    [status] = json.loads(installed.says("sparkq", "status", "shop", "MAIL", "--json", **alone))
    # One waits for its retry.
    assert (status["acknowledged"], status["dead_letters"], status["queue_depth"]) == (6, 1, 1)
    assert installed.run("python", "-c", "import pyspark", **alone).returncode == 1


def test_a_shell_completes_verbs(installed: Installed) -> None:
    completed = installed.says("sparkq", _SPARKQ_COMPLETE="complete_bash", COMP_WORDS="sparkq dead-l", COMP_CWORD="1")
    assert completed.split() == ["dead-letters"]
    # The shell that asks is the one that is told.
    assert "_sparkq_completion" in installed.says("bash", "-c", "sparkq --show-completion; exit")
    assert "bash completion installed" in installed.says("bash", "-c", "sparkq --install-completion; exit")
    assert "sparkq" in (installed.work / ".bashrc").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("extra", "refused", "module"),
    [
        ("dashboard", "dashboard", "spark_queue.dashboard.app"),
        ("metrics", "metrics", "spark_queue.metrics.prometheus"),
        # Nobody is refused for want of it: a queue works without.
        ("otel", "", "spark_queue.metrics.otlp, opentelemetry.exporter.otlp.proto.http.trace_exporter"),
    ],
)
def test_an_extra_is_missed_by_name_and_what_that_says_installs_it(
    installed: Installed, extra: str, refused: str, module: str
) -> None:
    installed.says("sparkq", "init", f"of-{extra}")
    if refused:
        done = installed.run("sparkq", refused, f"of-{extra}")
        assert done.returncode == 1
        assert f"pip install 'spark-queue[{extra}]'" in " ".join(done.stderr.split())
    # What is installed stays, whatever an index has.
    installed.install(f"spark-queue[{extra}]")
    installed.says("python", "-c", f"import {module}")
    if extra == "metrics":
        assert "sparkqueue_" in installed.says("sparkq", "metrics", f"of-{extra}")


def test_the_ways_in_and_out_and_a_submitted_job(installed: Installed) -> None:
    installed.install("spark-queue[spark]")
    work = installed.work
    of_readme = installed.elsewhere("readme")
    ways.write_definitions(of_readme.work)
    of_readme.says("sparkq", "init", "shop", "queues.toml")
    ways.write_world(of_readme.work)
    of_readme.says("sparkq", "apply", "shop", "queues.toml")
    said = of_readme.says("python", ways.write_program(of_readme.work))
    assert said.startswith(ways.PACKED)
    assert said.endswith(f"{ways.REFUNDS}\n")
    # The jobs are meant to be copied; their settings are those that the guide shows.
    shutil.copytree(ROOT / "jobs", work / "jobs", ignore=shutil.ignore_patterns("data", "__pycache__"))
    (work / "spark.conf").write_text(pages.example("submitting"), encoding="utf-8")
    shutil.copy(ROOT / "conf" / "queues.toml", work)
    installed.says("sparkq", "init", "journal", "queues.toml")
    with gzip.open(ROOT / "jobs" / "data" / "online-retail.csv.gz", "rt", encoding="utf-8") as lines:
        (work / "lines.csv").write_text("".join(islice(lines, LINES + 1)), encoding="utf-8")
    installed.says("python", "jobs/publish.py", "--journal", "journal", "--csv", "lines.csv")
    jars = installed.says("python", "-c", "from spark_queue import session; print(session.directory())").strip()
    installed.says(
        *("spark-submit", "--properties-file", "spark.conf", "--jars", f"{jars}/*.jar", "--master", "local[2]", "jobs/consume.py"),
        *("--journal", "journal", "--subscription", "east", "--table", "lines", "--checkpoint", "of-lines", "--until-empty"),
    )
    [status] = json.loads(installed.says("sparkq", "status", "journal", "ORDER_WORK", "--json"))
    # The close behind the lines is a barrier, which is released and not acknowledged.
    assert (status["queue_depth"], status["acknowledged"] + status["dead_letters"]) == (0, LINES)
