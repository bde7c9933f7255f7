"""What opening a journal costs those who only publish."""

from __future__ import annotations

import subprocess
import sys

from tests.source_tree import ROOT
from tests.unit.journal.journal_on_disk import Disk

#: Modules of ours that a publish loads from this package and below it; a whole `Journal.publish` may load 50.
MODULES_MAX = 36

#: What only those have who decide, fold the log or keep it short.
HEAVY = (
    "core.deciding core.state core.message_files coordinator expression ports journal.control_log journal.facts journal.upkeep"
).split()

PUBLISH = """
import sys
from spark_queue.journal.layout import Store
from spark_queue.journal.publisher import make_plan, publish
from spark_queue.journal.reader import open_reader
from spark_queue.journal.rows import to_arrow
store = Store(sys.argv[1])
journal = open_reader(store)
definitions = journal.definitions()
message_type, rows = to_arrow([{"id": 7, "item": "a"}], definitions, topic="ORDERS")
plan = make_plan(store, definitions, message_type=message_type, topic="ORDERS", expires_after_ms=None)
publish(plan, journal.journal_id, definitions, rows)
print(*(name for name in sys.modules if name.partition(".")[0] == "spark_queue"))
"""


def test_a_publish_loads_nothing_that_decides(disk: Disk) -> None:
    done = subprocess.run([sys.executable, "-c", PUBLISH, disk.store.path], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = done.stdout.split()
    assert [name for name in loaded for heavy in HEAVY if f"{name}.".startswith(f"spark_queue.{heavy}.")] == []
    assert len(loaded) <= MODULES_MAX, sorted(loaded)
    assert disk.ids() == [7]
