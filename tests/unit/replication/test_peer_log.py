"""A peer's log is read in parts of bounded size, and looking for more costs one request (R104; DESIGN 17.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable

from spark_queue.core.deciding.instances.transfers import OPEN_MS
from spark_queue.core.definitions import parsing
from spark_queue.core.records import Kind
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.reader import open_reader
from spark_queue.journal.store import CONTROL, Store, log_key
from spark_queue.replication import peer_log
from spark_queue.replication import puller as parts
from spark_queue.replication.exchange import ApplyPulled
from spark_queue.replication.peer_log import LISTING_LOOKS, PeerLog
from tests.fake_clock import FakeClock
from tests.unit.journal.journal_on_disk import Disk, claim, left
from tests.unit.journal.reign import Reign, publish_some
from tests.unit.replication.sites import Attack, Home, Site, three_sites
from tests.unit.replication.test_puller import Loop


def taken_by(site: Site, path: Path) -> list[ApplyPulled]:
    """Let a site pull virginia; returns what it took over."""
    with mock.patch.object(site, "hand_over", side_effect=site.hand_over) as hand_over:
        assert site.pull("virginia", path) is None
    return [call.args[0] for call in hand_over.call_args_list]


def test_a_long_log_comes_in_chunks(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_log, "CHUNK_RECORDS", 5)
    store = Store(str(home[0] / "virginia"))
    log = PeerLog(store, "virginia")
    chunks = [log.read()]
    while log.has_more:
        chunks.append(log.read())
    assert [record for chunk in chunks for record in chunk] == list(open_reader(store).records())
    assert len(chunks) > 3


def test_a_look_that_finds_nothing_costs_one_request_and_seldom_a_listing(home: Home) -> None:
    log = PeerLog(Store(str(home[0] / "virginia")), "virginia")
    log.read()
    with (
        mock.patch.object(Store, "read", autospec=True, side_effect=Store.read) as read,
        mock.patch.object(Store, "list", autospec=True, side_effect=Store.list) as listed,
    ):
        for _ in range(LISTING_LOOKS - 1):
            assert log.read() == []
        assert (read.call_count, listed.call_count) == (LISTING_LOOKS - 1, 0)
        log.read()
        assert listed.call_count == 1


def test_records_that_come_again_as_files_are_not_read_again(tmp_path: Path) -> None:
    """Entries hold them until a flush; it may bring records of before and of after this reader's look."""
    disk = Disk(tmp_path)
    control = DeltaControlLog(disk.store)
    number = claim(control)
    log = PeerLog(disk.store, "virginia")
    read = [record.record for record in log.read()]
    for turn in range(4):
        control.append([left(number)], epoch=1)
        number += 1
        if turn != 1:
            control.flush(epoch=1, at_ms=0)
        if turn:
            read += [record.record for record in log.read()]
    assert log.read() == []
    assert read == list(range(number))


def test_entries_that_were_cleaned_away_are_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path)
    log = PeerLog(disk.store, "virginia")
    log.read()
    monkeypatch.setattr(log, "_entry", lambda _: None)
    Reign(disk, epoch=1)
    found = [record for _ in range(LISTING_LOOKS) for record in log.read()]
    assert [record.kind for record in found] == [Kind.EPOCH_CLAIMED]


def test_an_entry_that_a_listing_names_before_it_can_be_read_comes_later(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    control = DeltaControlLog(disk.store)
    control.append([left(claim(control))], epoch=1)
    whole = [record.record for record in PeerLog(disk.store, "virginia").read()]
    newest = log_key(CONTROL, versions_after(disk.store, CONTROL, -1)[-1])
    read = Store.read

    def lags(store: Store, key: str, **given: Any) -> bytes | None:
        return None if key == newest else read(store, key, **given)

    with mock.patch.object(Store, "read", autospec=True, side_effect=lags):
        log = PeerLog(disk.store, "virginia")
        before = [record.record for record in log.read()]
        assert before == whole[:-1]
    assert [record.record for record in log.read()] == whole[-1:]


def test_many_messages_come_as_several_commands_each_commit_as_a_whole(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_ROWS", 1)
    taken = taken_by(attack.here, attack.peer.path)
    pulls = [pull for pull in taken if pull.files]
    assert [sum(len(files.files) for files in pull.files) for pull in pulls] == [1] * len(pulls)
    assert len(pulls) == sum(row["kind"] == Kind.ENTERED for row in attack.peer.rows())
    numbers = [pull.pulled.record for pull in taken]
    assert numbers == sorted(numbers)
    attack.go_on()
    assert attack.here.told() == attack.unharmed


@pytest.mark.parametrize(
    ("records", "rows"), [(10_000, 500_000), (5, 500_000), (10_000, 1)], ids=["all at once", "in chunks", "in parts"]
)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_request_is_over_in_whichever_chunk_it_stands(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, is_late: bool, records: int, rows: int
) -> None:
    """R104: it may be read long after it was written, and who asked waits no more."""
    frankfurt, virginia, tokyo = three_sites(tmp_path, clock).values()
    clock.advance(100)
    virginia.loop.step([])  # Who waited waits no more.
    if is_late:
        clock.advance(OPEN_MS)
    tokyo.publish(104)
    virginia.pull("tokyo", tokyo.path)
    monkeypatch.setattr(peer_log, "CHUNK_RECORDS", records)
    monkeypatch.setattr(parts, "PART_ROWS", rows)
    taken = taken_by(frankfurt, virginia.path)
    assert sum(news.requested is not None for pull in taken for news in pull.pulled.news) == (0 if is_late else 1)


@pytest.mark.parametrize("limit", [(peer_log, "CHUNK_RECORDS", 4), (parts, "PART_ROWS", 4)])
def test_files_that_were_merged_since_are_found_further_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: tuple[Any, str, int]
) -> None:
    """The merge is in a later chunk, or in a later part of the same chunk."""
    disk = Disk(tmp_path / "virginia", journal={"instance": "virginia"})
    reign = Reign(disk, epoch=1)
    publish_some(disk, 6)
    reign.enter()
    reign.upkeep()
    reign.enter()
    kept = set(DeltaTable(disk.store.messages_uri("order")).file_uris())
    for file in (tmp_path / "virginia" / "messages" / "order").glob("*.parquet"):
        if str(file) not in kept:
            file.unlink()
    monkeypatch.setattr(*limit)
    here = Disk(tmp_path / "frankfurt")
    peers = {"virginia": {"journal": str(tmp_path / "virginia"), "topics": ["^.*"]}}
    here.definitions = parsing.parse({**here.definitions.stored, "journal": {"instance": "frankfurt"}, "peers": peers})
    loop = Loop(here)
    loop.puller().step()
    rows = sum(rows for pull in loop.taken for files in pull.files for file in files.files for _, rows, _, _ in file.origins)
    assert rows == 18
    assert len(loop.taken) > 1
