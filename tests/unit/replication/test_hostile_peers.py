"""A peer's log made to hurt, or in the name of others: refused by name, and it stops that peer and nothing else (DESIGN 17.3)."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_queue.core.records import Kind
from spark_queue.errors import SparkQueueError
from spark_queue.replication import puller, restored
from tests.unit.replication.sites import Attack, Home

Change = Callable[[dict[str, Any]], None]


def detail(**facts: Any) -> Change:
    """Return a change of facts in a record's detail."""
    return lambda row: row["detail"].update(facts)


def without(name: str) -> Change:
    """Return a change that takes a fact out of a record's detail."""
    return lambda row: row["detail"].pop(name)


def columns(**values: Any) -> Change:
    """Return a change of a record's columns."""
    return lambda row: row.update(values)


def ranges(*pairs: tuple[int, int], **others: Any) -> Change:
    """Return a change of a record's ranges, and of other columns."""
    return columns(ranges=[{"first": first, "until": until} for first, until in pairs], **others)


def restores(**told: Any) -> Change:
    """Return a change that makes a record tell that its journal was restored."""
    return columns(kind="restored", detail={"v": 1, "critical": True, **told})


def names(*given: list[Any], instances: dict[str, str] | None = None) -> Change:
    """Return a change that makes a record tell further names of messages."""
    told = {"v": 1, "critical": True, "names": list(given), "instances": {"of-osaka": "osaka"} if instances is None else instances}
    return columns(kind="named", message_type="order", detail=told)


#: A merge of what is not there.
MERGE = {"v": 1, "version": 9, "token": "t", "files": [{"path": "0" * 32 + ".parquet", "from": [["1" * 32, 0, 9, 0]]}]}

