"""One puller and a peer's journal on disk: what is read, from where, what is refused, and what waits (R113; DESIGN 17.3, 17.7)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions, Disagreement, Rule
from spark_queue.core.records import Kind, Record, Removal
from spark_queue.core.state.ownership import Watermark
from spark_queue.errors import JournalError
from spark_queue.journal.creation import create_journal
from spark_queue.journal.reader import open_reader
from spark_queue.journal.store import Store
from spark_queue.replication import peer_log
from spark_queue.replication.exchange import ApplyPulled, PullState, Standing
from spark_queue.replication.peer_log import PeerLog
from spark_queue.replication.puller import Puller
from spark_queue.replication.validation import Fit
from tests.fake_clock import FakeClock
from tests.golden.lake import LakeTable
from tests.records import record_of
from tests.sites_on_disk import DiskInstance
from tests.unit.journal.journal_on_disk import Disk
from tests.unit.replication.test_changed_definitions import defined


class Site:
    """A journal of an instance, with its one peer."""

    def __init__(self, path: Path, name: str, peer: str, journal: Path) -> None:
        stored: dict[str, Any] = {
            "journal": {"instance": name},
            "peers": {peer: {"journal": str(journal), "topics": ["T"], "queues": ["WORK"]}},
            "message_types": {"json": {"topics": ["T"]}},
            "queues": {"WORK": {"underlying_topic": "T"}},
        }
        self.definitions = parsing.parse(stored)
        self.store = Store(str(path))
        self.journal_id = create_journal(self.store, self.definitions)


class Loop:
    """Takes what a puller hands over, and remembers how far."""

    def __init__(self, site: Site | Disk) -> None:
        self.site = site
        self.taken: list[ApplyPulled] = []
        #: How often it refuses first, since rows have come by another way meanwhile.
        self.refusals = 0
        self.watermark: Watermark | None = None
        self.disagreements: Sequence[Disagreement] = ()

    def puller(self) -> Puller:
        [definition] = self.site.definitions.peers.values()
        return Puller(
            self.site.store, Store(definition.journal), self.site.definitions, definition, clock=FakeClock(),
            look=self.look, hand_over=self.take, fit=Fit(self.site.definitions, definition, {}),
        )  # fmt: skip

    def look(self) -> PullState:
        types = self.site.definitions.message_types
        return PullState(
            self.site.journal_id, self.watermark, {name: {} for name in types}, dict.fromkeys(types, Standing()),
            disagreements=self.disagreements,
        )  # fmt: skip

    def take(self, pull: ApplyPulled) -> bool:
        self.taken.append(pull)
        if len(self.taken) <= self.refusals:
            return False
        self.disagreements = self.disagreements if pull.pulled.disagreements is None else pull.pulled.disagreements
        self.watermark = Watermark(pull.pulled.journal, pull.pulled.record, pull.pulled.digest)
        return True


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
        self.records.append(record_of(kind=kind, record=len(self.records), epoch=1, at_ms=1_000, **fields))

    def settle(self) -> None:
        self.append(Kind.REMOVED, queue="WORK", ranges=((0, 1),), reason=Removal.ACKNOWLEDGED)

    def define(self, **queue: Any) -> None:
        definitions = self._definitions | {"queues": {"WORK": {"underlying_topic": "T", **queue}}}
        self.append(Kind.DEFINITIONS_APPLIED, detail={"definitions": definitions, "resets": {}})


@pytest.fixture
def here(tmp_path: Path) -> Site:
    return Site(tmp_path / "frankfurt", "frankfurt", "virginia", tmp_path / "virginia")


@pytest.fixture
def there(tmp_path: Path) -> Site:
    return Site(tmp_path / "virginia", "virginia", "frankfurt", tmp_path / "frankfurt")


@pytest.fixture
def loop(here: Site, there: Site) -> Loop:
    """Take what is pulled from there."""
    return Loop(here)


@pytest.fixture
def log(there: Site, monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(there, monkeypatch)


def test_what_was_not_taken_is_handed_over_again(loop: Loop, there: Site) -> None:
    loop.refusals = 1
    loop.puller().step()
    newest = open_reader(there.store).records()[-1]
    assert [pull.pulled.record for pull in loop.taken] == [newest.record, newest.record]
    assert loop.watermark is not None


@pytest.mark.parametrize("chunk_records", [peer_log.CHUNK_RECORDS, 1])
def test_a_peer_is_read_to_its_end_and_the_next_puller_goes_on_at_the_watermark(
    loop: Loop, there: Site, monkeypatch: pytest.MonkeyPatch, chunk_records: int
) -> None:
    """It has no other name where its store fails before its definitions, which say its name, are read."""
    monkeypatch.setattr(peer_log, "CHUNK_RECORDS", chunk_records)
    puller = loop.puller()
    assert puller.step().found
    newest = open_reader(there.store).records()[-1]
    assert loop.watermark is not None
    assert (loop.watermark.journal, loop.watermark.record) == (there.journal_id, newest.record)
    assert not puller.step().found
    loop.puller().step()
    assert len(loop.taken) == 1, "nothing is new"


@pytest.mark.parametrize(
    ("name", "pulls", "says"), [("tokyo", 0, r"PEER_MISNAMED.*instance 'tokyo'"), ("virginia", 1, "PEER_REPLACED")]
)
def test_another_journal_in_the_place_of_a_peers_is_refused(loop: Loop, tmp_path: Path, name: str, pulls: int, says: str) -> None:
    for _ in range(pulls):
        loop.puller().step()
    shutil.rmtree(tmp_path / "virginia")
    Site(tmp_path / "virginia", name, "frankfurt", tmp_path / "frankfurt")
    with pytest.raises(JournalError, match=says):
        loop.puller().step()
    assert len(loop.taken) == pulls


def test_the_own_journal_is_refused_as_a_peer(tmp_path: Path) -> None:
    here = Site(tmp_path / "frankfurt", "frankfurt", "virginia", tmp_path / "frankfurt")
    with pytest.raises(JournalError, match=r"PEER_MISNAMED.*this very journal"):
        Loop(here).puller().step()


def test_a_log_that_does_not_have_the_watermark_waits_until_it_says_that_it_was_restored(loop: Loop, there: Site) -> None:
    loop.watermark = Watermark(there.journal_id, 1, "the digest of a record that a backup has lost")
    with pytest.raises(JournalError, match=r"PEER_RESTORED.*record 1, .*--after -1"):
        loop.puller().step()
    assert loop.taken == []


def test_a_log_that_is_gone_is_told(loop: Loop, here: Site, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "virginia")
    with pytest.raises(JournalError, match="PEER_AWAY.*virginia"):
        loop.puller().step()
    assert open_reader(here.store).records()[-1].kind == Kind.DEFINITIONS_APPLIED


def test_a_request_that_is_over_is_not_answered(loop: Loop, there: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    puller = loop.puller()
    puller.step()
    detail = {"requester": "virginia", "owner": "frankfurt", "passed": []}
    since_ms = open_reader(there.store).records()[-1].at_ms
    asked = [
        record_of(kind=Kind.TRANSFER_REQUESTED, record=10 + second, at_ms=since_ms + second * 1_000, queue="WORK", detail=detail)
        for second in range(8)
    ]
    monkeypatch.setattr(puller._log, "read", lambda: asked)
    puller.step()
    assert len(loop.taken[-1].pulled.news) == 6


def test_news_about_a_queue_that_does_not_fit_wait_and_all_else_goes_on(loop: Loop, log: Log) -> None:
    log.define(semantics="at-most-once")
    log.settle()
    loop.puller().step()
    (pull,) = loop.taken
    assert (pull.pulled.news, pull.pulled.record) == ([], log.records[-1].record)
    assert [each.rule for each in pull.pulled.disagreements or ()] == [Rule.SAME_DEFINITION]


def test_of_a_queue_that_is_not_shared_with_the_peer_nothing_is_heard(loop: Loop, here: Site, log: Log) -> None:
    """R100: two instances may share it all the same, and this peer be asked for messages alone."""
    own = here.definitions.stored
    peers = {"virginia": {**own["peers"]["virginia"], "queues": []}}
    here.definitions = parsing.parse({**own, "peers": peers})
    log.settle()
    loop.puller().step()
    assert (loop.taken[-1].pulled.news, loop.taken[-1].pulled.record) == ([], log.records[-1].record)


@pytest.mark.parametrize("new_reign", [False, True])
def test_a_queue_that_fits_again_is_read_from_the_first_record(loop: Loop, log: Log, *, new_reign: bool) -> None:
    log.define(semantics="at-most-once")
    log.settle()
    puller = loop.puller()
    puller.step()
    log.define()
    puller = loop.puller() if new_reign else puller
    puller.step()
    assert (loop.taken[-1].pulled.record, loop.taken[-1].pulled.disagreements) == (-1, [])
    puller.step()
    assert [each.queue for each in loop.taken[-1].pulled.news] == ["WORK"]
    assert loop.taken[-1].pulled.record == log.records[-1].record
    taken = len(loop.taken)
    puller.step()
    assert len(loop.taken) == taken, "nothing is new"


def test_what_breaks_a_rule_is_told_once_and_news_of_a_queue_that_means_the_same_do_not_wait(loop: Loop, log: Log) -> None:
    """R113: who does not pull it back takes its own messages for unprocessed; what it says is as true as before."""
    log._definitions["peers"] = {}
    log.define()
    puller = loop.puller()
    puller.step()
    assert {each.rule for each in loop.taken[0].pulled.disagreements or ()} == {Rule.BOTH_WAYS, Rule.PATHS}
    log.settle()
    puller.step()
    assert [each.queue for each in loop.taken[1].pulled.news] == ["WORK"]
    assert loop.taken[1].pulled.disagreements is None


def test_what_a_new_definition_of_here_breaks_is_told_though_the_peer_says_nothing(loop: Loop, here: Site, log: Log) -> None:
    loop.puller().step()
    queues = {"WORK": {"underlying_topic": "T", "semantics": "at-most-once"}}
    here.definitions = parsing.parse({**here.definitions.stored, "queues": queues})
    puller = loop.puller()
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


def test_a_peer_that_follows_a_table_is_pulled_without_its_rows(tmp_path: Path) -> None:
    """R149."""
    clock = FakeClock()
    table = LakeTable(tmp_path / "lake", now_ms=clock.wall_ms())
    table.append(1, 2, 3, now_ms=clock.wall_ms())
    shared: dict[str, Any] = {
        "message_types": {"json": {"topics": ["T"]}, "sale": {"table": str(table.path), "from": "beginning"}},
        "queues": {"WORK": {"underlying_topic": "T"}, "SALES": {"underlying_topic": "sale"}},
    }
    peers = {name: {name: {"journal": str(tmp_path / name), "topics": ["T"], "queues": ["WORK"]}} for name in ("here", "there")}
    there = DiskInstance(tmp_path / "there", clock, {**shared, "journal": {"instance": "there"}, "peers": peers["here"]})
    here = DiskInstance(tmp_path / "here", clock, {**shared, "journal": {"instance": "here"}, "peers": peers["there"]})
    there.publish_rows(pa.table({"value": ["{}", "{}"]}))
    assert (there.known.entered_until, there.state.message_types["sale"].entered_until) == (2, 3)
    assert here.pull() is None
    table.append(4, now_ms=clock.wall_ms())
    there.publish_rows(pa.table({"value": ["{}"]}))
    assert here.pull() is None
    # Its own rows of the same table came by its own look.
    here.enter()
    assert (here.known.entered_until, here.state.message_types["sale"].entered_until) == (3, 4)
