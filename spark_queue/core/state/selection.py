"""Matches, priorities and order keys of a queue's messages, as its expressions say (R49, R66, DESIGN 8)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.order_key import OrderKeys
from spark_queue.core.bitmaps.priority import Priorities
from spark_queue.core.message_files.segment import EntryTraits

#: Messages that may have left the queue before their traits are forgotten, whatever is still there.
_GONE_MAX = 1 << 16


class Selection:
    """Traits of the messages in a queue; those of messages that left are forgotten once they are the larger part.

    Attributes
    ----------
    matches : dict of str to BitMap64
        The matches of the filters of the queue's subscriptions, by filter.
    """

    def __init__(self) -> None:
        self.matches: dict[str, BitMap64] = {}
        self.priorities = Priorities()
        self.order_keys = OrderKeys()

    def add(self, traits: EntryTraits) -> None:
        """Add the traits of new messages."""
        for text, rows in self.matches.items():
            rows |= traits.matches[text]
        self.priorities.add(traits.ranked, traits.priorities)
        # Late decisions of others about messages of theirs come late.
        self.order_keys = self.order_keys.joined(traits.keyed, traits.keys)

    def matching(self, rows: BitMap64, text: str | None) -> BitMap64:
        """Return those of `rows` that match a filter; None for everything."""
        return rows if text is None else rows & self.matches[text]

    def heads(self, rows: BitMap64) -> BitMap64:
        """Return those of `rows` that no older or held message of their key holds up.

        Order wins over filters: a key whose oldest message does not match waits until another subscription has got that one.
        """
        return rows - self.order_keys.behind if self.order_keys.behind else rows

    def first(self, rows: BitMap64, count: int) -> BitMap64:
        """Return the `count` of `rows` that come first (R47, R66)."""
        return self.priorities.first(rows, count)

    def is_mostly_gone(self, standing: int) -> bool:
        """Return whether most of the known traits are of messages that are gone, given how many are not."""
        known = (len(self.priorities.ranked), len(self.order_keys), *map(len, self.matches.values()))
        return max(known) > 2 * standing + _GONE_MAX

    def keep(self, rows: BitMap64) -> None:
        """Forget everything but `rows`."""
        self.priorities.keep(rows)
        self.order_keys = self.order_keys.kept(rows)
        for members in self.matches.values():
            members &= rows