#: Kind of the record, what it says, its change, and what the refusal says.
RECORDS: dict[str, tuple[str, dict[str, Any], Change, str]] = {
    "path leaves its folder": ("entered", {"rows": 2}, detail(path="../../../x/" + "0" * 32 + ".parquet"), "no name of a message"),
    "path has no name of ours": ("entered", {"rows": 2}, detail(path="x" * 32 + ".parquet"), "no name of a message file"),
    "bookmarks of 2^60": ("entered", {"rows": 2}, ranges((3, 2**60)), "bookmarks go on at"),
    "messages of 2^60": ("entered", {"rows": 2}, detail(rows=2**60), "detail"),
    "more messages than a journal has": ("entered", {"rows": 2}, ranges((0, 2**45)), "are the most"),
    "fewer bookmarks than messages": ("entered", {"rows": 2}, detail(rows=1), "bookmarks for"),
    "bookmarks of before": ("entered", {"message_type": "order"}, ranges((0, 1)), "bookmarks go on at"),
    "two ranges of a file": ("entered", {"rows": 2}, ranges((0, 1), (3, 4)), "one range"),
    "no path": ("entered", {"rows": 2}, without("path"), "path"),
    "another message type": ("entered", {"rows": 2}, columns(message_type="unknown"), "no such message type"),
    "topics that are none": ("entered", {"rows": 2}, detail(topics=["T", "../U"]), "topics"),
    "an origin without a name": ("entered", {"rows": 3}, detail(instances={}), "no other journal"),
    "a message that enters twice": (
        "entered", {"rows": 1}, lambda row: row["detail"]["origin"][0].__setitem__(3, 0), "enter twice",
    ),
    "names of what has not entered": ("pulled", {}, names([2**40, 1, "of-osaka", 0]), "do not fit its messages"),
    "names of no message": ("pulled", {}, names([0, 0, "of-osaka", 0]), "do not fit its messages"),
    "names beyond all numbers": ("pulled", {}, names([0, 1, "of-osaka", 2**60]), "names"),
    "a name of nobody": ("pulled", {}, names([0, 1, "of-osaka", 0], instances={}), "no other journal"),
    "a name of two messages": ("pulled", {}, names([0, 1, "of-osaka", 0], [1, 1, "of-osaka", 0]), "enter twice"),
    "numbers of publishers that are none": ("entered", {"rows": 2}, detail(publishers={"app": [0, 2**60]}), "publishers"),
    "a publisher of megabytes": ("entered", {"rows": 2}, detail(publishers={"x" * 2_000_000: [0, 1]}), "publishers"),
    "more publishers than messages": (
        "entered", {"rows": 2}, detail(publishers={name: [0, 1] for name in "abc"}), "more publishers than messages",
    ),
    "clashes that are none": ("entered", {"rows": 2}, detail(clashes=[[0, 1, "app", -1]]), "clashes"),
    "an origin under two names": ("pulled", {}, detail(peer="osaka"), "is instance 'osaka', and it is 'tokyo'"),
    "a watermark that is no number": ("pulled", {}, detail(number="many"), "number"),
    "a watermark beyond all numbers": ("pulled", {}, detail(number=2**70), "number"),
    "a digest of megabytes": ("pulled", {}, detail(digest="f" * 2_000_000), "digest"),
    "a life beyond all numbers": ("redriven", {"queue": "WORK"}, detail(life=2**40), "life"),
    "a life below 0": ("redriven", {"queue": "WORK"}, detail(life=-1), "life"),
    "a term that is a text": ("transferred", {}, detail(term="9"), "term"),
    "an owner that is no name": ("transferred", {}, detail(owner="../tokyo"), "no name of an instance"),
    "a transfer to nobody": ("transferred", {}, without("owner"), "no name of an instance"),
    "counts beyond all numbers": ("transferred", {}, detail(deliveries=2**31), "deliveries"),
    "a stage that is none": ("replicated", {}, detail(stage=3), "stage"),
    "a reason that is none": ("removed", {"reason": "acknowledged"}, columns(reason="because"), "no reason"),
    "a loss, which no replicated message can meet": ("removed", {"reason": "acknowledged"}, columns(reason="lost"), "no reason"),
    "no reason": ("removed", {"reason": "acknowledged"}, columns(reason=None), "no reason"),
    "a dead letter without counts": ("removed", {"reason": "forced_expire"}, without("deliveries"), "how often"),
    "an error of megabytes": ("removed", {"reason": "forced_expire"}, detail(error="x" * 1_000_000), "error"),
    "an error that is a table": ("removed", {"reason": "forced_expire"}, detail(error={}), "error"),
    "a record of 100 MB": ("removed", {"reason": "forced_expire"}, detail(error="x" * 100_000_000), "length <= 16000"),
    "ranges that go back": ("removed", {"reason": "acknowledged"}, ranges((2, 3), (0, 1)), "ranges"),
    "ranges below 0": ("removed", {"reason": "acknowledged"}, ranges((-5, 1)), "ranges"),
    "an empty range": ("removed", {"reason": "acknowledged"}, ranges((1, 1)), "ranges"),
    "a request in the name of another": ("transfer_requested", {}, detail(requester="tokyo", owner="frankfurt"), "in the name of"),
    "a request of itself": ("transfer_requested", {}, detail(owner="virginia"), "asks itself"),
    "a request that passed thousands": ("transfer_requested", {}, detail(passed=["osaka"] * 5_000), "passed"),
    "a request for no message": ("transfer_requested", {}, detail(limit=0), "limit"),
    "a request beyond all numbers": ("transfer_requested", {}, detail(limit=2**60), "limit"),
    "retired beyond what entered": ("entered", {"message_type": "json"}, ranges((0, 2**60), kind="retired"), "have entered"),
    "a merge of what is not there": ("entered", {"message_type": "json"}, columns(kind="moved", detail=MERGE), "merges files"),
    "a second beginning": ("pulled", {}, columns(kind="journal_created", detail={"v": 1, "journal": "x", "format": 1}), "once"),
    "absurd definitions": (
        "definitions_applied", {}, lambda row: row["detail"]["definitions"].update(queues={"WORK": {"underlying_topic": 7}}),
        "definitions",
    ),
    "definitions that are none": ("definitions_applied", {}, detail(definitions=[]), "definitions"),
    "a detail that is no table": ("removed", {"reason": "acknowledged"}, columns(detail="[1]"), "record"),
    "a restored journal of types without end": (
        "pulled", {}, restores(origin_uuid="x", since={f"t{each}": 0 for each in range(1_001)}), "since",
    ),
    "a detail that is no JSON": ("removed", {"reason": "acknowledged"}, columns(detail="{"), "record"),
    "a detail that is a hole": ("removed", {"reason": "acknowledged"}, columns(detail="[" * 100_000), "record"),
    "numbers with a gap": ("removed", {"reason": "acknowledged"}, columns(record=10_000), "goes on with record 10000"),
    "an epoch of before": ("removed", {"reason": "acknowledged"}, columns(epoch=0), "epoch"),
}  # fmt: skip


