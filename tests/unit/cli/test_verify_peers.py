"""`sparkq verify` of an instance: what was pulled is known, by both sides, and who cannot be read is named."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.cli import verify
from spark_queue.core.records import Kind
from spark_queue.errors import JournalError
from spark_queue.journal.store import Store
from spark_queue.replication.exchange import ApplyPulled
from spark_queue.views import journal_view
from tests.fake_clock import FakeClock
from tests.records import record_of
from tests.sites_on_disk import DiskInstance, Site, exchange, two_sites
from tests.unit.cli.sparkq import Terminal
from tests.unit.replication.sites import Peer
from tests.unit.replication.test_hostile_stores import pipe
from tests.unit.replication.test_restored import lose, say_restored


def verified(sparkq: Terminal, site: DiskInstance) -> dict[str, Any]:
    """Verify a journal; returns what is told."""
    answer = sparkq("verify", site.journal.path, "--json")
    told: dict[str, Any] = answer.json
    assert answer.code == bool(told["problems"])
    return told


@pytest.fixture
def sites(tmp_path: Path) -> tuple[Site, Site]:
    """Make two instances that agree: messages of both, one of them gone, one a dead letter."""
    frankfurt, virginia = two_sites(tmp_path)
    frankfurt.publish("f0", "f1", "f2")
    virginia.publish("v0", "v1")
    exchange(frankfurt, virginia)
    virginia.settle("acknowledge", 0)
    frankfurt.settle("expire", 1)
    exchange(frankfurt, virginia)
    return frankfurt, virginia


def test_a_merged_file_of_several_delays_is_whole(sparkq: Terminal, sites: tuple[Site, Site]) -> None:
    there = sites[1]
    for delay_ms in (60_000, 120_000, None):
        there.publish_rows(pa.table({"item": ["late"]}), delay_ms=delay_ms)
    there.upkeep()
    there.admit()
    there.commit()
    assert there.known.segments[-1].merged
    assert verified(sparkq, there)["problems"] == []


def test_instances_that_agree_are_whole(sparkq: Terminal, sites: tuple[Site, Site]) -> None:
    sites[1].settle("acknowledge", 1)
    for site in sites:
        told = verified(sparkq, site)
        assert (told["problems"], told["warnings"]) == ([], [])


def pass_over(site: Site, monkeypatch: pytest.MonkeyPatch, without: Callable[[ApplyPulled], ApplyPulled]) -> None:
    """Let a site take over from virginia what is left of what it reads there."""
    monkeypatch.setattr(site._pullers["virginia"][0], "_hand_over", lambda pull: site.hand_over(without(pull)))


def test_news_that_were_passed_over_are_found_by_both_sides(
    sparkq: Terminal, sites: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    frankfurt, virginia = sites
    pass_over(frankfurt, monkeypatch, lambda pull: replace(pull, pulled=replace(pull.pulled, news=())))
    virginia.settle("acknowledge", 1)
    exchange(frankfurt, virginia)
    lost = "does not know that 1 message is gone, as"
    assert verified(sparkq, frankfurt)["problems"] == [f"queue 'WORK': this instance {lost} 'virginia' says: such as virginia:1"]
    assert verified(sparkq, virginia)["problems"] == [f"queue 'WORK': 'frankfurt' {lost} this instance says: such as virginia:1"]


@pytest.mark.parametrize("is_restored", [False, True])
def test_messages_that_were_passed_over_are_found(
    sparkq: Terminal, sites: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch, *, is_restored: bool
) -> None:
    """What a restored journal publishes since then has another origin."""
    frankfurt, virginia = sites
    if is_restored:
        virginia.back_up()
        lose(frankfurt, virginia)
        say_restored(virginia, "frankfurt")
        exchange(frankfurt, virginia)
        assert verified(sparkq, frankfurt)["problems"] == verified(sparkq, virginia)["problems"] == []
    pass_over(frankfurt, monkeypatch, lambda pull: replace(pull, files=()))
    virginia.publish("v2", "v3")
    exchange(frankfurt, virginia)
    lost = f"such as virginia:{6 if is_restored else 5}, virginia:{7 if is_restored else 6}"
    assert verified(sparkq, frankfurt)["problems"] == [
        f"queue 'WORK': this instance does not have 2 messages of 'virginia', {lost}"
    ]


def test_who_cannot_be_read_is_named_and_is_no_fault(sparkq: Terminal, sites: tuple[Site, Site], tmp_path: Path) -> None:
    frankfurt, virginia = sites
    (tmp_path / "virginia").rename(tmp_path / "lost")
    told = verified(sparkq, frankfurt)
    assert told["problems"] == []
    assert "Peer 'virginia' is not compared: [PEER_AWAY]" in told["warnings"][0]
    Site(tmp_path, "virginia", ["frankfurt"], virginia.clock)
    assert "PEER_REPLACED" in verified(sparkq, frankfurt)["warnings"][0]
    shutil.rmtree(tmp_path / "virginia")


@pytest.mark.parametrize("torn", [b"", b'{"add": {'], ids=["empty", "cut off"])
def test_nothing_is_repaired_at_a_peer(sparkq: Terminal, sites: tuple[Site, Site], torn: bytes) -> None:
    """Its own coordinator does that; who only compares may not even be allowed to write there."""
    log = sites[1].path / "control" / "_delta_log"
    head = max(log.glob("*.json"))
    head.with_name(f"{int(head.stem) + 1:020d}.json").write_bytes(torn)
    before = _files_of(sites[1].path)
    assert verified(sparkq, sites[0])["problems"] == []
    assert _files_of(sites[1].path) == before


def _files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _evaluates(peer: Peer) -> None:
    """Give the peer's queue a filter, for which its messages have to be read."""
    number = peer.number("definitions_applied")
    peer.rewrite(number, lambda row: row["detail"]["definitions"]["queues"]["WORK"].update(filter="length(item) >= 0"))


