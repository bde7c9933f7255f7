"""README's three ways in and three ways out, as one program and what it needs around it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from tests.docs import pages

#: The examples of the program, in an order in which each finds something to do.
PROGRAM = ("ways_publish", "worker", "ways_writing", "ways_stream", "ways_into")

#: What the program prints for each way out, and for the table that it wrote.
PACKED = "pack 2 kettle\npack 1 lamp\n"
SHIPPED = "|       2|clock|       3|\n"
REFUNDS = [("clock", "too loud"), ("lamp", "too dark")]


def write_definitions(folder: Path) -> None:
    """Write the definitions with which the journal begins."""
    (folder / "queues.toml").write_text(pages.example("ways_queues"), encoding="utf-8")


def write_world(folder: Path) -> None:
    """Write what others write: the followed table, which the definitions name from then on, and a file that arrives."""
    table, shown = str(folder / "lake" / "returns"), "s3://lake/returns"
    items, reasons = zip(*REFUNDS, strict=True)
    write_deltalake(table, pa.table({"item": items, "reason": reasons}))
    with (folder / "queues.toml").open("a", encoding="utf-8") as definitions:
        definitions.write(f"\n{pages.example('ways_table').replace(shown, table)}")
    (folder / "arriving").mkdir()
    (folder / "arriving" / "clock.json").write_text('{"item": "clock", "quantity": 3}\n', encoding="utf-8")


def write_program(folder: Path) -> str:
    """Write the program, which ends with a look at the table that it wrote, and return its file's name."""
    looks = 'print(sorted(tuple(row) for row in spark.read.format("delta").load("refunds").collect()))\nspark.stop()\n'
    text = "\n\n".join([*map(pages.example, PROGRAM), looks])
    (folder / "ways.py").write_text(text, encoding="utf-8")
    return "ways.py"
