"""An instance on disk at which the steps of scenarios are taken: its core decides, and its journal is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast

import pyarrow as pa
from msgspec.structs import replace

from spark_queue.coordinator.commands import Commands
from spark_queue.coordinator.logins import Login
from spark_queue.coordinator.rights import caller_of
from spark_queue.core import commands
from spark_queue.core.deciding.instances.liveness import GAP_MS
from spark_queue.core.records import Body, RecordColumns
from spark_queue.journal.publisher import Identity
from spark_queue.journal.schema import user_schema
from tests.fake_clock import FakeClock
from tests.scenario import acts
from tests.scenario.script import Words, compare, read
from tests.scenario.traits import PublishedMessage
from tests.scenario.world import Planner, World
from tests.sites_on_disk import DiskInstance


class StorySite(DiskInstance):
    """An instance on disk, and the planners, runs and checkpoints of which steps of `tests.scenario` speak."""

    clock: FakeClock

    def __init__(self, path: Path, clock: FakeClock, definitions: Mapping[str, Any]) -> None:
        self.planners: dict[str, Planner] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.checkpoints: dict[tuple[str, str], int] = {}
        super().__init__(path, clock, definitions)
        self.requests = 0

    def run(self, text: str) -> None:
        """Take steps of the language, and compare their answers; each is committed."""
        for step in read(text):
            words = Words(step.words)
            answer = acts.VERBS[step.verb](cast(World, self), words)
            words.end()
            compare(step.expected or answer, answer, f"line {step.number}: {step.text}\n  answered {answer!r}")
            self.commit()

    def decide(self, command: commands.AnyCommand) -> Any:
        """Decide as for a caller whose calls have ids, and make it durable."""
        self.requests += 1
        asker = commands.Asker(user="ann", host="golden")
        named = replace(command, request=command.request or f"call {self.requests}", asker=asker)
        reply = self.engine.decide(
            named, now_ms=self.now_ms, caller=caller_of(self.state.definitions, Login(None, "golden"), named)
        )
        self.commit()
        return reply

    def ask(self, kind: type[commands.AnyCommand], **fields: Any) -> None:
        """Have a command carried out as a coordinator does, with its looks at tables."""
        self.requests += 1
        Commands(self.engine, self.opened, {}).run(kind(request=f"call {self.requests}", **fields), now_ms=self.now_ms)
        self.commit()

    def publish(
        self, message_type: str, messages: Sequence[PublishedMessage], *, waited_ms: int = 0, delay_ms: int | None = None
    ) -> None:
        """Publish messages in one file, which enters at once; their attributes are the columns."""
        assert not waited_ms, "a publish on disk enters at once"
        schema = user_schema(self.state.definitions.message_types[message_type].columns)
        texts = {field.name for field in schema if field.type == pa.string()}
        values = ({name: str(value) if name in texts else value for name, value in each.attributes.items()} for each in messages)
        rows = pa.Table.from_pylist(list(values), schema=schema)
        lasts = {each.expires_at_ms and each.expires_at_ms - self.now_ms for each in messages}
        assert len(lasts) == 1, "all messages of one publish expire at one time"
        self.publish_rows(rows, message_type, delay_ms=delay_ms, expires_ms=lasts.pop())

    def publish_as(self, publisher: str, first: int, rows: pa.Table, message_type: str) -> None:
        """Publish rows under the name of a publisher, numbered from `first` on."""
        self.publish_rows(rows, message_type, identity=Identity(publisher=publisher), first_sequence=first)

    def admit_all(self) -> None:
        """Let in what was published, as far as each type can be read."""
        for name in self.state.message_types:
            while self._entrance.admit(name, now_ms=self.now_ms):
                continue
        self.commit()

    def note(self, body: Body, **about: Unpack[RecordColumns]) -> None:
        """Record what no call of a story brings about."""
        self.engine._emit(self.now_ms)(body, **about)
        self.commit()

    def begin_again(self) -> None:
        """Let the coordinator fold what it has committed, as after a fault of a queue, and when one is revived."""
        self.commit()
        self.engine.begin_again(self.opened.control.load().fold(self.engine.state.traits))
        self.engine.take_over(now_ms=self.now_ms)
        self.commit()

    def recover(self) -> None:
        """Let the next coordinator begin its reign."""
        self.begin()
        self.engine.take_over(now_ms=self.now_ms)
        self.commit()

    def look(self, *names: str) -> None:
        """Look at the beacons of instances, none of which has risen; all that can be read is pulled."""
        reach = self.engine.liveness
        reach.listen(names, now_ms=self.now_ms)
        reach.note_commit(now_ms=self.now_ms - 1)
        reach.hear({}, now_ms=self.now_ms, looked_ms=self.now_ms)
        reach.level_ms = self.now_ms
        self.engine.end_claims(now_ms=self.now_ms)
        self.commit()

    def miss(self, *names: str, silent_ms: int) -> None:
        """Hear of some instances nothing for a while."""
        for _ in range(0, silent_ms, GAP_MS // 2):
            self.clock.advance(GAP_MS // 2)
            self.look(*names)

    def keep_up(self) -> None:
        """Do what upkeep finds to do, and record it, until there is no more."""
        for _ in range(20):
            self.opened.upkeep(epoch=self.epoch, state=self.state, now_ms=self.now_ms)
            self.opened._upkeep.finish()
            found = self.opened.upkeep(epoch=self.epoch, state=self.state, now_ms=self.now_ms)
            self.opened._upkeep.finish()
            self.engine.take_files(found, now_ms=self.now_ms)
            self.enter()
            if not found:
                return
        raise AssertionError("upkeep finds no end")
