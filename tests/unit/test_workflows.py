"""GitHub would run the workflows, and show the forms: no key stands twice or is unknown where it stands, and none is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # It has no types.

from tests.source_tree import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())

#: The keys of each level that GitHub's workflow syntax has, as far as they are of use here.
OF_WORKFLOW = {"name", "on", "permissions", "env", "concurrency", "jobs"}
OF_JOB = {"name", "needs", "if", "runs-on", "environment", "permissions", "env", "timeout-minutes", "strategy", "steps"}
OF_STRATEGY = {"fail-fast", "max-parallel", "matrix"}
OF_STEP = {"name", "id", "if", "uses", "with", "run", "working-directory", "shell", "env", "timeout-minutes", "continue-on-error"}
EVENTS = {"push", "pull_request", "schedule", "workflow_dispatch"}

#: The same of forms for issues: what each kind of field may have, and what it has to.
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").iterdir() if path.name != "config.yml")
OF_FORM = {"name", "description", "title", "labels", "body"}
OF_FIELD = {"type", "id", "attributes", "validations"}
OF_ATTRIBUTES = {
    "markdown": ({"value"}, {"value"}),
    "textarea": ({"label", "description", "placeholder", "value", "render"}, {"label"}),
    "input": ({"label", "description", "placeholder", "value"}, {"label"}),
}


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


def form_problems(text: str) -> Iterator[str]:
    """Say what keeps a form from being shown."""
    form = yaml.load(text, Loader)  # A loader of texts makes no objects.
    yield from keys(form, "form", OF_FORM, {"name", "description", "body"})
    for number, field in enumerate(form.get("body", ())):
        at = f"body[{number}]"
        yield from keys(field, at, OF_FIELD, {"type", "attributes"})
        known, needed = OF_ATTRIBUTES.get(field.get("type"), (set(), set()))
        yield from keys(field.get("attributes", {}), f"{at}.attributes", known, needed)
        yield from keys(field.get("validations", {}), f"{at}.validations", {"required"})
    named = [field["id"] for field in form.get("body", ()) if "id" in field]
    yield from (f"{name} stands twice" for name in sorted({each for each in named if named.count(each) > 1}))


def keys(mapping: Mapping[str, Any], at: str, known: Collection[str], needed: Collection[str] = ()) -> Iterator[str]:
    """Say which keys are unknown, and which are missing."""
    yield from (f"{at} has {key}" for key in sorted(set(mapping) - set(known)))
    yield from (f"{at} has no {key}" for key in sorted(set(needed) - set(mapping)))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs(path: Any) -> None:
    assert list(problems(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_is_shown_and_asks_for_the_version_and_what_doctor_prints(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    assert list(form_problems(text)) == []
    assert "`sparkq --version`" in text
    assert "`sparkq doctor" in text


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        ("body:", "fields:", "form has no body"),
        ("type: input", "type: line", "body[3].attributes has label"),
        ("label: Version", "name: Version", "body[3].attributes has no label"),
        ("id: doctor", "id: version", "version stands twice"),
        ("required: true", "needed: true", "body[1].validations has needed"),
    ],
)
def test_a_form_that_would_not_be_shown_is_told(was: str, becomes: str, told: str) -> None:
    text = (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text(encoding="utf-8")
    assert told in list(form_problems(text.replace(was, becomes)))


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
