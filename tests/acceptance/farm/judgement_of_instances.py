"""What a run with several instances must show, however they are altered: nothing lost, all agree, each duplicate explained.

A message is known everywhere by the journal that it was published to, and its bookmark there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from spark_queue.core.records import CLAIMED, Kind, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.journal.open import open_journal
from spark_queue.views import state_at
from tests.acceptance.farm.judgement import Deliveries
from tests.acceptance.farm.site import Site
from tests.records import detail_of

#: The UUID of the journal that a message was published to, and its bookmark there.
Id = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Messages that break a promise, and what was explained."""

    #: The journals whose log has not as many messages as were published to it, and how many it lacks.
    missing: list[Id]
    #: In the queue where it was published, and still in it somewhere, or not even known there.
    unfinished: list[Id]
    #: Dead on one instance, and gone on another.
    disagreed: list[Id]
    #: Acknowledged, and in no file of that instance's sink.
    lost: list[Id]
    #: With more than one final outcome on an instance, or one that its consumer did not ask for.
    contradicted: list[Id]
    #: In more files of an instance's sink than its log delivered them.
    unexpected: list[Id]
    #: Delivered where another instance held them, or had ended them, and never claimed of that one.
    shared: list[Id]
    #: Deliveries beyond the first in the world, and how many messages were transferred and claimed.
    explained_duplicates: int
    transferred: int
    claimed: int

    @property
    def broken(self) -> dict[str, list[Id]]:
        """The promises that were broken, and by what."""
        promises = ("missing", "unfinished", "disagreed", "lost", "contradicted", "unexpected", "shared")
        return {name: getattr(self, name) for name in promises if getattr(self, name)}


class _Log:
    """The log and the sink of one instance."""

    def __init__(self, site: Site) -> None:
        journal = open_journal(site.journal.store)
        self.records: Sequence[Record] = [
            record for record in journal.records() if record.queue == "WORK" or record.kind == Kind.PULLED
        ]
        self.state: JournalState = state_at(journal).state
        self.heard = Deliveries.of(site.folder)
        for record in self.records:
            self.heard.hear(record.kind, record.reason, _rows(record))
        known = self.state.message_types["json"]
        self._ids: list[Id] = [
            (origin, first + number)
            for _, length, origin, first in known.origins.between(0, known.entered_until, own=self.state.journal_id)
            for number in range(length)
        ]

        ledger = self.state.ledger("WORK")
        self.transferred = ledger.ownership.came_from.total()
        self.dead = set(self.ids(ledger.rows[State.DEAD]))
        self.ended = self.dead | set(self.ids(ledger.rows[State.REMOVED]))
        own = self.state.journal_id
        #: What was published here and is in the queue: that is said here, once and for all.
        self.published = {each for each in self.ids(ledger.entered) if each[0] == own}
        lacks = site.published - sum(origin == own for origin, _ in self._ids)
        self.missing = [(own, lacks)] if lacks else []

    def ids(self, rows: Iterable[int]) -> list[Id]:
        """Return what rows of this instance are everywhere."""
        return [self._ids[row] for row in rows]


@dataclass(slots=True)
class Holders:
    """Who holds each message, as the records of all instances say one after the other."""

    #: By message: who has delivered it, and has not got it back; an instance that has ended it holds it for ever.
    holding: dict[Id, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: By message: who claimed it, and by which record of its log.
    claims: dict[Id, list[tuple[str, int]]] = field(default_factory=dict)
    #: By instance and another one: up to which record of that one's log it has heard.
    pulled: dict[tuple[str, str], int] = field(default_factory=dict)
    shared: list[Id] = field(default_factory=list)

    def hear(self, name: str, record: Record, ids: Iterable[Id]) -> None:
        match record.kind:
            case Kind.GRANTED | Kind.RESUMED:
                for each in ids:
                    # A lease that goes on with another planner has been this one's all the time, whoever claimed its rows.
                    goes_on = record.kind == Kind.RESUMED and name in self.holding[each]
                    others = set() if goes_on else self.holding[each] - {name}
                    self.shared += [each] if others and not self._is_claimed(each, name, others) else []
                    self.holding[each].add(name)
            case Kind.RETURNED:
                for each in ids:
                    self.holding[each].discard(name)
            case Kind.TRANSFERRED if record.reason == CLAIMED:
                for each in ids:
                    self.claims.setdefault(each, []).append((name, record.record))
            case Kind.PULLED:
                self.pulled[name, detail_of(record)["peer"]] = detail_of(record)["number"]

    def _is_claimed(self, message: Id, by: str, others: set[str]) -> bool:
        """Return whether who delivers had claimed it, or another has, and this one, alive all the time, had not heard (R111)."""
        return any(
            who == by or (who in others and self.pulled.get((by, who), -1) < number) for who, number in self.claims.get(message, ())
        )


def judge_instances(sites: Sequence[Site]) -> Judgement:
    """Compare the sinks with the logs, and the logs with each other."""
    logs = {site.folder.name: _Log(site) for site in sites}
    every = list(logs.values())
    holders = Holders()
    for name, record in sorted(((name, record) for name, log in logs.items() for record in log.records), key=_moment):
        holders.hear(name, record, logs[name].ids(_rows(record)))
    written = [each for log in every for each in log.ids(log.heard.written.elements())]
    ended_everywhere = every[0].ended.intersection(*(log.ended for log in every))
    dead_everywhere = every[0].dead.intersection(*(log.dead for log in every))
    return Judgement(
        missing=[each for log in every for each in log.missing],
        unfinished=sorted(set[Id]().union(*(log.published for log in every)) - ended_everywhere),
        disagreed=sorted(set[Id]().union(*(log.dead for log in every)) - dead_everywhere),
        lost=[each for log in every for each in log.ids(log.heard.lost())],
        contradicted=[each for log in every for each in log.ids(log.heard.contradicted())],
        unexpected=[each for log in every for each in log.ids(log.heard.unexpected())],
        shared=holders.shared,
        explained_duplicates=len(written) - len(set(written)),
        transferred=sum(log.transferred for log in every),
        claimed=len(holders.claims),
    )


def _moment(each: tuple[str, Record]) -> int:
    return each[1].at_ms


def _rows(record: Record) -> Iterable[int]:
    return (row for first, until in record.ranges for row in range(first, until))
