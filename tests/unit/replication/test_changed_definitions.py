"""Definitions that change while journals on disk pull from each other, and who passes on what (DESIGN 17.3, 17.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_queue.core import commands
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.status import alarms
from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal.message_file import MessageFiles, fitted
from spark_queue.journal.traits import check_command
from spark_queue.replication import copying, peer_log, validation
from tests.fake_clock import FakeClock
from tests.sites_on_disk import Site, exchange, two_sites
from tests.unit.replication.test_sites import DAY_MS, HOUR_MS, consumed, retired_after


def define(site: Site, *, is_other: bool) -> None:
    """Define the queue of a site anew: as another one than the other site has, by a pattern of topics, or as the same."""
    queues, peers = site.definitions.stored["queues"], site.definitions.stored["peers"]
    work = {"underlying_topic": "^LINES$" if is_other else "LINES", "default_publish_target": "LINES"}
    site.define(
        queues={**queues, "WORK": {**queues["WORK"], **work}},
        peers={name: {**peer, "topics": ["LINES", "^LINES$"]} for name, peer in peers.items()},
    )


def define_pulled(site: Site, peer: str, **pulled: list[str]) -> None:
    """Define what a site pulls of a peer."""
    peers = site.definitions.stored["peers"]
    site.define(peers={**peers, peer: {**peers[peer], **pulled}})


def own(site: Site, owner: str) -> None:
    """Let both queues have a first owner."""
    owned = {"ownership": "group_local", "initial_owner": owner, "group_local_domain": "sites"}
    site.define(queues={name: {**queue, **owned} for name, queue in site.definitions.stored["queues"].items()})


def declare(site: Site, columns: str) -> None:
    """Declare the columns of the message type anew, as a coordinator does."""
    stored = site.definitions.stored
    line = {**stored["message_types"]["line"], "columns": columns}
    apply = commands.Apply(definitions={**stored, "message_types": {"line": line}})
    site.engine.decide(apply, now_ms=site.now_ms, check=check_command)
    site.opened.check_message_table("line", columns)
    site.commit()
    site.opened.create_message_table("line", columns)
    site.definitions = site.state.definitions
    site._pullers.clear()


def stored_rows(site: Site, *columns: str) -> list[dict[str, Any]]:
    """Return columns of all messages of a site, as files say."""
    files = MessageFiles(site.store)
    found = pa.concat_tables(
        [fitted(rows, pa.schema([(name, pa.int32() if name == "size" else pa.string()) for name in columns]))
         for each in site.known.segments for rows in files.pieces(each, columns)]
    )  # fmt: skip
    return found.to_pylist()


def test_a_column_is_added_at_one_site_after_the_other(tmp_path: Path, clock: FakeClock) -> None:
    """R113.6: a message keeps all columns of its origin, along a chain and in files that are merged, and shows what is declared."""
    sites = frankfurt, virginia, tokyo = *two_sites(tmp_path, clock), Site(tmp_path, "tokyo", ["virginia"], clock)
    frankfurt.publish("a")
    declare(frankfurt, "item STRING, size INT")
    for size in (1, 2):
        frankfurt.publish_rows(pa.table({"item": ["b"], "size": pa.array([size], pa.int32())}))
    virginia.publish("c")
    exchange(*sites)
    assert not any(virginia.state.disagreements.values())
    expected = [{"item": "a", "size": None}, {"item": "b", "size": 1}, {"item": "b", "size": 2}, {"item": "c", "size": None}]
    for site in sites:
        site.upkeep()
        assert any(each.merged for each in site.known.segments)
        exchange(*sites)
        declare(site, "item STRING, size INT")
        assert sorted(stored_rows(site, "item", "size"), key=str) == sorted(expected, key=str), site.path.name
    with pytest.raises(ConfigError, match=r"MESSAGE_TYPE_CHANGED.*'size' is no longer declared"):
        declare(tokyo, "item STRING")


@pytest.mark.parametrize("columns", ["item STRING, size STRING", "item STRING, Size INT"])
def test_a_column_that_others_have_is_declared_as_they_have_it(here: Site, there: Site, columns: str) -> None:
    declare(there, "item STRING, size INT")
    there.publish_rows(pa.table({"item": ["b"], "size": pa.array([1], pa.int32())}))
    exchange(here, there)
    with pytest.raises(ConfigError, match=r"MESSAGE_TYPE_CHANGED.*size"):
        declare(here, columns)


@pytest.mark.parametrize(("column", "kind"), [("size", "int64"), ("Size", "int32")])
def test_another_column_of_one_name_that_nobody_declares_here_stops_its_message_type(
    tmp_path: Path, clock: FakeClock, *, column: str, kind: str
) -> None:
    here = Site(tmp_path, "frankfurt", ["virginia", "tokyo"], clock)
    for name, columns in (("virginia", "size INT"), ("tokyo", f"{column} {'INT' if kind == 'int32' else 'BIGINT'}")):
        site = Site(tmp_path, name, ["frankfurt"], clock)
        declare(site, f"item STRING, {columns}")
        site.publish_rows(pa.table({"item": [name], columns.split()[0]: [1]}))
    assert here.pull("virginia") is None
    differs = here.pull("tokyo")
    assert f"[MESSAGE_TYPE_DIFFERS] Column '{column}' of message type 'line' is {kind} on peer 'tokyo'" in str(differs)
    assert list(here.values().values()) == ["virginia"]


def test_a_peer_cannot_make_a_table_ever_wider(here: Site, there: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "COLUMNS_MOST", 7)
    columns = "item STRING"
    for name in ("first", "second"):
        columns += f", {name} INT"
        declare(there, columns)
        there.publish_rows(pa.table({"item": [name]}))
    with pytest.raises(JournalError, match=r"PEER_REFUSED.*with its columns there were 8 here, and 7 are the most"):
        here.pull()
    assert list(here.values().values()) == ["first"]


def test_what_was_said_of_a_queue_before_it_was_left_is_heard(here: Site, there: Site) -> None:
    """R129: else the first owner here would say once more what is in it, and what had ended would wait for its return."""
    own(here, "frankfurt")
    there.publish("a", "b")
    assert there.consume(1) == ["a"]
    there.define(queues={}, peers={"frankfurt": {**there.definitions.stored["peers"]["frankfurt"], "queues": []}})
    here.pull()
    assert (here.in_state(State.REMOVED), here.in_state(State.REMOTE)) == (["a"], ["b"])


@pytest.mark.parametrize("has_owner", [True, False])
def test_a_peer_that_has_the_topic_alone_is_decided_for_by_the_first_owner(
    tmp_path: Path, clock: FakeClock, *, has_owner: bool
) -> None:
    """R129: also where no queue is pulled from there; without a first owner nobody says it, which everybody tells."""
    peers_of = {"frankfurt": ["virginia", "tokyo"], "virginia": ["frankfurt"], "tokyo": ["frankfurt"]}
    here, there, _ = (Site(tmp_path, name, peers, clock) for name, peers in peers_of.items())
    define_pulled(here, "virginia", queues=[])
    if has_owner:
        own(here, "frankfurt")
    there.define(queues={}, peers={"frankfurt": {**there.definitions.stored["peers"]["frankfurt"], "queues": []}})
    there.publish_rows(pa.table({"item": ["a"]}), "line")
    here.pull("virginia")
    found = validation.find({"frankfurt": here.definitions, "virginia": there.definitions})
    assert [each.queue for each in found] == ([] if has_owner else ["WORK"])
    if has_owner:
        assert here.in_state(State.AVAILABLE) == ["a"]
    else:
        assert "nobody has said whether it is" in str(here.journal.queue("WORK").explain(0).reason)
        [alarm] = alarms(here.state, here.state.queues["WORK"]).values()
        assert "name an `initial_owner`" in alarm.error


def test_what_waits_is_told_only_once_the_log_says_so(here: Site, there: Site) -> None:
    """A file that cannot be read keeps the disagreement from being told; the news that waited by it are read all the same."""
    there.publish("a")
    exchange(here, there)
    define(there, is_other=True)
    assert there.consume(1) == ["a"]
    there.publish("z")
    file = Path(there.store.path, "messages", "line", there.known.segments[-1].path)
    data = file.read_bytes()
    file.unlink()
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        here.pull("virginia")
    assert here.in_state(State.REMOTE) == ["a"], "the acknowledgement of another queue waits"
    define(there, is_other=False)
    file.write_bytes(data)
    exchange(here, there)
    assert here.in_state(State.REMOTE) == ["z"]


def test_a_queue_that_fits_for_a_moment_is_read_again_all_the_same(
    here: Site, there: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What entered meanwhile was passed over, whatever is defined when the step ends."""
    define(there, is_other=True)
    exchange(here, there)
    define(there, is_other=False)
    there.publish("a")
    define(there, is_other=True)
    monkeypatch.setattr(peer_log, "CHUNK_RECORDS", 2)
    here.pull("virginia")
    assert here.values() == {}
    here.pull("virginia")
    assert here.values() == {0: "a"}


