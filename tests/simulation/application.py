"""An application that publishes under a name, and goes on at another instance whenever it likes (DESIGN 17.3)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from tests.scenario.instances import Instance

NAME = "app"


class Application:
    """One publisher of numbered messages, that repeats its last ones wherever it goes on.

    Attributes
    ----------
    published : Counter of int
        To how many instances each number was published.
    """

    def __init__(self, instances: Sequence[Instance], chance: random.Random) -> None:
        self._instances = instances
        self._random = chance
        self._at = instances[0]
        self._next = 1
        self.published: Counter[int] = Counter()

    def publish(self) -> None:
        """Go on where it is, or elsewhere with its last numbers again."""
        first = self._next
        if self._random.random() < 0.6:
            self._at = self._random.choice(self._instances)
            first = max(1, self._next - self._random.randint(0, 9))
        self._next += self._random.randint(0, 3)
        self.resume(self._at, first)

    def resume(self, instance: Instance, first: int) -> int:
        """Publish all from a number on; returns how many were new there."""
        new = instance.publish_as(NAME, range(first, self._next))
        self.published.update(new)
        return len(new)

    def check_all_are_everywhere_once(self) -> None:
        """Raise unless each number is here exactly once, on every instance, and numbers go on behind the last."""
        for instance in self._instances:
            numbers = [number_of(instance, row) for row in instance.world.state.queues["WORK"].entered]
            assert Counter(filter(None, numbers)) == dict.fromkeys(self.published, 1)
            assert instance.world.state.message_types["json"].publishers.get(NAME, 0) == max(self.published, default=0)
            assert self.resume(instance, max(1, self._next - 6)) == 0, "whoever has pulled all knows a repeat"


def number_of(instance: Instance, row: int) -> int:
    """Return the number of a message; 0 of one without a publisher's name."""
    segment = instance.world.state.message_types["json"].segment_of(row)
    return instance.world.traits.messages(segment)[row - segment.first].sequence
