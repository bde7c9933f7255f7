"""What a journal says, as JSON that a person can read: definitions, and what every view shows of it at its last record."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_queue import Journal
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.state.lifecycle import IN_QUEUE
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import Store

#: Views of one queue, and of the whole journal.
OF_QUEUES = ("status", "messages", "leases", "dead_letters", "subscriptions")
OF_JOURNAL = ("sink_commits", "table_changes")


#: An error's code, in a text that may be worded otherwise by a later version.
_CODE = re.compile(r"\[([A-Z_]+)\]")


def told(path: Path, like: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a journal says.

    Of each view it has all columns, or those that are in what was told before: a later version may have more.
    """
    journal, opened = Journal(str(path)), open_journal(Store(str(path)))
    records = opened.records()
    last, state = records[-1].record, opened.tail().fold(opened.traits)

    def view(name: str, queue: str | None = None) -> dict[str, Any]:
        before = like if like is None or queue is None else like["queues"][queue]
        shown = journal.view(name, queue=queue, as_of=last, columns=None if before is None else before[name]["columns"])
        return {"columns": shown.column_names, "rows": [list(map(_plain, row.values())) for row in shown.to_pylist()]}

    found = {
        "journal": state.journal_id,
        "epoch": state.epoch,
        "kinds": Counter(str(record.kind) for record in records),
        "definitions": opened.definitions().stored,
        "pulled": {peer: mark.record for peer, mark in state.pulled.items()},
        "message_types": {
            name: {
                "entered": len(each) and each[-1].until,
                "retired": sum(segment.row_count for segment in each if segment.retired),
                "files": sorted({segment.path for segment in each if not segment.retired}),
            }
            for name, each in ((name, list(message_type.segments)) for name, message_type in state.message_types.items())
        },
        "queues": {
            name: {
                "depth": sum(len(rows) for each, rows in ledger.rows.items() if each in IN_QUEUE),
                "states": {
                    str(each.value): [list(map(int, part)) for part in to_ranges(rows)] for each, rows in ledger.rows.items()
                },
                **{each: view(each, name) for each in OF_QUEUES},
            }
            for name, ledger in state.queues.items()
        },
        **{each: view(each) for each in OF_JOURNAL},
    }
    # As a reader of the file finds it.
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def _plain(value: Any) -> Any:
    """Return a value of a view; a text for people by the codes of errors in it."""
    return _CODE.findall(value) or value if isinstance(value, str) else value
