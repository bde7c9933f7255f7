"""What a world of principals must show, judged from its log, its answers, and what people understand by rights (R12, R47, R48)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from spark_queue.core import commands, replies
from spark_queue.core.definitions.keys import ADMINISTER, CHANGE, READ, WRITE, parse_timestamp_ms
from spark_queue.core.records import Kind, Record
from spark_queue.protocol import wire
from tests.model.granted import Granted
from tests.records import detail_of
from tests.simulation.coordinator import QUEUE
from tests.simulation.loop_driver import rows_of
from tests.simulation.principals_world import COLUMN, Heard, PrincipalsWorld
from tests.simulation.promises import rows_of as rows_of_record

#: What the calls of these worlds need; reading is the rest.
_RIGHTS: dict[type[commands.Command], str] = {
    commands.Apply: ADMINISTER, wire.Nudge: WRITE, commands.Purge: CHANGE, commands.Settle: CHANGE,
    commands.SettleWhere: CHANGE, commands.Pause: CHANGE, commands.Unpause: CHANGE,
}  # fmt: skip

#: Refusals that tell a right is missing.
_CLOSED = frozenset({"ACCESS_DENIED", "TOKEN_WITHDRAWN", "TOKEN_EXPIRED"})

#: Refusals of a settlement that tell nothing of the message.
_SAY_NOTHING = frozenset({*_CLOSED, "UNKNOWN_BOOKMARK", "COORDINATOR_RECOVERING", "COORDINATOR_DEPOSED"})


@dataclass(frozen=True)
class _Version:
    """Definitions that held for a while."""

    #: Commits to the log with which they began to hold.
    since: int
    granted: Granted
    expires_ms: dict[str, int]

    def may(self, who: str, right: str, now_ms: int) -> bool:
        return who in self.granted.granted and now_ms < self.expires_ms.get(who, now_ms + 1) and self._has(who, right)

    def _has(self, who: str, right: str) -> bool:
        # What is published goes by the name of the queue, or of its topic.
        return any(self.granted.may(who, right, name) for name in ((QUEUE, "T") if right == WRITE else (QUEUE,)))

    def sees(self, who: str, number: int) -> bool:
        return self.granted.sees(who, QUEUE, number)


def _version(since: int, principals: dict[str, Any]) -> _Version:
    expires_ms = {name: parse_timestamp_ms(each["expires"]) for name, each in principals.items() if each.get("expires")}
    return _Version(since, Granted({name: each["rights"] for name, each in principals.items()}, COLUMN), expires_ms)


class Judge:
    """Goes through a world once it has come to its end."""

    def __init__(self, world: PrincipalsWorld) -> None:
        self.world = world
        self._numbers = [int(message.attributes[COLUMN]) for message in world.published]
        self._versions = [
            _version(number, detail_of(record)["definitions"].get("principals", {}))
            for number, commit in enumerate(world.storage.commits, start=1)
            for record in commit.records
            if record.kind == Kind.DEFINITIONS_APPLIED
        ]
        self._read: dict[str, set[int]] = defaultdict(set)
        #: Record and bookmark of what was given to a subscription whose principal does not see it.
        self.hidden_grants: list[tuple[int, int]] = []
        #: Record and bookmark of what somebody settled, purged or gave back who does not see it.
        self.hidden_changes: list[tuple[int, int]] = []
        self._follow_log()

    def _follow_log(self) -> None:
        version, owners, holder = self._versions[0], dict[str, str](), dict[int, int | None]()
        for record in self.world.log:
            if record.kind == Kind.DEFINITIONS_APPLIED:
                version = _version(0, detail_of(record)["definitions"].get("principals", {}))
            if record.queue != QUEUE:
                continue
            rows = list(rows_of_record(record))
            if record.kind == Kind.SUBSCRIBED:
                owners[str(record.subscription)] = str(detail_of(record)["principal"])
            elif record.kind in (Kind.GRANTED, Kind.RESUMED):
                owner = owners[str(record.subscription)]
                kept = {row for row in rows if record.kind == Kind.RESUMED and holder.get(row) == record.lease}
                self.hidden_grants += self._hidden(version, owner, record, kept)
                self._read[owner].update(rows)
                holder.update(dict.fromkeys(rows, record.lease))
            elif record.kind == Kind.RETURNED:
                holder.update(dict.fromkeys(rows))
            if "by" in detail_of(record):
                self.hidden_changes += self._hidden(version, detail_of(record)["by"]["principal"], record, set())

    def _hidden(self, version: _Version, who: str, record: Record, kept: set[int]) -> list[tuple[int, int]]:
        rows = [row for row in rows_of_record(record) if row not in kept]
        return [(record.record, row) for row in rows if not version.sees(who, self._numbers[row])]

    def answered_without_a_right(self) -> list[Heard]:
        """Return what was answered although no definitions that held between the question and the answer allow it."""
        return [heard for heard in self.world.heard if not isinstance(heard.reply, wire.Failed) and not any(self._lets(heard))]

    def refused_despite_a_right(self) -> list[Heard]:
        """Return what was refused for a missing right although all definitions that held meanwhile give it."""
        return [
            heard
            for heard in self.world.heard
            if isinstance(heard.reply, wire.Failed) and heard.reply.code in _CLOSED and all(self._lets(heard))
            and not any(heard.who in each.expires_ms for each in self._meanwhile(heard))
        ]  # fmt: skip

    def told_of_hidden(self) -> list[Heard]:
        """Return the answers that tell of a message, or count it, that their caller has not seen and does not see."""
        return [heard for heard in self.world.heard if self._tells(heard)]

    def _tells(self, heard: Heard) -> bool:
        if heard.pieces is not None and not set(rows_of(heard.pieces)) <= self._read[heard.who]:
            return True
        reply, request = heard.reply, heard.request
        if isinstance(reply, replies.Granted):
            return reply.status is not None and not any(each.granted.sees_all(heard.who, QUEUE) for each in self._meanwhile(heard))
        if isinstance(request, commands.Settle):
            row = request.outcomes[0].ranges[0][0]
            if row >= len(self._numbers) or self._may_see(heard, self._numbers[row]):
                return False
            return not (isinstance(reply, wire.Failed) and reply.code in _SAY_NOTHING)
        if isinstance(request, commands.SettleWhere | commands.Purge) and isinstance(reply, replies.Settled | replies.Purged):
            number = int(str(request.where).rpartition("=")[2])
            counts = [getattr(reply, name) for name in reply.__struct_fields__]
            # A repeat tells again what was told when it was asked first.
            first = replace(heard, asked_after=self.world.first_asked_after[request.request])
            return any(counts) and not self._may_see(first, number)
        return False

    def _may_see(self, heard: Heard, number: int) -> bool:
        return any(each.sees(heard.who, number) for each in self._meanwhile(heard))

    def _lets(self, heard: Heard) -> Iterator[bool]:
        right = _RIGHTS.get(type(heard.request), READ)
        # No reign counts from before the last record.
        now_ms = self.world.storage.commits[heard.asked_after - 1].records[-1].at_ms
        return (each.may(heard.who, right, now_ms) for each in self._meanwhile(heard))

    def _meanwhile(self, heard: Heard) -> list[_Version]:
        """Return the definitions that held at some time between the question and its answer."""
        held = [number for number, each in enumerate(self._versions) if each.since <= heard.asked_after]
        return [each for each in self._versions[held[-1] :] if each.since <= heard.answered_after]
