"""What runs coordinators for years, a unit of systemd and an image: they say what the command line takes (DESIGN 15.16)."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import typer

from spark_queue.cli.app import app
from spark_queue.coordinator import flight_port
from spark_queue.protocol import host, user_files
from tests.source_tree import ROOT

UNIT = (ROOT / "conf" / "sparkq@.service").read_text(encoding="utf-8")
IMAGE = (ROOT / "conf" / "Containerfile").read_text(encoding="utf-8")


def service() -> ConfigParser:
    # Some directives stand there several times.
    parser = ConfigParser(interpolation=None, strict=False)
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


def test_the_unit_gives_the_process_what_its_bounds_need_and_takes_the_rest_away() -> None:
    """`systemd-analyze security --offline=true` says 1.5 of it, of 10, which is the worst."""
    given = service()["Service"]
    assert int(given["LimitNOFILE"]) >= flight_port.CONNECTIONS_MAX + flight_port.DESCRIPTORS_KEPT
    assert int(given["TasksMax"]) >= flight_port.THREADS_MAX + 256
    assert given["MemoryMax"]
    assert (given["ProtectSystem"], given["UMask"], given["CapabilityBoundingSet"]) == ("strict", "0077", "")
    on = ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "RestrictNamespaces", "ProtectKernelModules", "RestrictSUIDSGID")
    assert [given[name] for name in on] == ["yes"] * len(on)
    assert re.findall(r"(?m)^SystemCallFilter=(.*)$", UNIT) == [
        "@system-service", "~@privileged @resources", "setrlimit prlimit64",
    ]  # fmt: skip
    assert "ProcSubset" not in given, "the boot id would be hidden, which tells the host"


def test_the_image_is_built_on_an_exact_version() -> None:
    (base,) = re.findall(r"(?m)^FROM (.+)$", IMAGE)
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)


def test_both_name_the_variables_that_are_read() -> None:
    named = set(re.findall(r"\bSPARKQ_[A-Z_]+", UNIT + IMAGE))
    assert named <= {user_files.TOKEN_FILE_VARIABLE, host.TLS_ROOTS_VARIABLE}
    (file,) = re.findall(r"(?m)^ENV SPARKQ_TOKEN_FILE=(.+)$", IMAGE)
    assert f"--secret {Path(file).name}," in IMAGE


def test_the_token_is_mounted_so_that_it_is_taken(tmp_path: Path) -> None:
    """A secret belongs to the user of the image, and nobody writes it."""
    (user, mode) = re.findall(r"--secret \S+,uid=(\d+),mode=(\d+)", IMAGE)[0]
    assert f"useradd --uid {user} " in IMAGE
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(int(mode, 8))
    assert user_files.token(str(token)) == "secret"


def test_the_image_is_built_from_what_is_there(tmp_path: Path) -> None:
    """Of the repository it gets what its ignore file lets through, and that is enough to build the package."""
    (built_with,) = re.findall(r"--file (\S+) --tag sparkq \.", IMAGE)
    assert (ROOT / built_with).read_text(encoding="utf-8") == IMAGE
    named = re.findall(r"(?m)^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"))
    assert "requirements.lock" in named
    for name in named:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, tmp_path / name)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist")]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        entry_points = packed.read(next(name for name in packed.namelist() if name.endswith("entry_points.txt"))).decode()
    assert re.search(r"(?m)^sparkq = ", entry_points), "the image starts `sparkq`"


def test_the_image_installs_what_the_lock_names() -> None:
    (pattern, name) = re.findall(r"grep --only-matching '(.+)' /build/(\S+)", IMAGE)[0]
    lock = (ROOT / name).read_text(encoding="utf-8")
    assert len(re.findall(f"(?m){pattern}", lock)) == len(re.findall(r"(?m)^\S+==", lock)) > 10
    (version,) = re.findall(r"(?m)^FROM python:3\.(\d+)", IMAGE)
    assert 11 <= int(version) < 14
