"""Publishes of one process that come at once share a commit (DESIGN 4): who waits for whom, and what each is told."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_queue.errors import CallerError, JournalError
from spark_queue.journal import delta, group_commit
from spark_queue.journal.commit import DefinitionsChangedError, Identity, Published
from spark_queue.journal.creation import create_journal
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.entry_parts import Mark
from spark_queue.journal.group_commit import GroupCommit, PendingPublish, PublishCall
from spark_queue.journal.log_entry import DEFINITIONS_TXN
from spark_queue.journal.publisher import open_head
from spark_queue.journal.store import messages_key
from tests.unit.journal.journal_on_disk import Disk, orders
from tests.waiting import wait_until

ORDER = messages_key("order")
PUT = DeltaHead.put
RECORD = 1


def pending(disk: Disk, data: Any, *, topic: str | None = "ORDERS", **given: Any) -> PendingPublish:
    call = PublishCall(data=data, topic=topic, **given)
    name = call.publisher
    identity = Identity(publisher=name, exclusive=name is not None)
    return PendingPublish(call=call, definitions=disk.definitions, record=RECORD, identity=identity)


def row(number: Any) -> list[dict[str, Any]]:
    return [{"id": number, "item": "a"}]


class Together:
    """A log's commits, of which the first goes on only when all the others wait for it."""

    def __init__(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk = disk
        self.group = GroupCommit(disk.store, disk.journal_id, "order")
        self._patch = monkeypatch

    def commit(
        self, *publishes: PendingPublish, first: Callable[..., bool] = PUT, then: Callable[..., bool] = PUT
    ) -> BaseException | None:
        """Commit each by a thread of its own, one after the other; returns what the first one's ended with.

        `first` and `then` are put in place of the first commit and of the second.
        """
        with ThreadPoolExecutor(len(publishes)) as pool:

            def put(*given: Any, **named: Any) -> bool:
                self._patch.setattr(DeltaHead, "put", then_put)
                for number, each in enumerate(publishes[1:], start=2):
                    pool.submit(self.group.commit, [each])
                    wait_until(partial(self._is_met_by, number))
                return first(*given, **named)

            def then_put(*given: Any, **named: Any) -> bool:
                self._patch.setattr(DeltaHead, "put", PUT)
                return then(*given, **named)

            self._patch.setattr(DeltaHead, "put", put)
            return pool.submit(self.group.commit, publishes[:1]).exception()

    def _is_met_by(self, callers: int) -> bool:
        return len(self.group._callers) == callers

    def files_of_commits(self) -> list[list[int]]:
        """Return how many rows each file of each commit added."""
        return [[added.row_count for added in entry.added] for entry in self.disk.open().messages("order").tail(0)]


@pytest.fixture
def together(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Together:
    monkeypatch.setattr(delta, "back_off", lambda attempt: None)
    return Together(disk, monkeypatch)


def lose_reply(*given: Any, **named: Any) -> bool:
    PUT(*given, **named)
    raise JournalError("STORE_FAILED", path="p", doing="creating an entry", reason="connection reset.", next_step="")


def interrupt(*_: Any, **__: Any) -> bool:
    raise KeyboardInterrupt


def rows_of(publishes: Sequence[PendingPublish]) -> list[int]:
    return [each.result().rows for each in publishes]


def test_what_comes_while_one_commits_goes_together_into_the_next(disk: Disk, together: Together) -> None:
    publishes = [pending(disk, row(1)), pending(disk, [*row(2), *row(3)]), pending(disk, row(4))]
    together.commit(*publishes)
    assert together.files_of_commits() == [[1], [3]]
    assert [(each.result().rows, each.result().version) for each in publishes] == [(1, 1), (2, 2), (1, 2)]
    assert disk.ids() == [1, 2, 3, 4]


def test_rows_that_share_a_file_keep_their_order_and_number_themselves(disk: Disk, together: Together) -> None:
    """R99."""
    topics = ("ORDERS", "RETURNS", "ORDERS", "ORDERS")
    together.commit(
        pending(disk, row(0)), *(pending(disk, row(number), topic=topic) for number, topic in enumerate(topics, start=1))
    )
    [_, entry] = list(disk.open().messages("order").tail(0))
    stored = pq.read_table(f"{disk.store.messages_uri('order')}/{entry.added[0].path}").to_pylist()
    assert [(each["id"], each["topic"], each["sequence"]) for each in stored] == [
        (1, "ORDERS", 1), (2, "RETURNS", 2), (3, "ORDERS", 3), (4, "ORDERS", 4),
    ]  # fmt: skip
    assert len({each["publisher"] for each in stored}) == 1


def test_rows_that_are_refused_are_their_callers_alone(disk: Disk, together: Together) -> None:
    bad = pending(disk, [*row(3), *row("x")])
    publishes = [pending(disk, row(1)), pending(disk, row(2)), bad, pending(disk, row(4)), pending(disk, [{"colour": "red"}])]
    together.commit(*publishes)
    with pytest.raises(CallerError, match="COLUMN_TYPE_MISMATCH") as refused:
        bad.result()
    assert refused.value.facts["row"] == 1, "its own second row"
    with pytest.raises(CallerError, match="UNKNOWN_COLUMN"):
        publishes[4].result()
    assert rows_of([publishes[0], publishes[1], publishes[3]]) == [1, 1, 1]
    assert together.files_of_commits() == [[1], [2]]
    assert disk.ids() == [1, 2, 4]


def test_nothing_is_committed_where_all_are_refused(disk: Disk) -> None:
    group, publishes = GroupCommit(disk.store, disk.journal_id, "order"), [pending(disk, row("x")), pending(disk, row("y"))]
    group.commit(publishes)
    assert [type(each.outcome) for each in publishes] == [CallerError, CallerError]
    assert not disk.log_path(ORDER, 1).exists()


def test_a_publish_without_rows_is_no_part_of_a_commit(disk: Disk) -> None:
    group, publishes = (
        GroupCommit(disk.store, disk.journal_id, "order"),
        [pending(disk, []), pending(disk, row(1)), pending(disk, [])],
    )
    group.commit(publishes)
    assert [(each.result().rows, each.result().version) for each in publishes] == [(0, None), (1, 1), (0, None)]
    assert disk.tail_rows() == 1


def test_only_those_of_one_delay_share_a_commit(disk: Disk, together: Together) -> None:
    """R128: it counts from the commit, whose mark says it; how long a message lives stands in its row."""
    delays = (None, 5_000, None, 5_000)
    publishes = [pending(disk, row(number), deliver_after_ms=delay) for number, delay in enumerate(delays)]
    lives = [pending(disk, row(number), expires_after_ms=number * 1_000) for number in (4, 5)]
    together.commit(pending(disk, row(9)), *publishes, *lives)
    assert together.files_of_commits() == [[1], [4], [2]]
    expirations = {each["id"]: each["expires_at"] for each in disk.stored().to_pylist()}
    assert (expirations[5] - expirations[4]).total_seconds() == 1
    assert expirations[0] is None


def test_a_publisher_with_a_name_has_commits_of_its_own(disk: Disk, together: Together) -> None:
    """R95, R98: the numbers in a commit tell a repeat of it."""
    named = [pending(disk, row(number), publisher="p", first_sequence=number) for number in (1, 2, 1)]
    together.commit(pending(disk, row(8)), named[0], pending(disk, row(9)), named[1], named[2], pending(disk, row(10)))
    assert together.files_of_commits() == [[1], [1], [2], [1]]
    assert named[2].result() == Published(rows=0, duplicates=1, persisted_sequence=2)
    assert disk.ids() == [1, 2, 8, 9, 10]


def test_many_rows_have_a_file_of_their_own_in_the_commit(disk: Disk, together: Together) -> None:
    many = orders(range(100, 100 + group_commit.SHARED_ROWS + 1))
    publishes = [pending(disk, row(1)), pending(disk, row(2)), pending(disk, many), pending(disk, row(3))]
    together.commit(*publishes)
    assert together.files_of_commits() == [[1], [many.num_rows, 2]]
    assert rows_of(publishes) == [1, 1, many.num_rows, 1]


def test_a_group_has_an_end(disk: Disk, together: Together, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "GROUP_ROWS", 2)
    together.commit(*(pending(disk, row(number)) for number in range(6)))
    assert together.files_of_commits() == [[1], [2], [2], [1]]


@pytest.mark.parametrize("kind", ["table", "lists", "a file"])
def test_a_reply_that_is_lost_is_found_for_all_of_the_group(disk: Disk, together: Together, kind: str) -> None:
    rows: Any = {"table": orders([2]), "lists": row(2), "a file": orders(range(2, 3 + group_commit.SHARED_ROWS))}[kind]
    publishes = [pending(disk, row(1)), pending(disk, rows), pending(disk, row(0))]
    together.commit(*publishes, then=lose_reply)
    assert rows_of(publishes) == [1, len(rows), 1]
    assert disk.tail_rows() == disk.stored().num_rows == 2 + len(rows)


def test_a_failure_is_told_to_all_of_the_group_each_by_an_error_of_its_own(
    disk: Disk, together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows then what the head of the log is."""
    opened: list[DeltaHead] = []

    def opening(*given: Any, **named: Any) -> DeltaHead:
        opened.append(open_head(*given, **named))
        return opened[-1]

    monkeypatch.setattr(group_commit, "open_head", opening)

    def lose_all(*given: Any, **named: Any) -> bool:
        disk.go_away()
        return PUT(*given, **named)

    publishes = [pending(disk, row(number)) for number in (1, 2, 3)]
    together.commit(*publishes, then=lose_all)
    disk.come_back()
    for each in publishes[1:]:
        with pytest.raises(JournalError, match="It is unknown whether the commit arrived"):
            each.result()
    assert publishes[1].outcome is not publishes[2].outcome
    again = pending(disk, row(4))
    together.group.commit([again])
    assert rows_of([publishes[0], again]) == [1, 1]
    assert len(opened) == 2
    assert disk.ids() == [1, 4]


def test_who_is_interrupted_leaves_the_lead_to_who_waits(disk: Disk, together: Together) -> None:
    publishes = [pending(disk, row(1)), pending(disk, row(2)), pending(disk, row(3))]
    assert isinstance(together.commit(*publishes, first=interrupt), KeyboardInterrupt)
    assert rows_of(publishes[1:]) == [1, 1]
    assert disk.ids() == [2, 3]


def test_those_for_whom_the_interrupted_one_committed_are_told_that_nobody_knows(disk: Disk, together: Together) -> None:
    publishes = [pending(disk, row(1)), pending(disk, row(2)), pending(disk, row(3))]
    together.commit(*publishes, then=interrupt)
    assert rows_of(publishes[:1]) == [1]
    for each in publishes[1:]:
        with pytest.raises(JournalError, match="STORE_FAILED.*interrupted"):
            each.result()
    again = pending(disk, row(4))
    together.group.commit([again])
    assert disk.ids() == [1, 4]


def test_who_waits_and_is_interrupted_is_waited_for_by_nobody(disk: Disk, together: Together) -> None:
    left, gone = pending(disk, row(3)), pending(disk, row(2))

    class Gone(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    def put(*given: Any, **named: Any) -> bool:
        with pytest.raises(KeyboardInterrupt):
            together.group._wait(group_commit._Caller([gone], turn=Gone()))
        return PUT(*given, **named)

    first = pending(disk, row(1))
    together.commit(first, left, first=put)
    assert rows_of([first, left]) == [1, 1]
    assert gone.outcome is None
    assert disk.ids() == [1, 3]


def test_definitions_that_the_log_names_are_told_to_all_of_the_group(disk: Disk, together: Together) -> None:
    def announce(*given: Any, **named: Any) -> bool:
        head = open_head(disk.store, disk.journal_id, "order")
        assert PUT(head, [], mark=Mark(writer="coordinator"), transactions={DEFINITIONS_TXN: RECORD + 1}, at_ms=0)
        return PUT(*given, **named)

    publishes = [pending(disk, row(number)) for number in (1, 2, 3)]
    together.commit(*publishes, then=announce)
    for each in publishes[1:]:
        with pytest.raises(DefinitionsChangedError):
            each.result()
    assert disk.ids() == [1]


def test_a_journal_that_was_made_anew_gets_no_entry_of_the_old_one(disk: Disk) -> None:
    """Its log will get to that version some day."""
    group = GroupCommit(disk.store, disk.journal_id, "order")
    for number in (1, 2, 3):
        group.commit([pending(disk, row(number))])
    shutil.rmtree(disk.store.path)
    create_journal(disk.store, disk.definitions)
    late = pending(disk, row(4))
    group.commit([late])
    with pytest.raises(JournalError, match="JOURNAL_MISMATCH"):
        late.result()
    assert not late.may_be_committed
    assert [path.name for path in disk.log_path(ORDER, 0).parent.glob("*.json")] == [f"{0:020d}.json"]


def test_a_log_that_was_put_back_is_opened_anew(disk: Disk) -> None:
    """As from a backup: the same journal's, and shorter."""
    group, log = GroupCommit(disk.store, disk.journal_id, "order"), Path(disk.store.messages_uri("order"))
    group.commit([pending(disk, row(1))])
    shutil.copytree(log, log.with_name("backup"))
    for number in (2, 3):
        group.commit([pending(disk, row(number))])
    shutil.rmtree(log)
    log.with_name("backup").rename(log)
    late = pending(disk, row(4))
    group.commit([late])
    assert (late.result().rows, late.result().version) == (1, 2)
    assert disk.ids() == [1, 4]


def test_many_threads_lose_and_double_nothing(disk: Disk) -> None:
    """R92: also beside another process."""
    group, other = GroupCommit(disk.store, disk.journal_id, "order"), GroupCommit(disk.store, disk.journal_id, "order")

    def publish(thread: int) -> list[int]:
        publishes = [pending(disk, row(100 * thread + number)) for number in range(10)]
        for each in publishes:
            (other if thread == 0 else group).commit([each])
        return rows_of(publishes)

    with ThreadPoolExecutor(9) as pool:
        assert list(pool.map(publish, range(9))) == [[1] * 10] * 9
    assert disk.ids() == sorted(100 * thread + number for thread in range(9) for number in range(10))
    assert disk.tail_rows() == 90
