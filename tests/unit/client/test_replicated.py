"""A publish that returns when peers have it: their own logs say so (DESIGN 17.8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.errors import ConfigError, CoordinatorError
from tests.sites_on_disk import Site, two_sites
from tests.unit.replication.test_restored import say_restored

Sites = tuple[Site, Site]

#: What is to be done meanwhile.
Acts = list[Callable[[], None]]


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return two_sites(tmp_path)


@pytest.fixture
def nudged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Acts]:
    """Do what a test wants as soon as the publish is done and a coordinator is called."""
    acts: Acts = []

    def call(*_: object, **__: object) -> None:
        for act in acts:
            threading.Timer(0.2, act).start()

    monkeypatch.setattr(CoordinatorClient, "call", call)
    monkeypatch.setattr(CoordinatorClient, "nudge", lambda *_: None)
    yield acts
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()


def test_a_publish_waits_until_a_peer_has_pulled_it(sites: Sites, nudged: Acts) -> None:
    frankfurt, virginia = sites
    frankfurt.publish("before")
    virginia.pull("frankfurt")
    had: list[int] = []

    def reach() -> None:
        frankfurt.enter()
        virginia.pull("frankfurt")
        had.append(virginia.known.entered_until)

    nudged.append(reach)
    done = frankfurt.journal.publish([{"item": "a"}, {"item": "b"}], topic="LINES", replicated_to=1, timeout="20s")
    assert (done.rows, had) == (2, [3])


def test_a_column_that_a_peer_has_of_another_type_is_not_appended(sites: Sites) -> None:
    """Neither could alter or drop it ever after, and nothing more of the type would be copied."""
    frankfurt, virginia = sites
    line = {"columns": "item STRING, size BIGINT", "topics": ["LINES"]}
    virginia.define(message_types={"line": line})
    wanted = {**frankfurt.definitions.stored, "message_types": {"line": {**line, "columns": "item STRING, size INT"}}}
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match=r"MESSAGE_TYPE_CHANGED.*on peer 'virginia', which has 'item STRING, size BIGINT'"):
            frankfurt.journal.apply(wanted, dry_run=dry_run)
    assert frankfurt.journal.apply({**wanted, "message_types": {"line": line}}, dry_run=True)
    # What is not pulled may differ, and so may what differs since long.
    note = {"columns": "id INT", "topics": ["NOTES"]}
    virginia.define(message_types={"line": line, "note": note})
    types = {"line": {**line, "columns": "item STRING"}, "note": {**note, "columns": "id BIGINT"}}
    frankfurt.define(message_types=types)
    types = {**types, "note": {**note, "columns": "id BIGINT, x INT"}}
    assert frankfurt.journal.apply({**wanted, "message_types": types}, dry_run=True)


def test_who_takes_the_last_peer_away_is_warned_of_what_others_count_on(sites: Sites) -> None:
    """R130: nobody hands over by that what is owned, and this instance hears no more what becomes of it."""
    frankfurt, virginia = sites
    frankfurt.publish("a", "b")
    virginia.pull("frankfurt")
    stored = frankfurt.definitions.stored
    changes = frankfurt.journal.apply({**stored, "peers": {}}, dry_run=True)
    [warning] = [change.warning for change in changes if change.warning is not None]
    assert "'frankfurt' no longer learns the outcomes of shared messages" in warning
    assert "delivers what it owns (2 of queue 'WORK')" in warning
    assert f"remove [peers.virginia]\n  Warning: {warning}" in map(str, changes)
    two = {**stored["peers"], "tokyo": {**stored["peers"]["virginia"], "journal": "/tokyo"}}
    frankfurt.define(peers=two)
    changes = frankfurt.journal.apply({**stored, "peers": {"virginia": two["virginia"]}}, dry_run=True)
    assert [(change.where, change.warning) for change in changes] == [("[peers.tokyo]", None)]


def test_a_repeat_that_publishes_nothing_waits_for_what_is_there(sites: Sites, nudged: Acts) -> None:
    frankfurt, virginia = sites
    rows = [{"item": "a"}]
    frankfurt.journal.publish(rows, topic="LINES", publisher="p", first_sequence=1)
    with pytest.raises(CoordinatorError, match="REPLICATION_PENDING"):
        frankfurt.journal.publish(rows, topic="LINES", publisher="p", first_sequence=1, replicated_to=1, timeout="0.3s")
    frankfurt.enter()
    virginia.pull("frankfurt")
    done = frankfurt.journal.publish(rows, topic="LINES", publisher="p", first_sequence=1, replicated_to=1, timeout="5s")
    assert (done.rows, done.duplicates, nudged) == (0, 1, [])


def test_what_no_peer_has_in_time_is_published_all_the_same(sites: Sites, nudged: Acts) -> None:
    frankfurt, virginia = sites
    with pytest.raises(CoordinatorError, match=r"REPLICATION_PENDING.*is published.*no coordinator has entered them"):
        frankfurt.journal.publish([{"item": "a"}], topic="LINES", replicated_to=1, timeout="0.3s")
    nudged.append(frankfurt.enter)
    with (
        frankfurt.journal.publisher("p") as publisher,
        pytest.raises(CoordinatorError, match="0 of 1 peer.*'virginia' has not pulled them"),
    ):
        publisher.publish([{"item": "b"}], topic="LINES", replicated_to=1, timeout="1s")
    assert publisher.last_sequence == 1
    assert [row["item"] for row in frankfurt.journal.view("messages", queue="WORK").to_pylist()] == ["a", "b"]
    Path(virginia.journal.path).rename(Path(virginia.journal.path + "-lost"))
    with pytest.raises(CoordinatorError, match="the log of 'virginia' cannot be read"):
        frankfurt.journal.publish([{"item": "c"}], topic="LINES", replicated_to=1, timeout="1s")


def test_a_peer_that_pulls_what_was_there_before_does_not_have_it(sites: Sites, nudged: Acts) -> None:
    frankfurt, virginia = sites
    frankfurt.publish("before")

    def reach_what_was_before() -> None:
        virginia.pull("frankfurt")
        frankfurt.enter()

    nudged.append(reach_what_was_before)
    with pytest.raises(CoordinatorError, match="REPLICATION_PENDING.*'virginia' has not pulled them"):
        frankfurt.journal.publish([{"item": "a"}], topic="LINES", replicated_to=1, timeout="2s")
    assert virginia.known.entered_until == 1


def test_what_was_pulled_before_a_backup_was_restored_tells_nothing(sites: Sites, nudged: Acts) -> None:
    """The lost records had the numbers that new ones have, and a repeat reads all that a peer has ever said."""
    frankfurt, virginia = sites
    frankfurt.back_up()
    for item in "abcde":
        frankfurt.publish(item)
    virginia.pull("frankfurt")
    frankfurt.restore()
    say_restored(frankfurt, "virginia")
    rows = [{"item": "new"}]
    frankfurt.journal.publish(rows, topic="LINES", publisher="p", first_sequence=1)
    frankfurt.enter()
    nudged.clear()
    with pytest.raises(CoordinatorError, match="REPLICATION_PENDING"):
        frankfurt.journal.publish(rows, topic="LINES", publisher="p", first_sequence=1, replicated_to=1, timeout="1s")
    virginia.begin()
    virginia.pull("frankfurt")
    done = frankfurt.journal.publish(rows, topic="LINES", publisher="p", first_sequence=1, replicated_to=1, timeout="5s")
    assert (done.rows, done.duplicates) == (0, 1)


def test_more_peers_than_there_are_cannot_be_waited_for(sites: Sites) -> None:
    frankfurt, _ = sites
    with pytest.raises(ConfigError, match="BAD_VALUE.*replicated_to.*between 1 and 1"):
        frankfurt.journal.publish([{"item": "a"}], topic="LINES", replicated_to=2)
    assert frankfurt.journal.view("messages", queue="WORK").num_rows == 0
