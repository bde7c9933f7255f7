"""News about a queue that does not fit wait, and are read again once it does (R113; DESIGN 17.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions, Disagreement, Rule
from spark_queue.core.records import Kind, Record, Removal
from spark_queue.journal.reader import open_reader
from spark_queue.replication.peer_log import PeerLog
from spark_queue.replication.validation import Fit
from tests.unit.replication.test_puller import Loop, Site
from tests.unit.replication.test_validation import defined


class Log:
    """What the peer's log says, whoever reads it."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = list(open_reader(site.store).records())
        self._definitions = dict(site.definitions.stored)
        read: dict[PeerLog, int] = {}

        def new(reader: PeerLog) -> list[Record]:
            start, read[reader] = read.get(reader, reader._next_record), len(self.records)
            kinds = None if reader._kinds is None else reader._kinds.to_pylist()
            return [record for record in self.records[start:] if kinds is None or record.kind in kinds]

        monkeypatch.setattr(PeerLog, "read", new)

    def append(self, kind: Kind, **fields: Any) -> None:
        self.records.append(Record(kind=kind, record=len(self.records), epoch=1, at_ms=1_000, **fields))

    def settle(self) -> None:
        self.append(Kind.REMOVED, queue="WORK", ranges=((0, 1),), reason=Removal.ACKNOWLEDGED)

    def define(self, **queue: Any) -> None:
        definitions = self._definitions | {"queues": {"WORK": {"underlying_topic": "T", **queue}}}
        self.append(Kind.DEFINITIONS_APPLIED, detail={"definitions": definitions, "resets": {}})


@pytest.fixture
def here(tmp_path: Path) -> Site:
    return Site(tmp_path / "frankfurt", "frankfurt", "virginia", tmp_path / "virginia")


@pytest.fixture
def log(tmp_path: Path, here: Site, monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(Site(tmp_path / "virginia", "virginia", "frankfurt", tmp_path / "frankfurt"), monkeypatch)


def test_news_about_a_queue_that_does_not_fit_wait_and_all_else_goes_on(here: Site, log: Log) -> None:
    loop = Loop(here)
    log.define(semantics="at-most-once")
    log.settle()
    loop.puller("virginia").step()
    (pull,) = loop.taken
    assert (pull.pulled.news, pull.pulled.record) == ([], log.records[-1].record)
    assert [each.rule for each in pull.pulled.disagreements or ()] == [Rule.SAME_DEFINITION]


def test_of_a_queue_that_is_not_shared_with_the_peer_nothing_is_heard(here: Site, log: Log) -> None:
    """R100: two instances may share it all the same, and this peer be asked for messages alone."""
    own = here.definitions.stored
    peers = {"virginia": {**own["peers"]["virginia"], "queues": []}}
    here.definitions = parsing.parse({**own, "peers": peers})
    loop = Loop(here)
    log.settle()
    loop.puller("virginia").step()
    assert (loop.taken[-1].pulled.news, loop.taken[-1].pulled.record) == ([], log.records[-1].record)


@pytest.mark.parametrize("new_reign", [False, True])
def test_a_queue_that_fits_again_is_read_from_the_first_record(here: Site, log: Log, *, new_reign: bool) -> None:
    loop = Loop(here)
    log.define(semantics="at-most-once")
    log.settle()
    puller = loop.puller("virginia")
    puller.step()
    log.define()
    puller = loop.puller("virginia") if new_reign else puller
    puller.step()
    assert (loop.taken[-1].pulled.record, loop.taken[-1].pulled.disagreements) == (-1, [])
    puller.step()
    assert [each.queue for each in loop.taken[-1].pulled.news] == ["WORK"]
    assert loop.taken[-1].pulled.record == log.records[-1].record
    taken = len(loop.taken)
    puller.step()
    assert len(loop.taken) == taken, "nothing is new"


def test_what_breaks_a_rule_is_told_once_and_news_of_a_queue_that_means_the_same_do_not_wait(here: Site, log: Log) -> None:
    """R113: who does not pull it back takes its own messages for unprocessed; what it says is as true as before."""
    loop = Loop(here)
    log._definitions["peers"] = {}
    log.define()
    puller = loop.puller("virginia")
    puller.step()
    assert {each.rule for each in loop.taken[0].pulled.disagreements or ()} == {Rule.BOTH_WAYS, Rule.PATHS}
    log.settle()
    puller.step()
    assert [each.queue for each in loop.taken[1].pulled.news] == ["WORK"]
    assert loop.taken[1].pulled.disagreements is None


def test_what_a_new_definition_of_here_breaks_is_told_though_the_peer_says_nothing(here: Site, log: Log) -> None:
    loop = Loop(here)
    loop.puller("virginia").step()
    queues = {"WORK": {"underlying_topic": "T", "semantics": "at-most-once"}}
    here.definitions = parsing.parse({**here.definitions.stored, "queues": queues})
    puller = loop.puller("virginia")
    puller.step()
    puller.step()
    assert (len(loop.taken), loop.taken[-1].pulled.record) == (2, log.records[-1].record)
    assert [each.rule for each in loop.taken[-1].pulled.disagreements or ()] == [Rule.SAME_DEFINITION]


def test_what_did_not_reach_somebody_is_not_taken_back_before_he_was_read() -> None:
    """R106: a coordinator that has just started knows one peer after the other."""
    own, known = defined("b", ["a", "c"]), dict[str, Definitions]()
    fit = Fit(own, own.peers["a"], known)
    told = [Disagreement(Rule.PATHS, "WORK", "what 'c' says does not reach 'a'.")]
    fit.begin(told, reads_all=False)
    fit.look(defined("a", ["b"]))
    assert fit.changed is None
    known["c"] = defined("c", ["b"])
    fit.look(known["a"])
    assert fit.changed == []
