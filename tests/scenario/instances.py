"""Several instances in memory, each with a core and a log of its own, that pull from each other when told (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.instances.liveness import GAP_MS
from spark_queue.core.deciding.instances.naming import OtherNames
from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.message_files.foresight import Foresight
from spark_queue.core.message_files.origins import overlap
from spark_queue.core.message_files.segment import Segment, from_record
from spark_queue.core.records import ClashingRows, Kind, OriginRows, Removal, TransferRequested
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import MessageValue, Ownership, Stage
from spark_queue.replication.news import PeerFold
from tests.fake_clock import FakeClock
from tests.records import record_of
from tests.scenario.traits import PublishedMessage
from tests.scenario.world import World

#: One queue, its dead-letter queue, and their topic.
QUEUES: dict[str, dict[str, Any]] = {
    "WORK": {"underlying_topic": "T", "dead_letter_queue": "FAILED", "lease_period": "60s", "max_deliveries": 2},
    "FAILED": {"message_type": "json"},
}


#: The same, where everything belongs to frankfurt first.
OF_FRANKFURT: dict[str, dict[str, Any]] = {
    name: {**queue, "ownership": "group_local", "initial_owner": "frankfurt"} for name, queue in QUEUES.items()
}


class Instance:
    """One instance, and what it knows of its peers.

    Parameters
    ----------
    name : str
        Of the instance; its journal's UUID is made of it.
    peers : Sequence of str
        From whom it pulls.
    journal : Mapping
        Further settings of its journal.
    pulled : Sequence of str or None
        The queues that it pulls at first; None for all.
    passthrough : Sequence of str
        Whose messages may come through its peers.
    """

    def __init__(
        self, name: str, peers: Sequence[str], clock: FakeClock, *,
        queues: dict[str, dict[str, Any]] = QUEUES, journal: Mapping[str, Any] = MappingProxyType({}),
        pulled: Sequence[str] | None = None, passthrough: Sequence[str] = ("^.*",),
    ) -> None:  # fmt: skip
        self.name = name
        self.world = World(clock=clock, journal_id=f"uuid-of-{name}")
        self._folds = {peer: PeerFold(peer) for peer in peers}
        self._passthrough = list(passthrough)
        self._read = dict.fromkeys(peers, 0)
        self._definitions: dict[str, Any] = {
            "journal": {"instance": name, **journal},
            "message_types": {"json": {"topics": ["T"]}},
            "queues": queues,
        }
        self.pull_queues(list(queues) if pulled is None else pulled)
        self.look()

    def pull_queues(self, queues: Sequence[str]) -> None:
        """Pull the messages of all peers from now on, and what becomes of them in some queues."""
        self.redefine(self._definitions, pulled=queues)

    def redefine(self, definitions: Mapping[str, Any], *, pulled: Sequence[str] | None = None, reset: Sequence[str] = ()) -> None:
        """Replace all definitions but its name and its peers, and pull some of the queues; None for all.

        What the definitions say of a peer adds to what is said of each.
        """
        queues = list(definitions.get("queues", {})) if pulled is None else list(pulled)
        of_each = {"topics": ["T"], "queues": queues, "passthrough": self._passthrough}
        said = definitions.get("peers", {})
        peers = {each: {"journal": f"/{each}", **of_each, **said.get(each, {})} for each in self._folds}
        named = {**definitions, "journal": {**definitions.get("journal", {}), "instance": self.name}}
        self.decide(commands.Apply(definitions={**named, "peers": peers}, reset=tuple(reset)))
        self._definitions = named

    def begin_late(self, queues: dict[str, dict[str, Any]]) -> None:
        """Define queues that begin now: what is here already never was in them, whoever says so."""
        self.define(
            {name: {"recovery_point": "now", **queue} if "underlying_topic" in queue else queue for name, queue in queues.items()}
        )

    def define(self, queues: dict[str, dict[str, Any]], *, pulled: Sequence[str] | None = None) -> None:
        """Define the queues anew, and pull some of them; None for all."""
        self.redefine({**self._definitions, "queues": queues}, pulled=pulled)

    def decide(self, command: commands.AnyCommand) -> Any:
        """Decide about a command, and make it durable."""
        reply = self.world.decide(command)
        self.world.commit()
        return reply

    def settle(self, outcome: str, *rows: int, queue: str = "WORK") -> None:
        """Say what became of messages, by hand."""
        said = commands.OutcomeRows(outcome=outcome, ranges=tuple((row, row + 1) for row in rows))
        self.decide(commands.Settle(queue=queue, outcomes=(said,)))

    def publish(self, count: int) -> None:
        """Publish messages of the topic."""
        self.world.publish("json", [PublishedMessage(topic="T")] * count)
        self.world.commit()

    def publish_as(self, publisher: str, sequences: Iterable[int], *, body: str = "") -> list[int]:
        """Publish messages of a named publisher, those that are not repeats; returns their numbers."""
        highest = self.world.state.message_types["json"].publishers.get(publisher, 0)
        new = [each for each in sequences if each > highest]
        if new:
            made = [PublishedMessage(topic="T", attributes={"body": body}, publisher=publisher, sequence=each) for each in new]
            self.world.publish("json", made)
            self.world.commit()
        return new

    def pull(self, peer: Instance, *, dies: bool = False) -> None:
        """Take over what a peer has committed since the last time; the coordinator may die when the messages have entered."""
        watermark = self.world.state.pulled.get(peer.name)
        if watermark is not None and watermark.record < 0:
            self._folds[peer.name], self._read[peer.name] = PeerFold(peer.name), 0
        fold, news, names = self._folds[peer.name], list[News](), list[OtherNames]()
        definition = self.world.state.definitions.peers[peer.name]
        records = peer.world.committed[self._read[peer.name] :]
        foresight = Foresight(peer.world.committed)
        for record in records:
            found = fold.fold(record)
            is_passed_on = (
                found is not None and found.decided is not None and not self.world.state.definitions.is_replicated(found.queue)
            )
            news += [found] if found is not None and (found.queue in definition.queues or is_passed_on) else []
            if record.kind == Kind.ENTERED:
                names += self._copy(peer, fold, foresight.place(from_record(record)))
        if dies:
            self.read_again(peer.name)
            self.crash()
            return
        if records:
            last = records[-1].record
            missing_queues = [name for name in definition.queues if name not in fold.definitions.queues]
            pulled = Pulled(
                peer=peer.name,
                journal=fold.journal_id,
                record=last,
                digest=f"of {last}",
                names=names,
                news=news,
                missing_queues=missing_queues,
            )
            from_here = fold.pulled.get(self.world.journal_id)
            reach = self.world.engine.liveness
            reach.pulled_here = {**reach.pulled_here, peer.name: -1 if from_here is None else from_here.record}
            self.world.engine.pull(pulled, now_ms=self.world.now_ms)
            self.world.commit()
        self._read[peer.name] += len(records)

    def _copy(self, peer: Instance, fold: PeerFold, segment: Segment) -> list[OtherNames]:
        messages, origins, clashes, names = list[PublishedMessage](), list[OriginRows](), list[ClashingRows](), list[OriginRows]()
        known = self.world.state.message_types[segment.message_type]
        of_peer = fold.message_types[segment.message_type].origins
        for row, message in enumerate(peer.world.traits.messages(segment)):
            ((_, _, origin, there),) = of_peer.between(segment.first + row, segment.first + row + 1, own=fold.journal_id)
            if origin == self.world.journal_id or known.origins.holds([(0, 1, origin, there)]):
                continue
            standing = self._standing(message)
            same = [bookmark for bookmark, each in standing.items() if each == message]
            if same:
                names.append((same[0], 1, origin, there))
                continue
            if standing:
                clashes.append((len(messages), 1, str(message.publisher), message.sequence))
            origins.append((len(messages), 1, origin, there))
            messages.append(message)
        if messages:
            self.world.publish(segment.message_type, messages, origins=origins, instances=fold.instances, clashes=clashes)
            self.world.commit()
        return [OtherNames(message_type=segment.message_type, rows=tuple(names), instances=fold.instances)] if names else []

    def _standing(self, message: PublishedMessage) -> dict[int, PublishedMessage]:
        """Return what is here of the publisher of a message with its number."""
        if message.publisher is None:
            return {}
        asked = {message.publisher: (message.sequence, message.sequence)}
        segments = [each for each in self.world.state.message_types["json"].segments if overlap(asked, each.publishers)]
        return {
            segment.first + row: each
            for segment in segments
            for row, each in enumerate(self.world.traits.messages(segment))
            if (each.publisher, each.sequence) == (message.publisher, message.sequence)
        }

    def merge(self) -> None:
        """Put all messages into one file."""
        if self.world.state.message_types["json"].segments:
            self.world.merge("json")
            self.world.commit()

    def ownership(self, queue: str = "WORK") -> Ownership:
        """Return whose the messages of a queue are."""
        return self.world.state.queues[queue].ownership

    def read_again(self, peer: str) -> None:
        """Begin a peer's log from its first record."""
        self._folds[peer], self._read[peer] = PeerFold(peer), 0

    def count(self, kind: str) -> int:
        """Count the records of a kind."""
        return sum(record.kind == kind for record in self.world.committed)

    def pulls(self, other: Instance) -> bool:
        """Return whether another instance is a peer of this one."""
        return other.name in self._folds

    def has_all_of(self, peer: Instance) -> bool:
        """Return whether a peer is pulled to its end."""
        return self._read[peer.name] == len(peer.world.committed)

    def acknowledged(self) -> set[tuple[str, int]]:
        """Return what this instance acknowledged."""
        removals = (each for each in self.world.committed if each.queue == "WORK" and each.reason == Removal.ACKNOWLEDGED)
        return {each for record in removals if record.kind == Kind.REMOVED for each in self.ids(to_bitmap(record.ranges))}

    def look(self, rises: Mapping[str, int] = MappingProxyType({}), *, is_level: bool = True) -> None:
        """Look at all beacons, and hear of those that have risen; all that can be read is pulled, or it is not."""
        reach, now_ms = self.world.engine.liveness, self.world.now_ms
        owners = (ledger.ownership.others() for ledger in self.world.state.queues.values())
        reach.listen({*self._folds}.union(*owners), now_ms=now_ms)
        reach.there = lambda peer, message_type: self._folds[peer].held().get(message_type, {})
        reach.note_commit(now_ms=now_ms - 1)
        reach.hear(rises, now_ms=now_ms, looked_ms=now_ms)
        reach.level_ms = now_ms if is_level else reach.level_ms
        self.world.engine.end_claims(now_ms=now_ms)
        self.world.commit()

    def miss(self, silent_ms: int, *, is_level: bool = True) -> None:
        """Hear of nobody for a while."""
        for step_ms in [GAP_MS // 2] * (2 * silent_ms // GAP_MS) + [silent_ms % (GAP_MS // 2)]:
            self.world.clock.advance(step_ms)
            self.look(is_level=is_level)

    def tick(self) -> None:
        """Do what is due."""
        self.world.engine.tick(now_ms=self.world.now_ms)
        self.world.commit()

    def crash(self) -> None:
        """Go on with the next coordinator, which reads the log."""
        self.world.recover()
        self.look()

    def ids(self, rows: Iterable[int]) -> set[tuple[str, int]]:
        """Return what bookmarks of here are everywhere: the UUID of the origin, and the bookmark there."""
        origins = self.world.state.message_types["json"].origins
        found = origins.of(BitMap64(rows), own=self.world.journal_id)
        return {(origin, row) for origin, there in found for row in there}

    def own_row(self, each: tuple[str, int]) -> int | None:
        """Return the bookmark here of a message of anywhere; None while it is not here."""
        origin, bookmark = each
        known = self.world.state.message_types["json"]
        if origin == self.world.journal_id:
            return bookmark
        found = known.origins.here(origin, BitMap64([bookmark]))
        return found.min() if found else None

    def value(self, queue: str, row: int) -> MessageValue:
        """Return what this instance says of a message; it has no owner before its origin has said that it is in the queue."""
        ledger, ownership, rows = self.world.state.queues[queue], self.ownership(queue), BitMap64([row])
        if row not in ledger.entered:
            return MessageValue()
        ((life, _),) = ownership.by_life(rows)
        if row in ledger.rows[State.REMOVED]:
            return MessageValue(life, Stage.GONE)
        ((term, owner, _),) = ownership.by_owner(rows)
        return MessageValue(life, Stage.DEAD if row in ledger.rows[State.DEAD] else Stage.PRESENT, term, owner)

    def rows(self, state: str, queue: str = "WORK") -> list[int]:
        """Return the bookmarks in a state."""
        return list(next(rows for each, rows in self.world.state.queues[queue].rows.items() if each.value == state))


class Consumer:
    """A subscription of an instance that takes batches and finishes them."""

    def __init__(
        self, instance: Instance, name: str = "s", queue: str = "WORK", *, filter_sql: str | None = None, max_backlog: int = 1_000
    ) -> None:
        self._instance = instance
        self._who: dict[str, Any] = {"queue": queue, "subscription": name}
        self._who["incarnation"] = instance.decide(commands.DrawIncarnation(**self._who)).incarnation
        self._call, self._finished = 1, 0
        asked: dict[str, Any] = {"ack_mode": "auto", "max_backlog": max_backlog, "filter": filter_sql, "available_now": False}
        instance.decide(commands.Attach(**self._who, call=1, **asked))

    def take(self, limit: int = 100, *, looks: bool = True) -> list[int]:
        """Finish the batch before, and return the bookmarks of the next; empty where nothing is there, and it waits.

        Parameters
        ----------
        looks : bool
            Whether what it lets claim is given to it after another look at once.
        """
        self._call += 1
        poll = commands.Next(**self._who, call=self._call, finished=self._finished, limit=limit)
        self._instance.world.engine.note_poll(poll, now_ms=self._instance.world.now_ms)
        granted = self._instance.decide(poll)
        if granted is None:
            self._instance.world.engine.ask_owners(poll, now_ms=self._instance.world.now_ms)
            self._instance.world.commit()
            if looks and self._instance.ownership(self._who["queue"]).claims:
                self._instance.look()
                return self.take(limit)
            return []
        self._finished = granted.lease
        return list(self._instance.world.state.queues[self._who["queue"]].leases[granted.lease].rows)

    def consume(self) -> list[int]:
        """Take a batch, and finish it by asking for the next."""
        taken = self.take()
        self.take()
        return taken


def two_instances(clock: FakeClock, **of_both: Any) -> tuple[Instance, Instance]:
    """Make frankfurt and virginia, which pull from each other."""
    return Instance("frankfurt", ["virginia"], clock, **of_both), Instance("virginia", ["frankfurt"], clock, **of_both)


def exchange(*instances: Instance) -> None:
    """Let everybody pull from all of its peers until nothing is new, also where news go by way of others."""
    for _ in range(2 * len(instances)):
        for each in instances:
            for other in instances:
                if each.pulls(other):
                    each.pull(other)


def ask(of: Instance, rows: Mapping[str, Iterable[int]], *, queue: str = "WORK", **detail: object) -> None:
    """Let an instance read a request of virginia, as if it had pulled her messages."""
    asked = record_of(kind=Kind.TRANSFER_REQUESTED, detail={"requester": "virginia", "owner": of.name, **detail})
    by_origin = {origin: BitMap64(each) for origin, each in rows.items()}
    message_type = of.world.state.queues[queue].definition.message_type
    news = News(queue=queue, message_type=message_type, rows=by_origin, requested=asked.body_as(TransferRequested))
    pulled = Pulled(peer="virginia", journal="uuid-of-virginia", record=99, digest="", news=[news])
    of.world.engine.pull(pulled, now_ms=of.world.now_ms)
    of.world.commit()
