"""The example of a new kind of record in CONTRIBUTING: its changes are made in a copy, and tried."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

_CHANGE = re.compile(r"^ *<!-- change: (\S+) -->\n *```python\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)

#: What a new kind must do: it is decided, stored, read again, folded, told to people, and kept in a snapshot of the state.
TRIAL = """
import sys
from pathlib import Path

from spark_queue.core.deciding.pausing import label
from spark_queue.journal.state_codec import decode, encode
from spark_queue.views.event_texts import event_text
from tests.unit.views.views_world import START_MS, ViewsWorld

world = ViewsWorld(Path(sys.argv[1]))
label(world.engine._work("WORK", START_MS), "orders")
world.commit()
state = world.moment().state
print(state.ledger("WORK").label, decode(encode(state)).ledger("WORK").label, event_text(world.records[-1]), sep="|")
try:
    label(world.engine._work("WORK", START_MS), "no/name")
except Exception as refused:
    print(type(refused).__name__)
"""


def changed(text: str, block: str) -> str:
    """Return a file with a block in the place of its first line, or, where that line is new, at the end."""
    first = block.splitlines(keepends=True)[0]
    return text.replace(first, block, 1) if first in text else f"{text}\n\n{block}"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the product with the changes of the example."""
    place = tmp_path / "copy"
    shutil.copytree(ROOT / "spark_queue", place / "spark_queue", ignore=shutil.ignore_patterns("__pycache__"))
    found = _CHANGE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(found) > 1
    for path, block in found:
        file = place / path
        # Blocks stand in a list.
        file.write_text(changed(file.read_text(encoding="utf-8"), re.sub("^   ", "", block, flags=re.MULTILINE)), encoding="utf-8")
    return place


def test_a_kind_that_is_added_as_contributing_says_is_stored_folded_and_told(copy: Path, tmp_path: Path) -> None:
    around = os.environ | {"PYTHONPATH": os.pathsep.join((str(copy), str(ROOT)))}
    done = subprocess.run(
        [sys.executable, "-c", TRIAL, tmp_path], env=around, cwd=copy, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told, refused = done.stdout.splitlines()
    assert told == "orders|orders|queue 'WORK' is called 'orders' from now on"
    assert refused == "ConfigError"
