"""Who may what, as people understand the definitions: what the core says of rights is compared with this (R12)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_queue.core.definitions.keys import READ

#: Filters over a number, with `{}` for its column, and what they mean.
FILTERS: dict[str | None, Callable[[int], bool]] = {
    None: lambda _: True, "{} > 5": lambda number: number > 5, "{} < 9": lambda number: number < 9,
    "{} = 3": lambda number: number == 3, "{} < 7": lambda number: number < 7,
}  # fmt: skip

#: The entries of each principal.
Grants = dict[str, list[dict[str, Any]]]


def rights_entry(queues: str, rights: set[str], text: str | None) -> dict[str, Any]:
    """Return an entry of rights; only one who reads may have a filter."""
    return {"queues": queues, "rights": sorted(rights), **({"filter": text} if text and READ in rights else {})}


@dataclass
class Granted:
    """What principals were granted, with filters over one column."""

    granted: Grants
    column: str

    def may(self, who: str, right: str, queue: str) -> bool:
        """Return whether a principal has a right on a queue."""
        return any(right in each["rights"] for each in self._entries(who, queue))

    def sees(self, who: str, queue: str, number: int) -> bool:
        """Return whether no filter of any of its entries hides a message with this number in the column."""
        filters = {text and text.format(self.column): means for text, means in FILTERS.items()}
        return all(filters[each.get("filter")](number) for each in self._entries(who, queue))

    def sees_all(self, who: str, queue: str) -> bool:
        """Return whether it has no filter there."""
        return not any(each.get("filter") for each in self._entries(who, queue))

    def _entries(self, who: str, queue: str) -> list[dict[str, Any]]:
        return [each for each in self.granted.get(who, []) if _names(each.get("queues", "^.*"), queue)]


def _names(entry: str, queue: str) -> bool:
    return re.fullmatch(entry, queue) is not None if entry.startswith("^") else entry == queue
