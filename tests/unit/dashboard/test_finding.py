"""Tests of a browser are never left out unseen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.source_tree import ROOT
from tests.unit.dashboard.finding import IN_A_BROWSER, left_out, told


def test_without_a_browser_its_tests_are_left_out_by_name_unless_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARKQ_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("BROWSER_TESTS", raising=False)
    assert left_out() == list(IN_A_BROWSER)
    monkeypatch.setenv("BROWSER_TESTS", "required")
    assert left_out() == []
    assert all(f"tests/acceptance/{name}" in told() for name in IN_A_BROWSER)


def test_all_tests_of_a_browser_are_in_the_list() -> None:
    users = {
        path.name for path in (ROOT / "tests" / "acceptance").glob("test_*.py") if "playwright" in path.read_text(encoding="utf-8")
    }
    assert users == set(IN_A_BROWSER)


@pytest.mark.parametrize(("fails", "calls"), [(0, ["install"]), (1, ["install", "update"])])
def test_what_is_missing_is_installed_after_the_lists_are_read_where_it_takes_that(
    tmp_path: Path, fails: int, calls: list[str]
) -> None:
    apt, said = tmp_path / "apt-get", tmp_path / "said"
    apt.write_text(f'#!/bin/sh\necho "$@" >>{said}\nexit {fails}\n')
    apt.chmod(0o755)
    # Who is not root asks sudo; here it lets everybody.
    (tmp_path / "sudo").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (tmp_path / "sudo").chmod(0o755)
    script = [str(ROOT / "tools" / "apt.sh"), "chromium"]
    done = subprocess.run(script, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, check=False, timeout=60)
    assert done.returncode == fails
    lines = said.read_text().splitlines()
    assert [line.split()[0] for line in lines] == calls
    assert lines[0].endswith("-y --no-install-recommends chromium")
