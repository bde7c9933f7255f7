"""A world whose callers are principals: with filters, rights by name or pattern, tokens that end, and changes of all that."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from spark_queue.coordinator.logins import Login
from spark_queue.core import commands
from spark_queue.core.definitions.keys import ADMINISTER, CHANGE, READ, WRITE
from spark_queue.core.records import Kind
from spark_queue.protocol import wire
from spark_queue.protocol.tokens import token_hash
from tests.model.granted import FILTERS, rights_entry
from tests.records import detail_of
from tests.simulation.coordinator import QUEUE
from tests.simulation.loop_driver import Driver, Operator, Steps
from tests.simulation.loop_node import START_MS, HeardCall
from tests.simulation.loop_world import TYPE, LoopWorld
from tests.unit.coordinator.test_rights import entry, principal

PEOPLE = ("ann", "bob", "eve")
ADMIN = "admin"
ADMINISTRATOR = principal({"rights": [ADMINISTER]}, entry(CHANGE), token=ADMIN)

#: What an entry names; one of them is of another queue.
_NAMES = (QUEUE, QUEUE, "^W.*", "^.*", "OTHER")

#: Column of the filters.
COLUMN = "n"


@dataclass(frozen=True)
class Heard:
    """What somebody was answered."""

    request: wire.AnyRequest
    who: str
    reply: wire.AnyReply
    pieces: pa.Table | None
    #: Commits to the log when it was asked for, and when it was answered.
    asked_after: int
    answered_after: int


def login(name: str) -> Login:
    """Return a call's token: that of a principal is its name."""
    return Login(name, "10.0.0.7", token_hash(name))


class Officer(Operator):
    """Settles by hand, purges, pauses, says that something was published, or applies definitions: each time as somebody else."""

    world: PrincipalsWorld

    def drain(self) -> None:
        """Leave definitions under which every message is seen by somebody, and the queue unpaused."""
        self._steps, self.who = None, login(ADMIN)
        self.tell(commands.Apply, definitions=self.world.with_principals(self.world.at_the_end()))
        super().drain()

    def _act(self) -> Steps:
        draw = self.world.random
        self.who = login(draw.choice((*PEOPLE, ADMIN)))
        act = draw.random()
        if act < 0.3:
            self.who = login(ADMIN) if draw.random() < 0.8 else self.who
            yield from self.ask(commands.Apply, definitions=self.world.draw_definitions())
        elif act < 0.4:
            yield from self.ask(wire.Nudge, message_type=TYPE)
        elif act < 0.5:
            yield from self._snoop()
        else:
            yield from super()._act()

    def _snoop(self) -> Steps:
        """Ask for the batch of somebody else."""
        driver = self.world.random.choice(self.world.drivers)
        if driver._incarnation is None or not driver.checkpoint.ends:
            return
        self.who = login(self.world.random.choice([name for name in PEOPLE if name != self.world.owner(driver)]))
        asked = {"queue": QUEUE, "subscription": driver.name, "incarnation": driver._incarnation, "call": driver._calls + 1}
        yield from self.ask(commands.Rows, lease=driver.checkpoint.ends[-1], **asked)


