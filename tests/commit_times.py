"""Commits of message tables whose publisher's clock says what a test wants: the time stands in the entry itself."""

from __future__ import annotations

import json
from pathlib import Path


def newest_entry(journal: str | Path, message_type: str) -> Path:
    """Return the newest entry of a message type's log."""
    return max((Path(journal) / "messages" / message_type / "_delta_log").glob("*.json"))


def date_commit(entry: Path, at_ms: object) -> None:
    """Let an entry say that it was committed at a time, or what no clock says."""
    actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = at_ms
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions), encoding="utf-8")
