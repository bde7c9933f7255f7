"""Makes the golden files: ``python -m tests.golden``. It adds forms that are new, and refuses where one that stands has changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from spark_queue.core.records import Kind
from tests.golden import FOLDER, FROZEN, forms, frames, story
from tests.golden.told import told

#: Where the story is told: addresses of tables and of peers stand in the log.
HOME = Path("/tmp/sparkq-golden")

#: Longest line of the files, in characters, where it can be cut.
LINE = 160


def make_journal() -> None:
    """Tell the story, and keep the journal of frankfurt and what it says."""
    HOME.mkdir()
    try:
        story.tell(HOME)
        kept = HOME / "kept"
        shutil.copytree(HOME / "frankfurt", kept)
        for file in (kept / "snapshots").iterdir():
            # The state is in a form of each software's own, which no other reads, and it is larger than all else.
            header = json.loads(file.read_bytes().partition(b"\n")[0])
            file.write_text(json.dumps({**header, "software": "0" * 64}) + "\n", encoding="utf-8")
        shutil.copytree(kept, FOLDER / "journal")
    finally:
        shutil.rmtree(HOME)
    found = told(FOLDER / "journal")
    missing = {str(kind) for kind in Kind}.difference(found["kinds"])
    if missing:
        raise SystemExit(f"The story has no record of kind {', '.join(sorted(missing))}.")
    write("told.json", found)
    write("seen.json", forms.seen(FOLDER / "journal"))


def add(name: str, found: dict[str, Any]) -> None:
    """Add what is new to a file; what stands there must be as it is."""
    path = FOLDER / name
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    changed = sorted(each for each in known if known[each] != found.get(each))
    if changed:
        raise SystemExit(FROZEN.format(what=changed[0]))
    write(name, {**known, **found})


def write(name: str, found: dict[str, Any]) -> None:
    """Write a file that people can read."""
    (FOLDER / name).write_text(_lines(found) + "\n", encoding="utf-8")


def _lines(value: Any, indent: str = "") -> str:
    """Return a JSON value as text: a short one, and a row, on one line, else each part on lines of its own."""
    text = json.dumps(value, ensure_ascii=False)
    is_row = isinstance(value, list) and not any(isinstance(each, dict | list) for each in value)
    if len(text) <= LINE or is_row or not isinstance(value, dict | list):
        return text
    inner = f"{indent} "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {_lines(each, inner)}" for name, each in value.items()]
    else:
        parts = [_lines(each, inner) for each in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{end}"


def main() -> None:
    """Make the journal where there is none, and add the forms that are new."""
    FOLDER.mkdir(exist_ok=True)
    if not (FOLDER / "journal").exists():
        make_journal()
    add("forms.json", forms.declared())
    add("frames.json", frames.frames())


if __name__ == "__main__":
    main()
