"""What a publish costs a program that does nothing else, and a start without expressions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from spark_queue import Journal
from tests.source_tree import ROOT, product_files

#: Modules of ours that a publish loads.
MODULES_MAX = 80

#: What only those have who decide, fold the log, keep it short, or look at it.
HEAVY = (
    "core.deciding core.state core.message_files coordinator expression ports views "
    "journal.control_log journal.traits journal.upkeep"
).split()

PUBLISH = """
import sys
from spark_queue import Journal
Journal(sys.argv[1]).publish([{"value": "1"}], topic="ORDERS")
print(*(name for name in sys.modules if name.partition(".")[0] == "spark_queue"))
"""


def test_what_is_looked_for_exists() -> None:
    """A module that is called otherwise by now would be loaded unseen."""
    names = {file.module for file in product_files()}
    assert [heavy for heavy in HEAVY if f"spark_queue.{heavy}" not in names] == []


def test_a_publish_loads_nothing_that_decides_or_looks(tmp_path: Path) -> None:
    journal = Journal.create(str(tmp_path / "journal"), {"message_types": {"json": {"topics": ["ORDERS"]}}})
    done = subprocess.run([sys.executable, "-c", PUBLISH, journal.path], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = done.stdout.split()
    assert [name for name in loaded for heavy in HEAVY if f"{name}.".startswith(f"spark_queue.{heavy}.")] == []
    assert len(loaded) <= MODULES_MAX, sorted(loaded)


def test_who_meets_no_expression_loads_no_engine() -> None:
    """Coordinators, and verbs that look, begin with every journal; few of them have expressions."""
    begin = "import sys, spark_queue.coordinator.process, spark_queue.views; print({'sqlglot', 'duckdb'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", begin], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"
