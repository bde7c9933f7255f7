"""One puller and a peer's journal on disk: what is read, from where, and what is refused (DESIGN 17.3)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Disagreement
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.ownership import Watermark
from spark_queue.errors import JournalError
from spark_queue.journal.open import create_journal
from spark_queue.journal.reader import open_reader
from spark_queue.journal.store import Store
from spark_queue.replication import peer_log
from spark_queue.replication.exchange import ApplyPulled, PullState, Standing
from spark_queue.replication.puller import Puller
from spark_queue.replication.validation import Fit
from tests.fake_clock import FakeClock


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

    def __init__(self, site: Site) -> None:
        self.site = site
        self.taken: list[ApplyPulled] = []
        #: How often it refuses first, since rows have come by another way meanwhile.
        self.refusals = 0
        self.watermark: Watermark | None = None
        self.disagreements: Sequence[Disagreement] = ()

    def puller(self, peer: str) -> Puller:
        definition = self.site.definitions.peers[peer]
        return Puller(
            self.site.store, Store(definition.journal), self.site.definitions, definition, clock=FakeClock(),
            look=self.look, hand_over=self.take, fit=Fit(self.site.definitions, definition, {}),
        )  # fmt: skip

    def look(self) -> PullState:
        return PullState(self.site.journal_id, self.watermark, {"json": {}}, {"json": Standing()}, disagreements=self.disagreements)

    def take(self, pull: ApplyPulled) -> bool:
        self.taken.append(pull)
        if len(self.taken) <= self.refusals:
            return False
        self.disagreements = self.disagreements if pull.pulled.disagreements is None else pull.pulled.disagreements
        self.watermark = Watermark(pull.pulled.journal, pull.pulled.record, pull.pulled.digest)
        return True


@pytest.fixture
def here(tmp_path: Path) -> Site:
    return Site(tmp_path / "frankfurt", "frankfurt", "virginia", tmp_path / "virginia")


@pytest.fixture
def there(tmp_path: Path) -> Site:
    return Site(tmp_path / "virginia", "virginia", "frankfurt", tmp_path / "frankfurt")


def test_what_was_not_taken_is_handed_over_again(here: Site, there: Site) -> None:
    loop = Loop(here)
    loop.refusals = 1
    loop.puller("virginia").step()
    newest = open_reader(there.store).records()[-1]
    assert [pull.pulled.record for pull in loop.taken] == [newest.record, newest.record]
    assert loop.watermark is not None


def test_a_peer_is_read_to_its_end_and_then_on(here: Site, there: Site) -> None:
    loop = Loop(here)
    puller = loop.puller("virginia")
    assert puller.step().found
    assert not puller.step().found
    assert loop.watermark is not None
    newest = open_reader(there.store).records()[-1]
    assert (loop.watermark.journal, loop.watermark.record) == (there.journal_id, newest.record)


def test_a_peer_of_which_only_the_first_record_could_be_read_has_no_other_name(
    here: Site, there: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its store failed before its definitions, which say its name, were read."""
    monkeypatch.setattr(peer_log, "CHUNK_RECORDS", 1)
    loop = Loop(here)
    loop.puller("virginia").step()
    assert loop.watermark is not None
    assert loop.watermark.record == open_reader(there.store).records()[-1].record


def test_the_next_puller_goes_on_at_the_watermark(here: Site, there: Site) -> None:
    loop = Loop(here)
    loop.puller("virginia").step()
    loop.puller("virginia").step()
    assert len(loop.taken) == 1, "nothing is new"


def test_a_journal_of_another_name_is_refused(here: Site, there: Site, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "virginia")
    Site(tmp_path / "virginia", "tokyo", "frankfurt", tmp_path / "frankfurt")
    loop = Loop(here)
    with pytest.raises(JournalError, match=r"PEER_MISNAMED.*instance 'tokyo'"):
        loop.puller("virginia").step()
    assert loop.taken == []


def test_the_own_journal_is_refused_as_a_peer(tmp_path: Path) -> None:
    here = Site(tmp_path / "frankfurt", "frankfurt", "virginia", tmp_path / "frankfurt")
    with pytest.raises(JournalError, match=r"PEER_MISNAMED.*this very journal"):
        Loop(here).puller("virginia").step()


def test_a_journal_that_was_made_anew_is_refused(here: Site, there: Site, tmp_path: Path) -> None:
    loop = Loop(here)
    loop.puller("virginia").step()
    shutil.rmtree(tmp_path / "virginia")
    Site(tmp_path / "virginia", "virginia", "frankfurt", tmp_path / "frankfurt")
    with pytest.raises(JournalError, match="PEER_REPLACED"):
        loop.puller("virginia").step()


def test_a_log_that_does_not_have_the_watermark_waits_until_it_says_that_it_was_restored(here: Site, there: Site) -> None:
    loop = Loop(here)
    loop.watermark = Watermark(there.journal_id, 1, "the digest of a record that a backup has lost")
    with pytest.raises(JournalError, match=r"PEER_RESTORED.*record 1, .*--after -1"):
        loop.puller("virginia").step()
    assert loop.taken == []


def test_a_log_that_is_gone_is_told(here: Site, there: Site, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "virginia")
    with pytest.raises(JournalError, match="PEER_AWAY.*virginia"):
        Loop(here).puller("virginia").step()
    assert open_reader(here.store).records()[-1].kind == Kind.DEFINITIONS_APPLIED


def test_a_request_that_is_over_is_not_answered(here: Site, there: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(here)
    puller = loop.puller("virginia")
    puller.step()
    detail = {"requester": "virginia", "owner": "frankfurt", "passed": []}
    since_ms = open_reader(there.store).records()[-1].at_ms
    asked = [
        Record(kind=Kind.TRANSFER_REQUESTED, record=10 + second, at_ms=since_ms + second * 1_000, queue="WORK", detail=detail)
        for second in range(8)
    ]
    monkeypatch.setattr(puller._log, "read", lambda: asked)
    puller.step()
    assert len(loop.taken[-1].pulled.news) == 6