@pytest.mark.drawn(15)
@pytest.mark.parametrize("case", RECORDS)
def test_a_record_that_no_peer_may_write_is_refused(attack: Attack, case: str) -> None:
    kind, facts, change, says = RECORDS[case]
    number = attack.peer.number(kind, **facts)
    attack.peer.rewrite(number, change)
    attack.pull("PEER_REFUSED", says)
    pulled = attack.here.state.pulled.get("virginia")
    assert number < 3 or (pulled is not None and pulled.record == number - 1), "what came before it is taken"
    attack.heal()


@pytest.mark.parametrize("number", [10_000, 2**50])
def test_who_says_it_has_pulled_what_never_was_is_named_and_nothing_changes(attack: Attack, number: int) -> None:
    """It cannot be told from a backup that was restored; SECURITY.md says what to do."""
    said = {"peer": "frankfurt", "journal": attack.here.state.journal_id, "number": number, "digest": "f" * 64}
    attack.peer.rewrite(attack.peer.number("pulled"), detail(**said))
    before = attack.here.told()
    attack.pull("JOURNAL_RESTORED", f"Peer 'virginia' has pulled record {number}")
    assert attack.here.told() == before
    attack.heal()


def claim_messages(attack: Attack, *, name: str = "frankfurt") -> None:
    """Let the peer say that two of its messages were published here."""
    own = attack.here.state.journal_id
    number = attack.peer.number("entered", rows=2, message_type="order")
    attack.peer.rewrite(number, detail(origin=[[0, 2, own, 7]], instances={own: name}))


def test_messages_that_were_never_published_here_are_told_as_a_backup_that_was_put_back(attack: Attack) -> None:
    claim_messages(attack)
    attack.pull("JOURNAL_RESTORED", "has pulled message 8 of type 'order'")
    attack.heal()


