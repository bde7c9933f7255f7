"""A release in a virtual environment of its own, which no way leads out of into the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from copy import copy
from pathlib import Path

from spark_queue import session
from tests.unit.test_packaging import PROJECT

#: What would lead a Python, or a Spark, back to the checkout.
OF_CHECKOUT = ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


class Installed:
    """A virtual environment, by default of this Python, and a directory to work in."""

    def __init__(self, place: Path, python: str = sys.executable) -> None:
        self.work = place / "work"
        self.work.mkdir()
        self.python = place / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "venv", str(place / "venv")], check=True)
        self._kept = {name: value for name, value in os.environ.items() if name not in OF_CHECKOUT}

    def elsewhere(self, name: str) -> Installed:
        """Return the same environment with an empty directory, in this one, to work in."""
        moved = copy(self)
        moved.work = self.work / name
        moved.work.mkdir()
        return moved

    def install(self, what: str) -> None:
        """Install it with this user's settings of pip."""
        command = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what]
        subprocess.run(command, cwd=self.work, env=self._kept, check=True)

    def run(self, program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, and give what it printed."""
        environment = {
            **self._kept,
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            # A home of its own, beside the jars that set-up has fetched.
            "HOME": str(self.work),
            "XDG_CACHE_HOME": str(session.directory().parents[1]),
            # As docs/guide/install.md says.
            "PYSPARK_PYTHON": str(self.python),
            **variables,
        }
        return subprocess.run([program, *arguments], cwd=self.work, env=environment, capture_output=True, text=True, check=False)

    def says(self, program: str, *arguments: str, **variables: str) -> str:
        """Run a program that has to succeed, and return what it printed."""
        done = self.run(program, *arguments, **variables)
        assert done.returncode == 0, f"{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"
        return done.stdout


def build(source: Path, folder: Path) -> Path:
    """Build an sdist and a wheel as an index gets them."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
    return folder


def sdist_in(folder: Path) -> Path:
    """Return the only sdist of a directory."""
    [sdist] = folder.glob(f"spark_queue-{PROJECT['version']}.tar.gz")
    return sdist


def wheel_in(folder: Path) -> Path:
    """Return the only wheel of a directory."""
    [wheel] = folder.glob(f"spark_queue-{PROJECT['version']}-*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    """Return what a wheel holds."""
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}