def _of_lists(path: Path) -> None:
    rows = pq.read_table(path)
    place = rows.schema.get_field_index("item")
    pq.write_table(rows.set_column(place, "item", pa.array([[each] for each in range(len(rows))])), path)


def _messages(peer: Peer) -> Path:
    _evaluates(peer)
    return peer.message_file(peer.number("entered"))


#: What somebody does to the journal of a peer who may write there, and what is told of it.
ATTACKS: dict[str, tuple[Callable[[Peer], object], str]] = {
    "bookmarks of 2^60": (
        lambda peer: peer.rewrite(peer.number("entered"), lambda row: row.update(ranges=[{"first": 3, "until": 2**60}])),
        "bookmarks go on at",
    ),
    "a path out of its folder": (
        lambda peer: peer.rewrite(peer.number("entered"), lambda row: row["detail"].update(path=f"../../../x/{'0' * 32}.parquet")),
        "no name of a message file",
    ),
    "records in a pipe": (lambda peer: pipe(max((peer.path / "control").glob("*.parquet"))), "it is no file"),
    "messages in a pipe": (lambda peer: pipe(_messages(peer)), "it is no file"),
    "messages that are no Parquet": (lambda peer: _messages(peer).write_bytes(b"PAR1" * 100), "PEER_REFUSED"),
    "messages of another type": (lambda peer: _of_lists(_messages(peer)), "PEER_REFUSED"),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("case", ATTACKS)
def test_a_peer_that_somebody_spoilt_is_not_compared(sparkq: Terminal, sites: tuple[Site, Site], case: str) -> None:
    attack, says = ATTACKS[case]
    attack(Peer(sites[1].path))
    told = verified(sparkq, sites[0])
    assert told["problems"] == []
    assert "Peer 'virginia' is not compared: [PEER_REFUSED]" in told["warnings"][0]
    assert says in told["warnings"][0]


def test_a_peer_whose_records_make_no_journal_is_not_compared(sites: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record is checked as it is read; what they make together may still be what no fold foresaw."""
    fold, calls = journal_view.state_of, list[int]()

    def fail(records: Any, traits: Any, **more: Any) -> Any:
        calls.append(len(records))
        if len(calls) > 1:
            raise KeyError("no such lease")
        return fold(records, traits, **more)

    # The first fold is that of the own journal.
    monkeypatch.setattr(verify, "state_of", fail)
    with pytest.raises(JournalError, match=re.escape("its records make no journal (KeyError('no such lease'))")):
        verify.compare(Store(str(sites[1].path)), Store(str(sites[0].path)), "virginia")


def test_a_log_that_went_back_is_named(sparkq: Terminal, sites: tuple[Site, Site]) -> None:
    frankfurt, _ = sites
    state = frankfurt.engine.state
    forged = {"peer": "virginia", "journal": state.pulled["virginia"].journal, "number": 10_000, "digest": "x"}
    frankfurt.opened.control.append(
        [record_of(kind=Kind.PULLED, record=state.next_record, epoch=1, at_ms=state.last_at_ms, detail=forged)], epoch=1
    )
    told = verified(sparkq, frankfurt)
    assert (told["problems"], len(told["warnings"])) == ([], 1)
    assert "no longer has record 10000 as it was pulled" in told["warnings"][0]


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("message_type", "column", "items"),
    [("row", "item STRING", ["3", "4"]), ("line", "item BIGINT", [3, 4])],
    ids=["another type", "other columns"],
)
def test_a_queue_that_is_another_one_there_is_not_compared(
    sparkq: Terminal, tmp_path: Path, message_type: str, column: str, items: list[Any]
) -> None:
    """Its messages and its news wait (R113.3), and no message is missing for that."""
    clock = FakeClock()
    frankfurt = Site(tmp_path, "frankfurt", ["virginia"], clock)
    definitions = {
        "journal": {"instance": "virginia"},
        "message_types": {message_type: {"columns": column, "topics": ["LINES"]}},
        "queues": {"WORK": {"underlying_topic": "LINES", "dead_letter_queue": "FAILED"}, "FAILED": {"message_type": message_type}},
        "peers": {"frankfurt": {"journal": str(frankfurt.path), "topics": ["LINES"], "queues": ["WORK", "FAILED"]}},
    }
    virginia = DiskInstance(tmp_path / "virginia", clock, definitions)
    frankfurt.publish("1", "2")
    virginia.publish_rows(pa.table({"item": items}))
    exchange(frankfurt, virginia)
    for site in (frankfurt, virginia):
        site.settle("acknowledge", 0)
    exchange(frankfurt, virginia)
    for site in (frankfurt, virginia):
        assert site.state.pulled, "it was read"
        told = verified(sparkq, site)
        assert (told["problems"], told["warnings"]) == ([], [])