def test_who_is_read_again_was_not_restored(here: Site, there: Site) -> None:
    """A watermark before the first record says nothing of what the log has."""
    here.publish("a")
    define(here, is_other=True)
    exchange(here, there)
    define(here, is_other=False)
    there.pull("frankfurt")
    assert there.state.pulled["frankfurt"].record == -1
    here.pull("virginia")
    assert here.in_state(State.AVAILABLE) == ["a"]


@pytest.mark.usefixtures("logs_of_before")
def test_what_was_gone_before_an_instance_joined_is_no_gap_when_it_reads_again(tmp_path: Path, clock: FakeClock) -> None:
    there = Site(tmp_path, "virginia", [], clock, journal={"retention": "1h"})
    consumed(there, "a", "b")
    assert retired_after(there, 2 * HOUR_MS) == 2
    there.publish("c")
    define(there, is_other=True)
    here = Site(tmp_path, "frankfurt", ["virginia"], clock)
    here.pull("virginia")
    define(there, is_other=False)
    here.pull("virginia")
    assert here.state.pulled["virginia"].record == -1
    here.pull("virginia")
    assert here.in_state(State.REMOTE) == ["c"]


def test_what_is_let_go_while_a_peer_is_to_be_read_again_is_told(tmp_path: Path, clock: FakeClock) -> None:
    """Only what it had let go when it was pulled before is no gap."""
    here, there = two_sites(tmp_path, clock, journal={"retention": "1h"})
    define(there, is_other=True)
    exchange(here, there)
    define(there, is_other=False)
    here.pull("virginia")
    consumed(there, "a")
    assert retired_after(there, 8 * DAY_MS) == 1
    with pytest.raises(JournalError, match=r"PEER_GAP.*bookmarks 0 to 0"):
        here.pull("virginia")


