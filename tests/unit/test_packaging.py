"""What is shipped, and the lock that `make setup` installs (DESIGN 14)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.source_tree import ROOT, product_files, python_files, text_files
from tests.unit.test_layering import imports

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
DECLARED = [
    *PYPROJECT["build-system"]["requires"],
    *PROJECT["dependencies"],
    *(entry for extra in PROJECT["optional-dependencies"].values() for entry in extra),
]

#: What parts of the package may import beyond the base, by the extra that brings it.
EXTRAS_OF = {
    "spark_queue/dashboard/": ("dashboard", "metrics"), "spark_queue/source/": ("spark",), "spark_queue/session.py": ("spark",),
    "spark_queue/client/queue.py": ("spark",), "spark_queue/metrics/": ("metrics", "otel"), "spark_queue/tracing.py": ("otel",),
    "pyspark_sparkqueue.py": ("spark",),
}  # fmt: skip


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    [wheel] = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_wheel_holds_the_package_and_the_module_that_spark_looks_for(wheel_names: set[str]) -> None:
    assert {"pyspark_sparkqueue.py", "spark_queue/__init__.py", "spark_queue/py.typed"} <= wheel_names
    tops = {name.partition("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pyspark_sparkqueue.py", "spark_queue"}


@pytest.mark.parametrize("name", ["LICENSE", "NOTICE"])
def test_wheel_carries_the_licence(wheel_names: set[str], name: str) -> None:
    assert f"spark_queue-{PROJECT['version']}.dist-info/licenses/{name}" in wheel_names


def test_changelog_tells_of_the_version() -> None:
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("declared", DECLARED)
def test_lock_pins_a_version_that_fits(declared: str) -> None:
    requirement = Requirement(declared)
    versions = re.findall(rf"(?m)^{re.escape(canonicalize_name(requirement.name))}==([^ ]+)", LOCK)
    assert versions, "the lock does not know it; run tools/lock.sh"
    assert all(requirement.specifier.contains(version) for version in versions)


def test_lock_has_a_hash_for_everything_and_nothing_but_packages() -> None:
    entries = LOCK.replace(" \\\n", " ").strip().splitlines()
    strange = [
        entry for entry in entries if not re.fullmatch(r"[a-z0-9-]+==[^ ]+( ; [^#]+?)?(\s+--hash=sha256:[0-9a-f]{64})+", entry)
    ]
    assert not strange, "\n".join(strange)


def test_everything_that_is_imported_is_declared() -> None:
    """What another package happens to bring along is missing in an image that has only what is declared."""
    brought_by, missing = packages_distributions(), set()
    for file in python_files("spark_queue/", "pyspark_sparkqueue.py"):
        extras = {extra for place, names in EXTRAS_OF.items() if file.path.startswith(place) for extra in names}
        entries = [*PROJECT["dependencies"], *(entry for extra in extras for entry in PROJECT["optional-dependencies"][extra])]
        declared = {canonicalize_name(Requirement(entry).name) for entry in entries}
        for name in {each.module.partition(".")[0] for each in imports(file.tree)} - {"spark_queue", *sys.stdlib_module_names}:
            if not declared & {canonicalize_name(each) for each in brought_by[name]}:
                missing.add((name, file.path))
    assert not missing


@pytest.mark.parametrize("script", sorted([*ROOT.glob("tools/*.sh"), ROOT / ".ci" / "run"]), ids=lambda path: path.name)
def test_script_is_executable_strict_and_parses(script: Path) -> None:
    assert script.stat().st_mode & 0o111 == 0o111
    assert "\nset -Eeuo pipefail\n" in script.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", str(script)], check=True)


#: What is installed with extras, in a command that users are told: a path of theirs, or a name on an index.
_INSTALLED = re.compile(r"""pip install ["'](?P<what>[^"'\[]+)\[(?P<extras>[^\]]+)\]""")


def installed_with_extras() -> list[tuple[str, str, str]]:
    """Return each such command in what users read: where it stands, what is installed, and an extra."""
    told = [file for file in text_files() if file.path.startswith(("README.md", "docs/", "spark_queue/"))]
    found = [(file.path, command) for file in told for command in _INSTALLED.finditer(file.text)]
    return [(path, command["what"], extra) for path, command in found for extra in command["extras"].split(",")]


def extras_of_errors() -> list[str]:
    """Return the extras that errors name, which stand for the placeholder of their text."""
    calls = [node for file in product_files() for node in ast.walk(file.tree) if isinstance(node, ast.Call)]
    missing = [call for call in calls if call.args and getattr(call.args[0], "value", None) == "EXTRA_MISSING"]
    return [ast.literal_eval(keyword.value) for call in missing for keyword in call.keywords if keyword.arg == "extra"]


def test_each_extra_that_users_are_told_to_install_exists() -> None:
    assert extras_of_errors()
    told = {extra for _, _, extra in installed_with_extras()} - {"{extra}", "\u2039extra\u203a"}
    assert sorted({*told, *extras_of_errors()} - set(PROJECT["optional-dependencies"])) == []


def test_what_users_install_by_name_is_this_project() -> None:
    by_name = {what for _, what, _ in installed_with_extras() if "/" not in what}
    assert by_name == {PROJECT["name"]}