def test_messages_that_were_never_published_here_are_no_messages_of_ours(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come while its log is read on, when nobody looks ahead."""
    claim_messages(attack)
    monkeypatch.setattr(puller, "check_own", lambda _, store, peer, known, *__: restored.told_ahead(store, peer, known)[0])
    attack.pull("PEER_REFUSED", "never published here")
    attack.heal()


def test_this_journal_under_another_name_is_refused(attack: Attack) -> None:
    claim_messages(attack, name="tokyo")
    attack.pull("PEER_REFUSED", "is instance 'tokyo', and it is 'frankfurt'")


@pytest.mark.parametrize("whose", ["frankfurt", "tokyo"])
def test_a_restored_journal_takes_nobody_elses_origin(attack: Attack, whose: str) -> None:
    """Its messages would be here as those of another instance."""
    attack.go_on()
    own = attack.here.state.journal_id
    number = attack.peer.number("pulled")
    origin = own if whose == "frankfurt" else attack.here.state.pulled["tokyo"].journal
    attack.peer.rewrite(number, restores(origin_uuid=origin, since={"order": 0}))
    attack.pull("PEER_REFUSED", f"is instance 'virginia', and it is '{whose}'")
    assert own not in attack.here.state.message_types["order"].origins.held
    attack.heal()


#: How many journals are changed; `make nightly` asks for more.
FUZZED_PEERS = int(os.environ.get("FUZZED_PEERS", "25"))

#: What stands where something else should.
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**53, 2**60, 2**63 - 1, 2**64, 1.5, -0.0, "", ".", "..", "T", "WORK", "FAILED", "virginia",
    "frankfurt", "../../x", "x" * 100_000, "\u0000", "é\u202e", "{}", [], {}, [[]], [None], {"": None}, [[0, 2**60]],
    [[0, 1, "virginia", 0]], "acknowledged", "redriven", "max_deliveries", *Kind,
)  # fmt: skip

EDGES = (-(2**63), -1, 0, 1, 2, 3, 5, 9, 2**31, 2**32, 2**53, 2**60, 2**63 - 1)

#: Columns of text, which may be missing.
TEXTS = ("kind", "message_type", "queue", "reason")

#: Facts that a record may have, and most have not.
TRAITS = ("life", "term", "owner", "stage", "origin", "instances", "deliveries", "critical", "v", "source", "passed")


class Fuzzer:
    """Changes records as its seed says."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def change(self, row: dict[str, Any]) -> None:
        """Change one thing of a record, or some."""
        for _ in range(self.random.choice([1, 1, 1, 2, 5])):
            match self.random.choice(["column", "ranges", "fact", "fact", "fact", "deep", "new", "byte"]):
                case "column":
                    name = self.random.choice(TEXTS)
                    text = self.random.choice([each for each in ODD if isinstance(each, str)])
                    row[name] = text if name == "kind" or self.random.random() < 0.8 else None
                case "ranges":
                    row["ranges"] = list(self._ranges())
                case "fact" if isinstance(row["detail"], dict) and row["detail"]:
                    row["detail"][self.random.choice([*row["detail"]])] = self.random.choice(ODD)
                case "deep" if isinstance(row["detail"], dict):
                    self._deep(row["detail"])
                case "new" if isinstance(row["detail"], dict):
                    row["detail"][self.random.choice(TRAITS)] = self.random.choice(ODD)
                case "byte":
                    text = row["detail"] if isinstance(row["detail"], str) else json.dumps(row["detail"])
                    at = self.random.randrange(len(text) or 1)
                    row["detail"] = text[:at] + self.random.choice('{}[]",:0-9eé\u0000') + text[at + 1 :]

    def _deep(self, found: Any) -> None:
        while isinstance(found, dict | list) and found:
            key: Any = self.random.choice([*found]) if isinstance(found, dict) else self.random.randrange(len(found))
            if not isinstance(found[key], dict | list) or not found[key]:
                found[key] = self.random.choice(ODD)
                return
            found = found[key]

    def _ranges(self) -> Iterator[dict[str, int]]:
        for _ in range(self.random.randint(0, 3)):
            yield {"first": self.random.choice(EDGES), "until": self.random.choice(EDGES)}


def test_random_faults_stop_a_peer_and_nothing_else(home: Home, tmp_path: Path) -> None:
    for seed in range(FUZZED_PEERS):
        try:
            (tmp_path / str(seed)).mkdir()
            _fuzz(Attack(home, tmp_path / str(seed)), Fuzzer(seed))
        except BaseException as failure:
            failure.add_note(f"This was seed {seed}.")
            raise


def _fuzz(attack: Attack, fuzzer: Fuzzer) -> None:
    count = len(attack.peer.rows())
    for number in fuzzer.random.sample(range(count), fuzzer.random.choice([1, 1, 2, 4])):
        attack.peer.rewrite(number, fuzzer.change)
    refusal = attack.here.pull("virginia", attack.peer.path)
    assert refusal is None or isinstance(refusal, SparkQueueError)
    # What is believed it may say: messages that it ends are ended.
    if refusal is None or fuzzer.random.random() < 0.3:
        attack.go_on()
