"""The definitions that were applied to a journal one after the other, and the changes of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_queue.client.changes import NOT_SHOWN, TOKEN_KEY, changes_between
from spark_queue.core.definitions import parsing
from spark_queue.core.records import DefinitionsApplied
from spark_queue.journal.record_blocks import ControlRows
from spark_queue.views.control_rows import who


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedVersion:
    """Definitions that were applied once."""

    record: int
    at_ms: int
    #: The caller, where the record names one.
    who: str
    stored: Mapping[str, Any]

    def changes_since(self, older: AppliedVersion) -> list[str]:
        """Return the changes from an older version to this one, in lines."""
        changes = changes_between(parsing.parse(older.stored), parsing.parse(self.stored))
        return [str(replace(each, before=NOT_SHOWN, after=NOT_SHOWN) if each.key == TOKEN_KEY else each) for each in changes]


def applied_versions(rows: ControlRows) -> list[AppliedVersion]:
    """Return the versions of definitions in a control log, newest first."""
    return [
        AppliedVersion(record=each.record, at_ms=each.at_ms, who=who(each), stored=each.body_as(DefinitionsApplied).definitions)
        for each in reversed(rows.applied())
    ]
