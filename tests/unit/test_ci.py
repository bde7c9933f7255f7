"""Every promised Python and Java has to pass `.ci/run`, the hook before a commit is `make lint`, and nights run `make nightly`."""

from __future__ import annotations

import re
import tomllib

from spark_queue import session
from tests.conftest import SPARKLESS
from tests.source_tree import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
WORKFLOW = (WORKFLOWS / "ci.yml").read_text(encoding="utf-8")
NIGHTLY = (WORKFLOWS / "nightly.yml").read_text(encoding="utf-8")
RELEASE = (WORKFLOWS / "release.yml").read_text(encoding="utf-8")
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")


def listed(key: str, workflow: str = WORKFLOW) -> list[str]:
    """Return a list of texts in a workflow."""
    [text] = re.findall(rf"(?m)^ +{key}: \[(.*)\]$", workflow)
    return re.findall(r'"([^"]+)"', text)


def test_every_python_that_is_promised_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert listed("python") == re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))


def test_every_java_that_set_up_takes_is_tried() -> None:
    [versions] = re.findall(r"specification\\\.version = \(([\d|]+)\)", (ROOT / "tools" / "setup.sh").read_text(encoding="utf-8"))
    assert listed("java") == versions.split("|") == list(map(str, session.JAVA_VERSIONS))


def test_actions_are_pinned_by_their_major_version() -> None:
    used = re.findall(r"uses: (\S+)", WORKFLOW + NIGHTLY + RELEASE)
    # The index's own action names its major version in its own way.
    others = [action for action in used if not re.fullmatch(r"actions/[\w-]+@v\d+", action)]
    assert others == ["pypa/gh-action-pypi-publish@release/v1"]


def test_what_runs_is_what_people_run() -> None:
    assert re.findall(r"(?m)^ +- run: (.+)$", WORKFLOW) == [
        ".ci/run", "make spark VERSION=4.0", "sudo apt-get update -qq", "make alerts", 'make mutants SINCE="$BEFORE"',
    ]  # fmt: skip
    assert re.findall(r"(?m)^ +entry: (.+)$", HOOKS) == ["make lint"]
    assert "repo: local" in HOOKS
    assert "language: system" in HOOKS


def test_the_part_with_spark_reads_every_suite_that_may_have_some() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    sparkless = {path.removeprefix(f"{ROOT}/").rstrip("/") for path in SPARKLESS}
    [read] = re.findall(r'-o testpaths="([^"]+)"', (ROOT / "tools" / "test.sh").read_text(encoding="utf-8"))
    assert read.split() == [suite for suite in options["testpaths"] if suite not in sparkless]


def test_a_night_runs_the_parts_of_make_nightly() -> None:
    [recipe] = re.findall(r"(?m)^nightly:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert listed("part", NIGHTLY) == re.findall(r"\$\(MAKE\) (.+)", recipe)
    assert re.findall(r"(?m)^ +- run: (.+)$", NIGHTLY) == ["make ${{ matrix.part }}"]


def test_a_release_publishes_what_was_checked_and_keeps_no_token() -> None:
    check, publish = RELEASE.split("\n  publish:\n")
    assert re.findall(r"run: (.+)$", check, re.MULTILINE) == [
        "make release-check", 'test "$GITHUB_REF_NAME" = "v$(.venv/bin/python -m hatchling version)"',
    ]  # fmt: skip
    assert 'tags: ["v*"]' in check
    assert check.index("make release-check") < check.index("attest-build-provenance") < check.index("upload-artifact")
    assert "needs: check\n" in publish
    assert re.findall(r"(?m)^ {6}(\S+: \w+)$", publish) == ["id-token: write"]
    assert "secrets." not in RELEASE
