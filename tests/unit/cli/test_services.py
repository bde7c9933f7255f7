"""What runs coordinators for years, a unit of systemd and an image: they say what the command line takes (DESIGN 15.16)."""

from __future__ import annotations

import json
import re
import shlex
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import typer

from spark_queue.cli.app import app
from spark_queue.protocol import connection, user_files
from tests.source_tree import ROOT

UNIT = (ROOT / "conf" / "sparkq@.service").read_text(encoding="utf-8")
IMAGE = (ROOT / "conf" / "Containerfile").read_text(encoding="utf-8")


def service() -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # As its documentation says.
    parser.read_string(UNIT)
    return parser


def serve_takes() -> set[str]:
    """Return the options of `sparkq serve`."""
    group: Any = typer.main.get_command(app)
    return {name for parameter in group.commands["serve"].params for name in parameter.opts}


def commands() -> dict[str, list[str]]:
    """Return how `sparkq` is called, or told to be called, by each file."""
    unit = shlex.split(service()["Service"]["ExecStart"])
    (entry,) = re.findall(r"(?m)^ENTRYPOINT (.+)$", IMAGE)
    (example,) = re.findall(r"(?m)^# +sparkq (s3://.+)$", IMAGE)
    (options,) = re.findall(r"(?m)^# +SERVE_OPTIONS=(.+)$", UNIT)
    return {
        "unit": [Path(unit[0]).name, *[word for word in unit[1:] if word != "$SERVE_OPTIONS"], *options.split()],
        "image": [*json.loads(entry), *example.split()],
    }


@pytest.mark.parametrize("where", ["unit", "image"])
def test_it_stands_by_with_options_that_the_command_line_takes(where: str) -> None:
    program, verb, *arguments = commands()[where]
    assert (program, verb) == ("sparkq", "serve")
    options = {argument for argument in arguments if argument.startswith("-")}
    assert {"--standby", "--bind", "--tls-cert", "--tls-key"} <= options
    assert options <= serve_takes()


def test_the_unit_starts_it_again_for_ever_and_names_its_journal() -> None:
    unit = service()
    assert commands()["unit"][2].endswith("/%i")
    assert (unit["Service"]["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == ("always", "0")


def test_both_name_the_variables_that_are_read() -> None:
    named = set(re.findall(r"\bSPARKQ_[A-Z_]+", UNIT + IMAGE))
    assert named <= {user_files.TOKEN_FILE_VARIABLE, connection.TLS_ROOTS_VARIABLE}
    (file,) = re.findall(r"(?m)^ENV SPARKQ_TOKEN_FILE=(.+)$", IMAGE)
    assert f"--secret {Path(file).name}," in IMAGE


def test_the_image_installs_what_the_lock_names() -> None:
    (pattern, name) = re.findall(r"grep --only-matching '(.+)' /build/(\S+)", IMAGE)[0]
    lock = (ROOT / name).read_text(encoding="utf-8")
    assert len(re.findall(f"(?m){pattern}", lock)) == len(re.findall(r"(?m)^\S+==", lock)) > 10
    (version,) = re.findall(r"(?m)^FROM python:3\.(\d+)", IMAGE)
    assert 11 <= int(version) < 14