class PrincipalsWorld(LoopWorld):
    """A world with four principals, of whom three consume and settle, and one says who may what."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.operator: Operator = Officer(self)
        self.heard: list[Heard] = []
        self._asked_after: dict[HeardCall, int] = {}
        #: The same of the first time that a request was sent, by its id.
        self.first_asked_after: dict[str, int] = {}
        for driver, name in zip(self.drivers, PEOPLE, strict=False):
            driver.who = login(name)

    def _create(self) -> None:
        self.definitions = self.draw_definitions(now_ms=START_MS)
        super()._create()

    def with_principals(self, principals: dict[str, Any]) -> dict[str, Any]:
        """Return the definitions with other principals."""
        # A copy, since the log keeps what was sent before.
        return copy.deepcopy(self.definitions) | {"principals": principals}

    def draw_definitions(self, *, now_ms: int | None = None) -> dict[str, Any]:
        """Draw who may what from now on; some are gone, or soon will be. Reigns count on from the time of the newest record."""
        now_ms = self.storage.commits[-1].records[-1].at_ms if now_ms is None else now_ms
        people = {name: self._draw_principal(name, now_ms) for name in PEOPLE if self.random.random() < 0.9}
        return self.with_principals({ADMIN: ADMINISTRATOR, **people})

    def _draw_principal(self, name: str, now_ms: int) -> dict[str, Any]:
        entries = []
        for _ in range(self.random.choice((1, 1, 2))):
            rights = {right for right, often in ((READ, 0.85), (CHANGE, 0.6), (WRITE, 0.4)) if self.random.random() < often}
            text = self.random.choice([None, *FILTERS])
            entries.append(rights_entry(self.random.choice(_NAMES), rights or {READ}, text and text.format(COLUMN)))
        ends_ms = now_ms + self.random.choice((1_000, 10_000, 60_000))
        ending = {"expires": datetime.fromtimestamp(ends_ms / 1_000, UTC).isoformat()} if self.random.random() < 0.2 else {}
        return principal(*entries, token=name, **ending)

    def at_the_end(self) -> dict[str, Any]:
        """Return principals of whom every message has one who sees it, and none perhaps who sees all."""
        filters: tuple[str | None, str | None] = (None, None)
        if self.drivers[1].filter_sql is None:
            filters = self.random.choice(((None, f"{COLUMN} > 5"), (f"{COLUMN} < 7", f"{COLUMN} > 5"), (None, None)))
        texts = dict(zip((self.owner(each) for each in self.drivers), filters, strict=True))
        if len(texts) < len(filters):
            texts = dict.fromkeys(texts)
        people = {name: principal(rights_entry("^W.*", {READ}, texts.get(name)), token=name) for name in PEOPLE}
        return {ADMIN: ADMINISTRATOR, **people}

    def owner(self, driver: Driver) -> str:
        """Return whose a subscription is, as the log has it."""
        known = [
            detail_of(record)["principal"]
            for record in self.log
            if record.kind == Kind.SUBSCRIBED and record.subscription == driver.name and record.queue == QUEUE
        ]
        return str(known[-1]) if known else PEOPLE[self.drivers.index(driver)]

    def send(self, request: wire.AnyRequest, who: Login | None = None) -> HeardCall | None:
        """Note what was committed when it was asked."""
        call = super().send(request, who)
        if call is not None:
            self._asked_after[call] = len(self.storage.commits)
            assert isinstance(request, wire.AnyRequest), "pullers are asked nothing here"
            self.first_asked_after.setdefault(request.request, len(self.storage.commits))
        return call

    def note_answer(self, call: HeardCall, reply: wire.AnyReply | None, pieces: pa.Table | None) -> None:
        """Keep who was told what."""
        super().note_answer(call, reply, pieces)
        if reply is not None and call.who is not None:
            assert isinstance(call.request, wire.AnyRequest), "pullers are asked nothing here"
            asked_after, answered_after = self._asked_after[call], len(self.storage.commits)
            self.heard.append(Heard(call.request, str(call.who.principal), reply, pieces, asked_after, answered_after))

    def drain(self, *, rounds: int = 4_000) -> None:
        """Let each subscription's own principal read to the end."""
        for driver in self.drivers:
            driver.end(heard=False)
            driver.who = login(self.owner(driver))
        super().drain(rounds=rounds)

    def step(self) -> None:
        """Let somebody act by hand more often than elsewhere, or anything happen."""
        if self.random.random() < 0.15:
            self.operator.step()
        else:
            super().step()

    def _step_driver(self) -> None:
        driver = self.random.choice(self.drivers)
        if driver._steps is None and self.random.random() < 0.2:
            driver.who = login(self.random.choice(PEOPLE))
        driver.step()
