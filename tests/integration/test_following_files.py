"""Files of a followed table that go while messages wait in them, from the front door: copies, and losses (R152 to R157)."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_queue.core.records import Kind, Moved
from spark_queue.errors import CallerError, JournalError
from tests.integration.coordinator_world import DEADLINE_S, World
from tests.integration.faulty_coordinator import Faults
from tests.integration.source_journal import end_coordinator
from tests.integration.test_following import Followed
from tests.unit.cli.sparkq import Terminal
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("own_user")


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    """Give a table with three rows that nobody follows yet."""
    made = Followed(tmp_path)
    made.keys["on_change"] = "keep"
    made.append(0, 3)
    yield made
    if made.journal is not None:
        end_coordinator(made.journal)


@pytest.fixture
def sparkq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch=monkeypatch, capsys=capsys)


def vacuum(followed: Followed) -> None:
    """Delete every file that the table has removed."""
    DeltaTable(followed.table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def test_messages_outlive_vacuum_where_somebody_catches_up(followed: Followed, sparkq: Terminal) -> None:
    """R152, R157: as cron does it, without a consumer."""
    followed.keys["relocate_after"] = "0s"
    followed.create(filter="id <> 11")
    followed.append(10, 2)
    followed.append(20, 1)
    assert sparkq("follow", followed.path, "--catch-up").out == (
        "The followed tables are read, and what is due of them is copied.\n"
    )
    DeltaTable(followed.table).optimize.compact()
    assert sparkq("follow", followed.path, "--catch-up", "--json").code == 0
    vacuum(followed)
    assert followed.queue.status().queue_depth == 2
    assert followed.journal is not None
    assert [row["id"] for row in followed.journal.view("messages", queue="SHIP").to_pylist()] == [10, 20]
    end_coordinator(followed.journal)
    assert followed.ids() == [10, 20]
    followed.append(30, 1)
    assert followed.ids() == [30]
    assert sparkq("verify", followed.path).code == 0


def test_a_type_that_is_set_aside_and_files_that_wait_end_a_catch_up_with_an_alarm(followed: Followed, sparkq: Terminal) -> None:
    """R157: what cron should tell."""
    followed.keys |= {"on_change": "stop", "relocate_after": "0s"}
    followed.create()
    followed.append(10, 2)
    DeltaTable(followed.table).delete("id = 10")
    found = sparkq("follow", followed.path, "--catch-up")
    assert found.code == 3
    assert "[TABLE_CHANGED]" in found.err
    vacuum(followed)
    # It is still set aside, and everything is copied.
    assert sparkq("follow", followed.path, "--catch-up").out.startswith("Not every followed table could be read on.")
    assert followed.ids_before("TABLE_CHANGED") == [10, 11]


def test_what_vacuum_took_before_anybody_looked_is_lost_and_forgotten_by_a_word(followed: Followed, sparkq: Terminal) -> None:
    """R155."""
    journal = followed.create()
    followed.append(10, 2)
    followed.append(20, 1)
    assert sparkq("follow", followed.path, "--catch-up").code == 0
    end_coordinator(journal)
    DeltaTable(followed.table).optimize.compact()
    vacuum(followed)
    followed.append(30, 1)
    assert sparkq("follow", followed.path, "--catch-up").code == 0
    wait_until(lambda: followed.queue.status().dead_letters == 3)
    assert "[TABLE_ROWS_LOST] 3 messages of queue 'SHIP' are lost" in str(followed.queue.status().alarm)
    shown = journal.view("dead_letters", queue="SHIP").to_pylist()
    assert [(row["bookmark"], row["reason"], row["id"]) for row in shown] == [
        (0, "lost", None),
        (1, "lost", None),
        (2, "lost", None),
    ]
    verified = sparkq("verify", followed.path)
    assert verified.code == 0
    assert "[TABLE_ROWS_LOST]" in verified.err + verified.out
    assert followed.queue.redrive().redriven == 0
    assert followed.ids() == [30]
    assert sparkq("follow", followed.path, "orders", "--forget-lost").code == 0
    assert followed.queue.status().alarm is None


def test_a_queue_that_is_set_aside_for_files_that_are_gone_goes_on_without_them(followed: Followed, sparkq: Terminal) -> None:
    """R155."""
    journal = followed.create(filter="id <> 11")
    followed.append(10, 2)
    assert sparkq("follow", followed.path, "--catch-up").code == 0
    with pytest.raises(CallerError, match="UNSUPPORTED_WRITE.*none of its files is missing"):
        journal.give_up_files("orders")
    end_coordinator(journal)
    DeltaTable(followed.table).optimize.compact()
    vacuum(followed)
    followed.append(20, 1)
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        followed.queue.status()
    found = sparkq("follow", followed.path, "--catch-up")
    assert (found.code, "[MESSAGE_FILE_MISSING]" in found.err) == (3, True)
    assert sparkq("follow", followed.path, "orders", "--give-up").code == 0
    assert followed.ids() == [20]
    assert followed.queue.status().alarm is None


@pytest.mark.parametrize("is_gone", ["the file", "the table"])
def test_a_catch_up_does_not_wait_for_what_nobody_can_copy(followed: Followed, sparkq: Terminal, is_gone: str) -> None:
    """R157: it ends with the reason, also where a queue is set aside for a file, or the type for its table."""
    followed.keys["relocate_after"] = "0s"
    journal = followed.create(filter="id <> 11")
    followed.append(10, 2)
    assert sparkq("follow", followed.path, "--catch-up").code == 0
    end_coordinator(journal)
    if is_gone == "the file":
        DeltaTable(followed.table).optimize.compact()
        vacuum(followed)
    else:
        for name in ("0", "1", "2"):
            Path(followed.table, "_delta_log", f"{name:0>20}.json").write_text('{"commitInfo":{}}', encoding="utf-8")
        next(Path(followed.table).glob(str(followed.queue.explain(0).file))).write_bytes(b"no Parquet file")
    began_s = time.monotonic()
    found = sparkq("follow", followed.path, "--catch-up")
    assert (found.code, found.out) == (3, "1 file is still to be copied.\n")
    code = "[MESSAGE_FILE_MISSING]" if is_gone == "the file" else "[TABLE_REPLACED]"
    assert code in found.err
    assert time.monotonic() - began_s < DEADLINE_S


def test_what_is_given_up_counts_as_lost_by_the_answer(followed: Followed, sparkq: Terminal) -> None:
    """R155: also in a queue that had been set aside for it, and is known to have the message."""
    journal = followed.create(filter="id <> 11")
    followed.append(10, 2)
    with followed.queue.receive() as messages:
        message = messages.get()
        assert message is not None
        message.cancel().result(DEADLINE_S)
    end_coordinator(journal)
    DeltaTable(followed.table).optimize.compact()
    vacuum(followed)
    assert sparkq("follow", followed.path, "orders", "--give-up").code == 0
    status = followed.queue.status()
    assert (status.queue_depth, status.dead_letters) == (0, 1)


def test_a_file_that_a_receiver_does_not_find_is_looked_for_soon(followed: Followed, sparkq: Terminal) -> None:
    """R155: its next run goes on without the messages that are lost."""
    journal = followed.create()
    followed.append(10, 2)
    followed.append(20, 1)
    assert sparkq("follow", followed.path, "--catch-up").code == 0
    first, second = (str(followed.queue.explain(bookmark).file) for bookmark in (0, 2))
    DeltaTable(followed.table).optimize.compact()
    Path(followed.table, first).unlink()
    followed.append(30, 1)
    assert sparkq("follow", followed.path, "--catch-up").code == 0
    # The next look by itself is minutes away from here.
    wait_until(lambda: followed.queue.status().dead_letters == 2)
    Path(followed.table, second).unlink()
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        followed.ids()
    wait_until(lambda: followed.queue.status().dead_letters == 3)
    assert followed.ids() == [30]
    assert [row["reason"] for row in journal.view("dead_letters", queue="SHIP").to_pylist()] == ["lost"] * 3


@pytest.mark.parametrize("queue", [{"filter": "item <> 'item 11'"}, {"priority": "id"}])
def test_a_file_that_was_gone_before_it_entered_is_passed_by_a_word(
    followed: Followed, sparkq: Terminal, queue: dict[str, str]
) -> None:
    """R148: whose rows nobody can judge any more, so nothing behind it enters either."""
    followed.create(**queue)
    followed.append(10, 2)
    assert_passed_by_its_step(followed, sparkq)


def assert_passed_by_its_step(followed: Followed, sparkq: Terminal) -> None:
    """Let VACUUM take the file of version 1 before it enters, and look whether the step that the alarm tells passes it."""
    DeltaTable(followed.table).optimize.compact()
    vacuum(followed)
    followed.append(20, 1)
    told = " ".join(sparkq("follow", followed.path, "--catch-up").err.split())
    assert "[MESSAGE_FILE_MISSING]" in told
    step = "Version 1 of the table, which message type 'orders' follows, brings that file"
    assert step in told
    assert step in str(followed.queue.status().alarm)
    assert f"`sparkq follow {followed.path} orders --from 2`" in told
    assert sparkq("follow", followed.path, "orders", "--from", "2").code == 0
    assert followed.ids() == [20]
    assert followed.queue.status().alarm is None


def test_a_file_whose_rows_nobody_counted_that_was_gone_before_it_entered_is_passed_by_a_word(
    followed: Followed, sparkq: Terminal
) -> None:
    """R148: also where no queue has to read it."""
    followed.create()
    followed.append(10, 2)
    entry = Path(followed.table, "_delta_log", f"{1:020d}.json")
    actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    entry.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    assert_passed_by_its_step(followed, sparkq)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "one of --from"),
        (("orders",), "one of --from"),
        (("orders", "--catch-up"), "left out with --catch-up"),
        (("--give-up",), "the name of a message type"),
        (("orders", "--give-up", "--forget-lost"), "one of --from"),
    ],
)
def test_the_verb_is_told_one_thing(followed: Followed, sparkq: Terminal, arguments: tuple[str, ...], expected: str) -> None:
    followed.create()
    found = sparkq("follow", followed.path, *arguments)
    assert found.code != 0
    assert expected in " ".join(found.err.split())


class FollowingWorld(World):
    """Coordinators of a journal over the table of `Followed`, which may have something wrong."""

    def __init__(self, followed: Followed) -> None:
        self.definitions = followed.definitions(filter="id <> 11")
        journal = followed.create(filter="id <> 11")
        self.store, self.journal_id = journal.store, journal.journal_id()
        self._started = []


@pytest.mark.parametrize("die", ["before", "staged", "committed"])
def test_a_kill_around_the_record_of_a_copy_loses_nothing(followed: Followed, sparkq: Terminal, die: str) -> None:
    """R152: a copy that no record names is made anew, and VACUUM takes nothing that is in none."""
    followed.keys["relocate_after"] = "0s"
    world = FollowingWorld(followed)
    followed.append(10, 2)
    followed.append(20, 1)
    journal = followed.journal
    assert journal is not None
    assert journal.catch_up().files == 0
    end_coordinator(journal)
    DeltaTable(followed.table).optimize.compact()
    with ExitStack() as ending:
        ending.callback(world.end)
        victim = world.started(Faults(die=die, at_kind="moved"))
        assert journal.catch_up(timeout="60s").files == 0
        assert victim.wait(DEADLINE_S) == -signal.SIGKILL
    moved = [record for record in world.records() if record.kind == Kind.MOVED]
    assert [file.kept for record in moved for file in record.body_as(Moved).files] == [((0, 1),), ((2, 3),)]
    assert {record.epoch for record in moved} == {2 if die == "committed" else 3}
    vacuum(followed)
    assert "a copy of its file" in str(followed.queue.explain(0))
    assert followed.ids() == [10, 20]
    assert sparkq("verify", followed.path).code == 0