@pytest.mark.usefixtures("logs_of_before")
def test_what_was_gone_before_its_topic_was_pulled_is_no_gap(tmp_path: Path, clock: FakeClock) -> None:
    here = Site(tmp_path, "frankfurt", ["virginia"], clock)
    there = Site(tmp_path, "virginia", [], clock, journal={"retention": "1h"})
    define_pulled(here, "virginia", topics=["X"], queues=[])
    here.pull("virginia")
    consumed(there, "a")
    here.pull("virginia")
    assert retired_after(there, 2 * HOUR_MS) == 1
    there.publish("b")
    define_pulled(here, "virginia", topics=["LINES"], queues=["WORK", "FAILED"])
    here.pull("virginia")
    assert here.in_state(State.REMOTE) == ["b"]


@pytest.mark.parametrize(
    ("passthrough", "comes"), [("asia", True), ("tokyo", True), ("^as.*", True), ("eu", False), ("osaka", False)]
)
def test_messages_come_through_a_peer_by_the_name_of_their_instance_or_of_its_group(
    tmp_path: Path, clock: FakeClock, passthrough: str, *, comes: bool
) -> None:
    """R114: also where nobody between reads the definitions of that instance (DESIGN 17.2)."""
    tokyo = Site(tmp_path, "tokyo", [], clock, journal={"group": "asia"})
    chain = [Site(tmp_path, name, [peer], clock) for name, peer in (("osaka", "tokyo"), ("virginia", "osaka"))]
    frankfurt = Site(tmp_path, "frankfurt", ["virginia"], clock)
    define_pulled(frankfurt, "virginia", passthrough=[passthrough])
    tokyo.publish("a")
    chain[1].publish("b")
    for each in chain:
        # What is told of a group is read from the log by whoever comes next.
        exchange(*chain)
        each.begin()
    exchange(frankfurt)
    assert sorted(frankfurt.values().values()) == (["a", "b"] if comes else ["b"])


def test_who_stands_between_passes_on_what_messages_are_for_a_queue_that_it_does_not_share(
    tmp_path: Path, clock: FakeClock
) -> None:
    """R129: the ends of the chain know of each other by it alone."""
    peers_of = {"tokyo": ["osaka"], "osaka": ["tokyo", "virginia"], "virginia": ["osaka"]}
    tokyo, osaka, virginia = chain = [Site(tmp_path, name, peers, clock) for name, peers in peers_of.items()]
    for peer in ("tokyo", "virginia"):
        define_pulled(osaka, peer, queues=[])
    for each in (tokyo, virginia):
        define_pulled(each, "osaka", passthrough=["^.*"])
    tokyo.publish("a")
    exchange(*chain)
    assert virginia.in_state(State.REMOTE) == ["a"]
