"""A release can be installed from either of its files, with each extra and each Python, and the report says how large that is."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_queue.cli.doctor import PYTHON_VERSIONS
from tests.licences import unknown_parts
from tests.release import bill
from tests.release.installed import Installed, sdist_in, wheel_in
from tests.release.report import FOLDER, Report, Tried
from tests.source_tree import ROOT
from tests.unit.test_packaging import PROJECT

#: An extra may bring half a gigabyte; reached only when something hangs.
pytestmark = pytest.mark.timeout(1_800)

#: A module that each extra is for.
MODULES = {
    "": "",
    "spark": "spark_queue.source.datasource",
    "dashboard": "spark_queue.dashboard.app",
    "metrics": "spark_queue.metrics.prometheus",
}

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
LOW, HIGH = PYTHON_VERSIONS
PYTHONS = [f"3.{minor}" for minor in range(LOW[1], HIGH[1] + 1)]


def program_of(python: str) -> str | None:
    """Return the program of a Python; None where none is here, or something of that name that cannot run."""
    found = sys.executable if python == HERE else shutil.which(f"python{python}")
    return None if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode else found


#: The Pythons that are here.
PROGRAMS = {python: program_of(python) for python in PYTHONS}

#: A Python, a file and an extra: everything with this Python, and the base with each other one.
Way = tuple[str, str, str]
WANTED: list[Way] = [(HERE, file, extra) for file in ("wheel", "sdist") for extra in MODULES]
WANTED += [(python, "wheel", "") for python in PYTHONS if python != HERE]
WAYS = [way for way in WANTED if PROGRAMS[way[0]] is not None]


@pytest.fixture(scope="module")
def report(dist: Path) -> Iterator[Report]:
    """Yield the report, which is written when everything was tried."""
    found = Report(version=PROJECT["version"], files=[wheel_in(dist), sdist_in(dist)], wanted=WANTED, tried=[])
    found.begin()
    yield found
    found.write()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(filter(None, way)))
def test_a_release_can_be_installed_and_used(dist: Path, report: Report, tmp_path: Path, way: Way) -> None:
    """Those of a Python that is not here are named by the report."""
    python, file, extra = way
    found = Installed(tmp_path, str(PROGRAMS[python]))
    release = wheel_in(dist) if file == "wheel" else sdist_in(dist)
    found.install(f"{release}[{extra}]" if extra else str(release))
    use(found)
    site = bill.site_of(tmp_path / "venv")
    report.tried.append(
        Tried(
            python=python, file=file, extra=extra, packages=len(bill.packages(site)), size_mb=bill.size_mb(site),
            import_s=import_s(found, "from spark_queue import Journal, Queue"),
            extra_import_s=import_s(found, f"import {MODULES[extra]}") if extra else None,
        )
    )  # fmt: skip
    if file == "wheel" and python == HERE:
        made = bill.bill_of(site, release=release)
        report.bill(f"spark-queue-{PROJECT['version']}{f'-{extra}' if extra else ''}", made)
        check(made, extra)
    # Together they would take many gigabytes.
    shutil.rmtree(tmp_path / "venv")


def use(found: Installed) -> None:
    """Publish and consume a message, in plain Python."""
    (found.work / "program.py").write_text(PROGRAM, encoding="utf-8")
    assert found.says("sparkq", "--version") == f"sparkq {PROJECT['version']}\n"
    assert found.says("python", "program.py") == "kettle\n"
    found.says("sparkq", "stop", "shop")


PROGRAM = """
from spark_queue import Journal

journal = Journal.create(
    "shop", {"message_types": {"order": {"columns": "item STRING", "topics": ["T"]}}, "queues": {"WORK": {"underlying_topic": "T"}}}
)
journal.publish([{"item": "kettle"}], topic="T")
journal.queue("WORK").process(lambda message: print(message["item"]), until_empty=True)
"""


def import_s(found: Installed, statement: str) -> float:
    """Return how long a fresh process takes for an import, beside one that imports nothing: the median of five, in seconds."""

    def run_s(program: str) -> float:
        begin_s = time.monotonic()
        found.says("python", "-c", program)
        return time.monotonic() - begin_s

    run_s(statement)
    return statistics.median(run_s(statement) - run_s("pass") for _ in range(5))


def check(made: dict[str, object], extra: str) -> None:
    """Check that a bill names what is asked for, and that every licence is a permitted one."""
    parts = made["components"]
    assert isinstance(parts, list)
    names = {part["name"] for part in parts}
    assert {"pyarrow", "deltalake", "duckdb", "numpy"} <= names
    assert ("pyspark" in names, "uvicorn" in names) == (extra == "spark", extra == "dashboard")
    licences = {part["name"]: part["licenses"][0] for part in parts}
    texts = {name: each.get("expression") or each["license"]["name"] for name, each in licences.items()}
    assert {name: text for name, text in texts.items() if not text or unknown_parts(text)} == {}


def test_the_report_has_all_that_was_tried_and_the_guide_says_how_large_it_is(report: Report) -> None:
    """The guide's figure is that of Linux on x86-64."""
    report.write()
    text = (FOLDER / "report.md").read_text(encoding="utf-8")
    assert all(each.row() in text for each in report.tried)
    bills = {path.name for path in FOLDER.glob("*.cdx.json")}
    assert bills == {f"spark-queue-{PROJECT['version']}{f'-{extra}' if extra else ''}.cdx.json" for extra in MODULES}
    assert all(json.loads((FOLDER / name).read_text(encoding="utf-8"))["components"] for name in bills)
    told = re.search(r"Without extras it takes (\d+) MB", (ROOT / "docs" / "guide" / "install.md").read_text(encoding="utf-8"))
    assert told is not None
    [base] = [each for each in report.tried if (each.python, each.file, each.extra) == (HERE, "wheel", "")]
    assert base.size_mb == pytest.approx(int(told[1]), rel=0.1)
