"""A dry run tells each principal what the coordinator would tell it (R12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal, Queue
from spark_queue.errors import AccessError, CallerError, ConfigError
from spark_queue.protocol.tokens import token_hash
from spark_queue.protocol.user_files import TOKEN_VARIABLE

PRINCIPALS: dict[str, Any] = {
    "ops": {"rights": [{"rights": ["administer"]}, {"queues": "^.*", "rights": ["change", "write"]}]},
    "few": {"rights": [{"queues": "WORK", "rights": ["read", "change"], "filter": "amount > 3"}]},
    "gone": {"rights": [{"queues": "WORK", "rights": ["change"]}], "expires": "2020-01-01T00:00:00+00:00"},
    "reader": {"rights": [{"queues": "WORK", "rights": ["read"]}]},
    "changer": {"rights": [{"queues": "OTHER", "rights": ["change"]}]},
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Make a queue with messages of the amounts 0 to 5, which are their bookmarks, too."""
    monkeypatch.setenv(TOKEN_VARIABLE, "ops")
    definitions = {
        "message_types": {"line": {"columns": "amount BIGINT", "topics": ["LINES"]}},
        "queues": {"WORK": {"underlying_topic": "LINES"}, "OTHER": {"underlying_topic": "LINES"}},
        "principals": {name: {"token_hash": token_hash(name), **each} for name, each in PRINCIPALS.items()},
    }
    Journal.create(str(tmp_path / "journal"), definitions)
    journal = Journal(str(tmp_path / "journal"))
    journal.publish([{"amount": amount} for amount in range(6)], topic="LINES")
    return journal.queue("WORK")


def test_hidden_messages_are_not_counted(work: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (work.purge(dry_run=True).purged, work.settle([0, 1], dry_run=True).acknowledged) == (6, 2)
    monkeypatch.setenv(TOKEN_VARIABLE, "few")
    assert work.purge(dry_run=True).purged == 2
    assert work.settle(where="amount > 2", dry_run=True).acknowledged == 2
    with pytest.raises(CallerError, match="UNKNOWN_BOOKMARK.*1 bookmark.*first 3"):
        work.settle([3, 4], dry_run=True)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("reader", "ACCESS_DENIED.*'reader' has no right 'change' on queue 'WORK'"),
        ("changer", "ACCESS_DENIED.*'changer' has no right 'change' on queue 'WORK'"),
        ("stranger", "TOKEN_OF_NOBODY.*no principal of this journal.*'change' on queue 'WORK'"),
        ("gone", "TOKEN_EXPIRED.*2020"),
    ],
)
def test_what_the_coordinator_would_refuse_is_refused(
    work: Queue, monkeypatch: pytest.MonkeyPatch, token: str, reason: str
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    for asked in (work.purge, work.redrive, lambda *, dry_run: work.settle([0], dry_run=dry_run)):
        with pytest.raises(AccessError, match=reason):
            asked(dry_run=True)


def test_who_reads_may_try_what_names_leases(work: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they are leases of its own, the coordinator tells."""
    monkeypatch.setenv(TOKEN_VARIABLE, "reader")
    assert work.settle([{"bookmark": 0, "lease": 1}], dry_run=True) is not None


def test_who_may_not_administer_may_not_try_new_definitions_out(work: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(work.journal.path)
    wanted = {**journal.definitions().stored, "journal": {"retention": "1d"}}
    assert len(journal.apply(wanted, dry_run=True)) == 1
    monkeypatch.setenv(TOKEN_VARIABLE, "few")
    with pytest.raises(AccessError, match="ACCESS_DENIED.*'few' has no right 'administer' on the journal"):
        journal.apply(wanted, dry_run=True)
    with pytest.raises(AccessError, match="ACCESS_DENIED"):
        journal.apply(journal.definitions().stored)


@pytest.mark.parametrize("value", [True, 1.5, b"true", "item = '\udcff'"])
def test_a_filter_that_is_no_text_is_refused_and_no_file_is_blamed(work: Queue, value: Any) -> None:
    for ask in (work.settle, work.purge):
        with pytest.raises(ConfigError, match=r"\[BAD_VALUE\] 'where' in .*must be a text in UTF-8"):
            ask(where=value, dry_run=True)


@pytest.mark.parametrize("given", [{"error": "\udcff"}, {"outcome": "\udcff"}, {"outcome": 10**40}])
def test_what_is_said_of_rows_is_text(work: Queue, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"\[BAD_VALUE\] '(error|outcome)' in settle is"):
        work.settle([0], **{"outcome": "expire", **given}, dry_run=True)


def test_a_row_with_a_text_that_is_no_utf8_is_refused(work: Queue) -> None:
    with pytest.raises(CallerError, match=r"\[OUTCOME_INVALID\].*the rows cannot be read"):
        work.settle([{"bookmark": 0, "outcome": "expire", "error": "\udcff"}], dry_run=True)
