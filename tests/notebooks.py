"""The notebooks: executed by the tests, and stored with the outputs that a reader wants to see.

``python -m tests.notebooks`` executes them and stores what they show; what differs from run to run for no good reason (counters,
times of cells, console output of Java) is left out.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.source_tree import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

#: How long a cell may take on a busy machine, in seconds.
CELL_S = 240


def read(path: Path) -> NotebookNode:
    """Read a notebook."""
    notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # The package has no types.
    return notebook


def execute(path: Path, folder: Path, *, times: int = 1) -> NotebookNode:
    """Run a notebook from top to bottom in a folder, with a kernel of this Python, and give it with its outputs.

    Each cell runs so many times before the next.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        When a cell fails.
    """
    notebook = read(path)
    notebook.cells = [copy(cell, turn) for cell in notebook.cells for turn in range(times)]
    client = NotebookClient(notebook, timeout=CELL_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    # The checkout stands for the installed package.
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    return notebook


def copy(cell: NotebookNode, turn: int) -> NotebookNode:
    """Return a cell, or a copy of it that runs after it, under an id of its own."""
    named = cell if turn == 0 else {**cell, "id": f"{cell.id}-{turn}"}
    copied: NotebookNode = nbformat.from_dict(named)  # type: ignore[no-untyped-call]  # The package has no types.
    return copied


def clean(notebook: NotebookNode) -> None:
    """Leave out of an executed notebook what says nothing to a reader."""
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = None


def main() -> None:
    """Execute every notebook and store it."""
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(path, Path(folder))
        clean(notebook)
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]  # The package has no types.


if __name__ == "__main__":
    main()
