"""The verbs that change a queue: what they ask of the coordinator, and how they tell what it answered."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_queue import Journal
from spark_queue.client.proving import ProvenLease
from spark_queue.core import commands, replies
from spark_queue.protocol import wire
from spark_queue.protocol.endpoint import Endpoint
from tests.unit.cli.sparkq import Terminal


class Asked:
    """Stands for a coordinator: notes what is asked, and answers as it was told."""

    def __init__(self) -> None:
        self.requests: list[wire.AnyRequest] = []
        self.reply: wire.AnyReply = replies.Done()
        self.replies: dict[type, wire.AnyReply] = {}

    def __call__(self, _store: object, _journal_id: str, request: wire.AnyRequest, *, endpoint: Endpoint) -> Any:
        self.address = endpoint.addresses
        self.requests.append(request)
        return self.replies.get(type(request), self.reply)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", asked)
    return asked


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    definitions = {"message_types": {"json": {"topics": ["T"]}}, "queues": {"WORK": {"underlying_topic": "T"}}}
    return Journal.create(str(tmp_path / "journal"), definitions)


def test_purge_tells_what_went_and_what_stays(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    asked.reply = replies.Purged(purged=1_200, leased=3)
    assert sparkq("purge", journal.path, "WORK", "--json").json == {"queue": "WORK", "purged": 1_200, "leased": 3}
    said = sparkq("purge", journal.path, "WORK", "--where", "amount > 3").out
    assert said == "Queue 'WORK': 1,200 messages were purged, 3 are leased and stay.\n"
    assert [getattr(request, "where", "") for request in asked.requests] == [None, "amount > 3"]


def test_settle_tells_what_it_did_and_what_it_left_alone(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    asked.reply = replies.Settled(expired=2, skipped=1)
    arguments = ("settle", journal.path, "WORK", "--where", "amount > 3", "--outcome", "expire")
    assert sparkq(*arguments).out == "Queue 'WORK': 2 expired, 1 skipped.\n"
    found = sparkq(*arguments, "--json").json
    assert {name: count for name, count in found.items() if count} == {"queue": "WORK", "expired": 2, "skipped": 1}
    assert asked.requests[0] == commands.SettleWhere(queue="WORK", where="amount > 3", outcome="expire")
    asked.reply = replies.Settled()
    assert sparkq(*arguments).out == "Queue 'WORK': nothing matched.\n"
    assert sparkq("settle", journal.path, "WORK").code == 2


def test_settle_passes_on_how_long_cancelled_messages_wait(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    asked.reply = replies.Settled(cancelled=2)
    arguments = ("settle", journal.path, "WORK", "--where", "amount > 3", "--outcome", "cancel", "--retry-after", "5m")
    assert sparkq(*arguments).out == "Queue 'WORK': 2 cancelled.\n"
    assert [getattr(request, "retry_after_ms", None) for request in asked.requests] == [300_000]


def test_settle_passes_on_why(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    asked.reply = replies.Settled(expired=2)
    arguments = ("settle", journal.path, "WORK", "--where", "amount > 3", "--error", "no price")
    assert sparkq(*arguments, "--outcome", "expire").out == "Queue 'WORK': 2 expired.\n"
    assert [getattr(request, "error", None) for request in asked.requests] == ["no price"]
    refused = sparkq(*arguments)
    assert (refused.code, len(asked.requests)) == (1, 1)
    assert "an error has a meaning with 'cancel' and 'expire' only. Nothing was settled. Leave it out." in refused.err


def test_settle_says_that_a_cancel_finds_what_is_leased_only(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    asked.reply = replies.Settled()
    arguments = ("settle", journal.path, "WORK", "--where", "value = '1'", "--outcome", "cancel")
    assert sparkq(*arguments).out == "Queue 'WORK': nothing that matches is leased.\n"
    assert sparkq(*arguments, "--dry-run").out == "Queue 'WORK': nothing that matches is leased. Nothing was changed.\n"


def test_purge_and_settle_tell_without_asking_what_they_would_do(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    journal.publish(['{"n": 1}'] * 1_200, topic="T")
    purged = sparkq("purge", journal.path, "WORK", "--dry-run").out
    assert purged == "Queue 'WORK': 1,200 messages would be purged, 0 are leased. Nothing was changed.\n"
    settle = ("settle", journal.path, "WORK", "--where", "get_json_object(value, '$.n') = '1'", "--outcome", "expire", "--dry-run")
    assert sparkq(*settle).out == "Queue 'WORK': the result would be 1,200 expired. Nothing was changed.\n"
    found = sparkq(*settle, "--json").json
    assert (found["dry_run"], found["expired"]) == (True, 1_200)
    assert asked.requests == []


def test_redrive_tells_what_is_back_and_what_was_skipped(
    sparkq: Terminal, asked: Asked, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("spark_queue.client.redriving.time", SimpleNamespace(sleep=slept.append))
    found = replies.DeadLetters(ranges=((0, 1_200),), skipped=3)
    part = replies.Redriven(requested=600, redriven=599, skipped=1)
    asked.replies = {commands.FindDeadLetters: found, commands.Redrive: part}
    said = sparkq("redrive", journal.path, "WORK", "--where", "amount > 3", "--per-second", "600")
    assert said.out.startswith("Queue 'WORK': 1,198 of 1,203 dead letters are back, 5 were skipped. Those are leased or settled")
    assert [getattr(request, "where", getattr(request, "ranges", None)) for request in asked.requests] == [
        "amount > 3", ((0, 600),), ((600, 1_200),)
    ]  # fmt: skip
    # One pause between two requests; what a program reads has no bar in it.
    assert slept == [1]
    answer = sparkq("redrive", journal.path, "WORK", "--json")
    assert answer.json == {"queue": "WORK", "requested": 1_203, "redriven": 599, "skipped": 604}
    refused = sparkq("redrive", journal.path, "WORK", "--per-second", "0")
    assert (refused.code, "BAD_VALUE" in refused.err) == (1, True)


def test_unsubscribe_names_the_subscription(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    assert sparkq("unsubscribe", journal.path, "WORK", "east", "--json").json == {"queue": "WORK", "subscription": "east"}
    assert "'east' of queue 'WORK' has ended" in sparkq("unsubscribe", journal.path, "WORK", "east").out
    wanted = commands.Unsubscribe(queue="WORK", subscription="east")
    assert asked.requests == [wanted, wanted]
    assert sparkq("unsubscribe", journal.path, "WORK").code == 2


def test_decide_looks_into_the_sink_or_says_what_it_is_told_by_force(
    sparkq: Terminal, asked: Asked, journal: Journal, tmp_path: Path
) -> None:
    """R125."""
    path = str(tmp_path / "booked")
    DeltaTable.create(path, pa.schema({"id": pa.int64()}))
    table_id = str(DeltaTable(path).metadata().id)
    known: dict[str, Any] = {"lease": 7, "prepared_at_ms": 0, "due_at_ms": 60_000, "subscription": "east"}
    attempt = replies.AttemptTold(**known, attempt=4, table=path, table_id=table_id, error="away")
    asked.replies = {commands.FindAttempts: replies.Attempts(attempts=(attempt,))}
    verb = ("decide", journal.path, "WORK")
    shown = sparkq(*verb, "--dry-run", "--json").json["attempts"][0]
    assert (shown["fate"], shown["error"], shown["lease_ends"]) == ("in doubt", "away", "1970-01-01T00:01:00+00:00")
    for wrong in (("--landed",), ("--fenced",), ("--force",), ("--landed", "--fenced", "--force")):
        assert "BAD_VALUE" in sparkq(*verb, *wrong).err
    assert asked.requests == [commands.FindAttempts(queue="WORK")]
    asked.requests.clear()

    def said() -> list[Any]:
        found = [each for each in asked.requests if not isinstance(each, commands.FindAttempts)]
        asked.requests.clear()
        return found

    who: dict[str, Any] = {"queue": "WORK", "subscription": "east", "attempt": 4}
    assert "fenced" in sparkq(*verb).out
    assert said() == [commands.Fenced(**who)]
    transaction = f"sparkqueue:{journal.journal_id()}:WORK:east"
    assert DeltaTable(path).transaction_version(transaction) == 9, "no commit of that attempt lands any more"
    for word in ("--landed", "--fenced"):
        refused = sparkq(*verb, word, "--force", "--json")
        assert (refused.code, "[SINK_READABLE]" in refused.json["attempts"][0]["error"], said()) == (3, True, []), "it can be read"
    Path(path).rename(tmp_path / "gone")
    sparkq(*verb, "--landed", "--force")
    sparkq(*verb, "--fenced", "--force", "--subscription", "east")
    assert said() == [commands.Landed(**who, forced=True), commands.Fenced(**who, forced=True)]
    (tmp_path / "gone").rename(path)
    other = replies.AttemptTold(**known, attempt=4, table=path, table_id="another")
    asked.replies = {commands.FindAttempts: replies.Attempts(attempts=(other,))}
    done = sparkq(*verb, "--json")
    assert (done.code, done.json["attempts"][0]["fate"]) == (3, "in doubt")
    assert "Another table is there" in done.json["attempts"][0]["error"]
    assert said() == [commands.SinkUnreadable(**who, error="Another table is there now.")], "the alarm has the rest"
    asked.replies = {commands.FindAttempts: replies.Attempts(attempts=())}
    assert sparkq(*verb).out == "Queue 'WORK': nothing is in doubt.\n"


def test_revive_takes_a_queue_back_in(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    """R122."""
    assert "'WORK' is back" in sparkq("revive", journal.path, "WORK").out
    assert sparkq("revive", journal.path, "WORK", "--json").json == {"queue": "WORK", "set_aside": False}
    assert asked.requests == [commands.Revive(queue="WORK")] * 2


def test_proxied_transfer_says_what_may_happen(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    """R108, R111."""
    said = sparkq("proxied-transfer", journal.path, "WORK", "on")
    assert "they are delivered twice" in said.out
    told = sparkq("proxied-transfer", journal.path, "WORK", "off", "--json")
    assert told.json == {"queue": "WORK", "proxied_transfer_allowed": False}
    found = [each for each in asked.requests if isinstance(each, commands.ProxiedTransfer)]
    assert [(each.queue, each.on) for each in found] == [("WORK", True), ("WORK", False)]
    sparkq("proxied-transfer", journal.path, "WORK", "on", "--owner", "virginia")
    assert asked.requests[-1] == commands.ProxiedTransfer(queue="WORK", on=True, owner="virginia")
    assert sparkq("proxied-transfer", journal.path, "WORK").code == 2


@pytest.mark.parametrize(
    ("verb", "request_type", "paused"), [("pause", commands.Pause, True), ("unpause", commands.Unpause, False)]
)
def test_pause_and_unpause_ask_for_it_and_say_so(
    sparkq: Terminal, asked: Asked, journal: Journal, *, verb: str, request_type: type, paused: bool
) -> None:
    assert sparkq(verb, journal.path, "WORK", "--json").json == {"queue": "WORK", "paused": paused}
    said = sparkq(verb, journal.path, "WORK", "--coordinator", "host:1").out
    assert said.startswith("Queue 'WORK' is paused" if paused else "Queue 'WORK' grants again")
    assert [type(request) for request in asked.requests] == [request_type] * 2
    assert {getattr(request, "queue", None) for request in asked.requests} == {"WORK"}
    assert asked.address == "host:1"


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"messages": 1_200}, "1,200 messages are done."),
        ({"messages": 0, "is_barrier": True}, "its barrier is done."),
        ({"messages": 0}, "this acknowledged no message."),
        ({"messages": 0, "was_proven": True}, "it was proven before."),
    ],
)
def test_prove_tells_what_the_proof_did(
    sparkq: Terminal, monkeypatch: pytest.MonkeyPatch, journal: Journal, found: dict[str, Any], says: str
) -> None:
    """P5, R44: whether the batch is proven, and how many messages that acknowledged, are two things."""
    proven = ProvenLease(queue="WORK", subscription="s", lease=7, **found)
    monkeypatch.setattr(Journal, "prove", lambda *_, **__: [proven])
    done = sparkq("prove", journal.path, "checkpoint")
    assert (done.code, done.out) == (0, f"Queue 'WORK', subscription 's', lease 7: {says}\n")
    assert sparkq("prove", journal.path, "checkpoint", "--json").json == {"leases": [asdict(proven)]}


def test_prove_has_an_exit_code_of_its_own_where_there_is_nothing_to_prove(
    sparkq: Terminal, journal: Journal, tmp_path: Path
) -> None:
    """A scheduler may take it for a skipped task; a checkpoint of something else stays a failure."""
    nothing = sparkq("prove", journal.path, tmp_path / "checkpoint")
    assert (nothing.code, "[NOTHING_TO_PROVE]" in nothing.err, nothing.out) == (4, True, "")
    for folder in ("commits", "offsets"):
        (tmp_path / "checkpoint" / folder).mkdir(parents=True)
        (tmp_path / "checkpoint" / folder / "0").write_text("v1")
    assert sparkq("prove", journal.path, tmp_path / "checkpoint").code == 1
