"""Rights from the outside: `sparkq token`, what `doctor` tries of the store, and publishing to names (R12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.cli.store_rights import try_rights
from spark_queue.errors import AccessError, JournalError
from spark_queue.journal.store import Store
from spark_queue.protocol.tokens import token_hash
from spark_queue.protocol.user_files import TOKEN_VARIABLE
from tests.unit.cli.sparkq import Terminal

ADMIN = {"token_hash": token_hash("admin"), "rights": [{"rights": ["administer"]}]}


def make(tmp_path: Path, *rights: dict[str, Any]) -> Journal:
    definitions: dict[str, Any] = {
        "message_types": {"json": {"topics": ["ORDERS", "OTHERS"]}},
        "queues": {"WORK": {"underlying_topic": "^.*S$", "default_publish_target": "ORDERS"}},
        "principals": {"admin": ADMIN, "ann": {"token_hash": token_hash("ann"), "rights": list(rights)}},
    }
    return Journal.create(str(tmp_path / "journal"), definitions)


def act_as(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)


def test_write_is_a_right_on_the_name_and_not_on_where_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: to publish to the queue's name is allowed although it goes to a default target; to that target itself it is not."""
    journal = make(tmp_path, {"queues": "WORK", "rights": ["write"]})
    act_as("ann", monkeypatch)
    assert journal.publish(["1"], topic="WORK").rows == 1
    assert journal.publish([{"value": "1", "topic": "WORK"}]).rows == 1
    for data, topic in ((["1"], "ORDERS"), ([{"value": "1", "topic": "WORK"}, {"value": "2", "topic": "OTHERS"}], None)):
        with pytest.raises(AccessError, match="ACCESS_DENIED.*'ann' has no right 'write' on '(ORDERS|OTHERS)'"):
            journal.publish(data, topic=topic)
    assert journal.queue("WORK").status().queue_depth == 2
    act_as("nobody's", monkeypatch)
    with pytest.raises(AccessError, match="TOKEN_OF_NOBODY.*no principal of this journal.*'write'"):
        journal.publish(["1"], topic="WORK")


def test_a_token_that_has_expired_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: whatever rights it had, as every call of a coordinator refuses it."""
    rights = [{"queues": "WORK", "rights": ["write"]}]
    late = {"token_hash": token_hash("late"), "expires": "2020-01-01T00:00:00+00:00", "rights": rights}
    definitions = {
        "message_types": {"json": {"topics": ["ORDERS"]}},
        "queues": {"WORK": {"underlying_topic": "ORDERS"}},
        "principals": {"admin": ADMIN, "late": late},
    }
    journal = Journal.create(str(tmp_path / "journal"), definitions)
    act_as("late", monkeypatch)
    for topic, rows in (("WORK", ["1"]), (None, [{"value": "1", "topic": "WORK"}])):
        with pytest.raises(AccessError, match="TOKEN_EXPIRED.*'late'.*2020"):
            journal.publish(rows, topic=topic)
    assert journal.queue("WORK").status().queue_depth == 0


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("token", "named"), [("ann", "ACCESS_DENIED.*'ann'"), ("nobody's", "TOKEN_OF_NOBODY.*no principal of this journal")]
)
def test_apply_asks_for_its_right_also_where_it_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, named: str, *, dry_run: bool
) -> None:
    """R12: no coordinator hears of a dry run, nor of definitions that are there already."""
    journal = make(tmp_path, {"queues": "WORK", "rights": ["read", "write", "change"]})
    there = dict(journal.definitions().stored)
    act_as(token, monkeypatch)
    with pytest.raises(AccessError, match=f"{named}.*no right 'administer' on the journal"):
        journal.apply(there, dry_run=dry_run)
    act_as("admin", monkeypatch)
    assert journal.apply(there, dry_run=dry_run) == []


def test_reading_is_no_right_to_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: read includes acknowledging, and not publishing."""
    journal = make(tmp_path, {"queues": "WORK", "rights": ["read"]})
    act_as("ann", monkeypatch)
    with pytest.raises(AccessError, match="ACCESS_DENIED"):
        journal.publish(["1"], topic="WORK")


def test_doctor_tells_what_the_store_lets_a_principal_do_beyond_its_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = make(tmp_path, {"queues": "WORK", "rights": ["read"], "filter": "value > '1'"})
    act_as("ann", monkeypatch)
    before = sorted(tmp_path.rglob("*"))
    finding = try_rights(journal)
    assert finding.result == "warning"
    assert "lets it write control/; write messages/json/" in finding.found
    assert sorted(tmp_path.rglob("*")) == before, "a trial leaves nothing behind"
    act_as("admin", monkeypatch)
    # `admin` publishes here by no right: an attacker may, since the store lets it.
    monkeypatch.setattr("spark_queue.client.rights.check_writes", lambda *_: None)
    journal.publish(["1"], topic="WORK")
    act_as("ann", monkeypatch)
    assert "read all of messages/json/" in try_rights(journal).found


def test_doctor_is_content_where_the_store_is_the_wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = make(tmp_path, {"queues": "WORK", "rights": ["read"]})
    act_as("ann", monkeypatch)
    tried: list[str] = []

    def refuse(store: Store, key: str, _: bytes) -> None:
        tried.append(key.rpartition("/")[0])
        raise JournalError("STORE_FAILED", path=store.path, doing=f"writing {key}", reason="denied", next_step="")

    monkeypatch.setattr(Store, "write", refuse)
    finding = try_rights(journal)
    assert (finding.result, finding.advice) == ("ok", "")
    assert tried == ["control", "messages/json"]


def test_doctor_without_principals_and_with_a_strange_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Journal.create(str(tmp_path / "plain"), {"message_types": {"json": {"topics": ["ORDERS"]}}})
    assert try_rights(plain).result == "ok"
    journal = make(tmp_path, {"queues": "WORK", "rights": ["read"]})
    act_as("nobody's", monkeypatch)
    assert (try_rights(journal).result, try_rights(journal).found) == ("warning", "the token belongs to no principal")


def test_doctor_tries_the_token_of_the_file_that_it_is_given(
    sparkq: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = make(tmp_path, {"queues": "WORK", "rights": ["read"]})
    act_as("nobody's", monkeypatch)
    file = tmp_path / "ann.token"
    file.write_text("ann")
    file.chmod(0o600)
    found = {each["check"]: each["found"] for each in sparkq("doctor", journal.path, "--token-file", str(file), "--json").json}
    assert found["token"] == f"{file}, readable by you alone"
    assert found["rights"].startswith("principal 'ann'")
    act_as("admin", monkeypatch)
    assert sparkq("stop", journal.path).code == 0


def test_a_token_is_printed_once_with_the_hash_for_the_definitions(sparkq: Terminal) -> None:
    made = sparkq("token", "new", "ann", "--json").json
    assert made["token_hash"] == token_hash(made["token"])
    assert made["principal"] == "ann"
    assert "NAME_INVALID" in sparkq("token", "new", "no name").err
