"""GitHub would run the workflows: no key stands twice, none is unknown where it stands, and none that must be there is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # It has no types.

from tests.source_tree import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())

#: The keys of each level that GitHub's workflow syntax has, as far as they are of use here.
OF_WORKFLOW = {"name", "on", "permissions", "env", "concurrency", "jobs"}
OF_JOB = {"name", "needs", "if", "runs-on", "permissions", "env", "timeout-minutes", "strategy", "steps"}
OF_STRATEGY = {"fail-fast", "max-parallel", "matrix"}
OF_STEP = {"name", "id", "if", "uses", "with", "run", "working-directory", "shell", "env", "timeout-minutes", "continue-on-error"}
EVENTS = {"push", "pull_request", "schedule", "workflow_dispatch"}


class Loader(yaml.BaseLoader):  # type: ignore[misc]  # It has no types.
    """Loads every scalar as text, so that `on` is no boolean, and refuses a key that stands twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT002  # As its base has it.
        keys = [key.value for key, _ in node.value]
        doubled = sorted({key for key in keys if keys.count(key) > 1})
        if doubled:
            raise yaml.constructor.ConstructorError(problem=f"twice: {', '.join(doubled)}", problem_mark=node.start_mark)
        loaded: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return loaded


def problems(text: str) -> Iterator[str]:
    """Say what keeps a workflow from running."""
    try:
        workflow = yaml.load(text, Loader)  # A loader of texts makes no objects.
    except yaml.YAMLError as problem:
        yield str(problem)
        return
    yield from keys(workflow, "workflow", OF_WORKFLOW, {"on", "jobs"})
    yield from keys(workflow.get("on", {}), "on", EVENTS)
    for name, job in workflow.get("jobs", {}).items():
        yield from keys(job, name, OF_JOB, {"runs-on", "steps"})
        yield from keys(job.get("strategy", {}), f"{name}.strategy", OF_STRATEGY)
        for number, step in enumerate(job.get("steps", ())):
            at = f"{name}.steps[{number}]"
            yield from keys(step, at, OF_STEP)
            if len({"uses", "run"} & set(step)) != 1:
                yield f"{at} has to have one of uses and run"
            if "with" in step and "uses" not in step:
                yield f"{at} has with, which belongs to uses"


def keys(mapping: Mapping[str, Any], at: str, known: Collection[str], needed: Collection[str] = ()) -> Iterator[str]:
    """Say which keys are unknown, and which are missing."""
    yield from (f"{at} has {key}" for key in sorted(set(mapping) - set(known)))
    yield from (f"{at} has no {key}" for key in sorted(set(needed) - set(mapping)))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs(path: Any) -> None:
    assert list(problems(path.read_text(encoding="utf-8"))) == []


GOOD = """
on: {push: {branches: [main]}}
jobs:
  run:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
        with: {fetch-depth: 0}
      - run: .ci/run
        env: {PYTHON: python3.11}
"""


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        ("env: {PYTHON: python3.11}", "env: {A: b}\n        env: {PYTHON: python3.11}", "twice: env"),
        ("    runs-on", "    run-on", "run has run-on"),
        ("    runs-on: ubuntu-latest\n", "", "run has no runs-on"),
        ("on: {push:", "on: {pushes:", "on has pushes"),
        ("on: {push", "off: {push", "workflow has no on"),
        ("      - run: .ci/run\n        env:", "      - env:", "run.steps[1] has to have one of uses and run"),
        ("      - uses: actions/checkout@v4\n        with:", "      - run: make\n        with:", "run.steps[0] has with"),
        ("steps:", "steps: [", "expected"),
    ],
)
def test_what_would_not_run_is_told(was: str, becomes: str, told: str) -> None:
    assert list(problems(GOOD)) == []
    assert any(told in each for each in problems(GOOD.replace(was, becomes)))
