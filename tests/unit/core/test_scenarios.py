"""Runs every scenario of `scenarios/`: text in the language of `tests.scenario`.

A file holds several, each under a line ``== title``; what stands before the first begins each of them. Titles name the rules
(Rn) and sections (P1 to P6, DESIGN) that they prove.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scenario import run_scenario

FOLDER = Path(__file__).parent / "scenarios"

#: Rules of the first version that concern the core.
RULES = {
    *(f"R{number}" for number in (6, 14, 15, 16, 17, 19, 22, 23, 24, 29, 31, 36, 38, 39, 40, 41, 47, 48)),
    *(f"R{number}" for number in (50, 51, 52, 53, 54, 55, 56, 57, 58, 60, 61, 62, 63, 64, 90)),
    *(f"R{number}" for number in (123, 124, 125, 126, 127)),
    *(f"R{number}" for number in range(131, 141)),
    *(f"R{number}" for number in (67, 68, 69, 70, 71, 72, 73, 75, 77, 78)),
    *(f"P{number}" for number in range(1, 7)),
    "15.1",
    "15.2",
    "15.6",
}


def _scenarios() -> dict[str, str]:
    scenarios = {}
    for path in sorted(FOLDER.glob("*.scenario")):
        preamble, *parts = re.split(r"^== ", path.read_text(), flags=re.MULTILINE)
        for part in parts:
            title, _, text = part.partition("\n")
            # Line numbers of a failure then are those of the file.
            line = path.read_text()[: path.read_text().index(part)].count("\n") + 1
            scenarios[f"{path.stem}: {title}"] = preamble + "\n" * (line - preamble.count("\n")) + text
    return scenarios


SCENARIOS = _scenarios()


@pytest.mark.parametrize("title", SCENARIOS, ids=list(SCENARIOS))
def test_scenario_holds(title: str) -> None:
    run_scenario(SCENARIOS[title])


def test_every_rule_of_the_core_has_a_scenario() -> None:
    named = {name for title in SCENARIOS for name in re.findall(r"[RP]?\d+(?:\.\d+)?", title)}
    assert named >= RULES, RULES - named
