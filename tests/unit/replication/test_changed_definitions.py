"""Whether definitions of instances fit each other, also when they change, and who passes on what (R106, R113, R116; DESIGN 17)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_queue.core import commands
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.state.findings import alarms
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal.expressions import check_command
from spark_queue.journal.message_file import MessageFiles, fitted
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


@pytest.mark.parametrize(("column", "kind"), [("size", "BIGINT"), ("Size", "INT")])
def test_another_column_of_one_name_that_nobody_declares_here_stops_its_message_type(
    tmp_path: Path, clock: FakeClock, *, column: str, kind: str
) -> None:
    here = Site(tmp_path, "frankfurt", ["virginia", "tokyo"], clock)
    for name, columns in (("virginia", "size INT"), ("tokyo", f"{column} {kind}")):
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
        assert "it is undecided whether it belongs there" in str(here.journal.queue("WORK").explain(0).reason)
        [alarm] = alarms(here.state, here.state.queues["WORK"]).values()
        assert "name an `initial_owner`" in alarm.text


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
    assert list(here.values().values()) == ["c"]


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
    assert list(here.values().values()) == ["b"]


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


WORK = {"underlying_topic": "T", "dead_letter_queue": "FAILED"}
QUEUES: dict[str, dict[str, Any]] = {"WORK": WORK, "FAILED": {"message_type": "note"}}
OWNED = {"ownership": "group_local", "initial_owner": "a"}


def defined(
    instance: str, peers: Sequence[str], *, work: dict[str, Any] | None = None, pulls: Sequence[str] = ("WORK", "FAILED"),
    passthrough: Sequence[str] = ("^.*",), columns: str = "text STRING, number BIGINT", **journal: str,
) -> Definitions:  # fmt: skip
    """Return definitions of an instance that pulls two queues from others."""
    peer = {"topics": ["T", "U", "FAILED"], "queues": list(pulls), "passthrough": list(passthrough)}
    return parsing.parse(
        {
            "journal": {"instance": instance, **journal},
            "peers": {each: {"journal": f"/{each}", **peer} for each in peers},
            "message_types": {"note": {"topics": ["T", "U", "FAILED"], "columns": columns}},
            "queues": {**QUEUES, "WORK": WORK | (work or {})},
        }
    )


def broken(*instances: Definitions) -> list[tuple[str, str]]:
    """Return the rules that are broken, and the queues."""
    found = validation.find({str(each.journal.instance): each for each in instances})
    return [(str(each.rule), each.queue) for each in found]


def test_definitions_that_agree_break_nothing() -> None:
    assert broken(defined("a", ["b"]), defined("b", ["a"])) == []
    assert broken(defined("a", ["b"], columns="number bigint, text STRING"), defined("b", ["a"])) == [], "the order says nothing"


def test_a_queue_is_pulled_in_both_directions() -> None:
    """R113: where one side does not pull, it takes what others settle for unprocessed (R106)."""
    one_way = broken(defined("a", ["b"]), defined("b", []))
    assert one_way == [("R113.1", "WORK"), ("R113.1", "FAILED"), ("R113.5", "WORK"), ("R113.5", "FAILED")]


@pytest.mark.parametrize("work", [{"underlying_topic": "U"}, {"semantics": "at-most-once"}, {"dead_letter_queue": None}])
def test_a_queue_has_one_definition_on_all_instances(work: dict[str, Any]) -> None:
    """R113: what differs would give one message two meanings. It is told once, though it differs from both sides."""
    if "semantics" in work:
        work = {**work, "dead_letter_queue": None}
    table = {key: value for key, value in (WORK | work).items() if value is not None}
    other = dict(defined("b", ["a"]).stored)
    other["queues"] = {**QUEUES, "WORK": table}
    found = broken(defined("a", ["b"]), parsing.parse(other))
    assert ("R113.3", "WORK") in found
    assert {rule for rule, _ in found} == {"R113.3"}


@pytest.mark.parametrize(
    ("columns", "rule"), [("number STRING", "R113.3"), ("Number BIGINT", "R113.3"), ("more STRING", "R113.6"), ("m FOO", "R113.3")]
)
def test_a_column_of_both_is_the_same(columns: str, rule: str) -> None:
    assert broken(defined("a", ["b"]), defined("b", ["a"], columns=columns)) == [(rule, "WORK"), (rule, "FAILED")]


@pytest.mark.parametrize("work", [{"filter": "number > 1"}, {"barrier": "number = 1"}, OWNED, OWNED | {"initial_owner": "b"}])
def test_what_an_origin_says_may_differ_and_is_told_to_who_asks_alone(work: dict[str, Any]) -> None:
    """R129: a coordinator has no alarm for it."""
    here = defined("a", ["b"], work=OWNED if "initial_owner" in work else {}, group="eu")
    there = defined("b", ["a"], work=work, group="eu")
    differs = work != OWNED
    assert broken(here, there) == ([("R113.6", "WORK")] if differs else [])
    assert validation.of_peer(here, here.peers["b"], {"b": there}) == []


def test_a_queue_here_is_a_queue_there() -> None:
    """R113: a queue on one instance is a queue on all."""
    other = dict(defined("b", ["a"], pulls=()).stored)
    other["queues"] = {"FAILED": QUEUES["FAILED"]}
    assert ("R113.2", "WORK") in broken(defined("a", ["b"]), parsing.parse(other))


@pytest.mark.parametrize(
    ("here", "there", "fits"),
    [
        ({}, {}, False),
        ({"group": "eu"}, {"group": "eu"}, True),
        ({"group": "eu"}, {"group": "us"}, False),
        ({"work": {"group_local_domain": "x"}}, {"work": {"group_local_domain": "x"}, "group": "us"}, True),
        ({"work": {"group_local_domain": "eu"}}, {"group": "eu"}, True),
    ],
)
def test_a_group_local_queue_is_told_by_its_name_and_its_domain_or_group(
    here: dict[str, Any], there: dict[str, Any], *, fits: bool
) -> None:
    """R116: without a domain its group stands for it, and an instance without a group is one of its own."""
    sides = [{**side, "work": OWNED | side.get("work", {})} for side in (here, there)]
    found = broken(defined("a", ["b"], **sides[0]), defined("b", ["a"], **sides[1]))
    assert found == ([] if fits else [("R113.2", "WORK")])


def test_outcomes_pass_through_to_who_pulls_from_a_third() -> None:
    """R106: one, two, three in a chain: what three settles reaches one through two, if it may pass."""
    ends = defined("a", ["b"]), defined("c", ["b"])
    assert broken(*ends, defined("b", ["a", "c"])) == []
    shut = defined("a", ["b"], passthrough=["b"])
    assert broken(shut, ends[1], defined("b", ["a", "c"])) == [("R113.5", "WORK"), ("R113.5", "FAILED")]


def test_what_is_not_known_counts_as_in_order() -> None:
    assert broken(defined("a", ["b"]), defined("c", ["b"])) == []


def test_a_coordinator_tells_of_each_peer_what_concerns_it() -> None:
    own, closed = defined("b", ["a", "c"]), defined("a", ["b"], passthrough=["b"])
    known = {"a": closed, "c": defined("c", ["b"])}
    told = {name: validation.of_peer(own, own.peers[name], known) for name in known}
    assert [each.rule for each in told["a"]] == ["R113.5", "R113.5"]
    assert "'c' publishes and settles does not reach 'a'" in told["a"][0].reason
    assert told["c"] == []


def test_a_reason_has_an_end() -> None:
    found = validation.find({"a": defined("a", ["b"], work={"filter": "number > 1 OR " * 90 + "TRUE"}), "b": defined("b", ["a"])})
    assert [len(each.reason) for each in found] == [500]
