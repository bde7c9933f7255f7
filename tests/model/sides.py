"""One instance of a random program, as the core has it and as the model has it."""

from __future__ import annotations

from typing import Any

from spark_queue.core.deciding.instances.liveness import ClaimVerdict, Liveness
from tests.fake_clock import FakeClock
from tests.model import instances as model
from tests.model.instances import Id
from tests.scenario import instances as core


class ToldReach(Liveness):
    """Knows who cannot be reached by word of mouth."""

    def __init__(self, lost: set[str]) -> None:
        super().__init__()
        self._lost = lost

    def is_lost(self, instance: str, *, after_ms: int) -> bool:
        """Return whether it was said that nobody reaches an instance."""
        return instance in self._lost

    def note_claim(self, queue: str, owner: str) -> None:
        """Note that messages of an owner are claimed."""
        self.listen([owner], now_ms=0)
        super().note_claim(queue, owner)

    def verdict(self, queue: str, owner: str) -> ClaimVerdict:
        """Let a claim stand while nobody reaches its owner; each look is a later one."""
        return ClaimVerdict.STANDS if owner in self._lost and (queue, owner) in self._claims else ClaimVerdict.FALLS


class Sides:
    """One instance of a program: the core, and the model."""

    def __init__(self, name: str, peers: list[str], clock: FakeClock) -> None:
        self.name = name
        self.core = core.Instance(name, peers, clock)
        self.model = model.Instance(name)
        self.consumer: core.Consumer | None = None
        #: How far the core's records were looked at for requests, and the model's for what came.
        self.looked = self.told = 0
        #: When each message came in each life; of the last request of each owner when it was, and what it named, in which lives.
        self.came_at: dict[tuple[Id, int], int] = {}
        self.asked: dict[str, tuple[int, set[tuple[Id, int]]]] = {}
        self.reach()

    def reach(self) -> None:
        """Let the core believe whom the model finds lost."""
        self.core.world.engine.liveness = ToldReach(self.model.lost)

    def ids(self, rows: Any) -> list[Id]:
        """Return the messages at some bookmarks, in their order."""
        return [(origin.removeprefix("uuid-of-"), row) for each in rows for origin, row in self.core.ids([each])]

    def note_what_came(self) -> None:
        """Forget requests of which something came since the last look; it may be somebody else's again."""
        told, self.told = self.model.log[self.told :], len(self.model.log)
        values = [(each, news.value) for news in told if news.kind == "value" for each in news.ids]
        came = {(each, value.life) for each, value in values if value is not None and value.owner == self.name}
        self.asked = {owner: asked for owner, asked in self.asked.items() if not asked[1] & came}

    def row(self, each: Id) -> int:
        """Return the bookmark of a message."""
        found = self.core.own_row((f"uuid-of-{each[0]}", each[1]))
        assert found is not None
        return found
