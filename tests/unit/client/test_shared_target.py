"""Publishes by a handle, which keeps nothing: all of a process share what is known of a journal, and commits (DESIGN 4)."""

from __future__ import annotations

import asyncio
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_queue import Journal
from spark_queue.client import shared_target
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.errors import CallerError, ConfigError, JournalError
from spark_queue.journal import publisher
from spark_queue.journal.commit import Published
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.group_commit import GroupCommit, PublishCall
from spark_queue.journal.reader import JournalReader
from tests.source_tree import ROOT
from tests.waiting import wait_until

LINES: dict[str, Any] = {"message_types": {"lines": {"columns": "amount INT", "topics": ["LINES", "NOTES"]}}}
PUT = DeltaHead.put

#: How long something that another thread does may take, in seconds.
DEADLINE_S = 60


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(str(tmp_path / "journal"), LINES)


def amounts(journal: Journal, message_type: str = "lines") -> list[Any]:
    found: list[Any] = DeltaTable(journal.store.messages_uri(message_type)).to_pyarrow_table().column("amount").to_pylist()
    return sorted(found)


def commits(journal: Journal) -> int:
    return int(DeltaTable(journal.store.messages_uri("lines")).version())


def line(amount: Any) -> list[dict[str, Any]]:
    return [{"amount": amount}]


def together(*awaited: Coroutine[Any, Any, Published]) -> list[Published | BaseException]:
    """Return what each of some publishes ended with that an event loop awaits at once."""

    async def gathered() -> list[Published | BaseException]:
        return list(await asyncio.gather(*awaited, return_exceptions=True))

    return asyncio.run(gathered())


def at_first_put(monkeypatch: pytest.MonkeyPatch, deed: Callable[[], object]) -> None:
    """Let something happen just before the next commit."""

    def put(*given: Any, **named: Any) -> bool:
        monkeypatch.setattr(DeltaHead, "put", PUT)
        deed()
        return PUT(*given, **named)

    monkeypatch.setattr(DeltaHead, "put", put)


def test_a_second_publish_opens_nothing(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.publish(line(1), topic="LINES")
    monkeypatch.setattr(JournalReader, "numbered_definitions", lambda _: pytest.fail("definitions are read again"))
    monkeypatch.setattr(publisher, "open_messages", lambda *_: pytest.fail("the log is opened again"))
    assert journal.publish(line(2), topic="NOTES") == Published(rows=1)
    assert Journal(journal.path).publish(line(3), topic="LINES", publisher="p", first_sequence=1).persisted_sequence == 1
    assert together(journal.publish_async(line(4), topic="LINES")) == [Published(rows=1)]
    assert amounts(journal) == [1, 2, 3, 4]


def test_a_handle_that_has_published_is_the_value_that_it_was(journal: Journal) -> None:
    before = pickle.dumps(journal), hash(journal)
    journal.publish(line(1), topic="LINES")
    assert (pickle.dumps(journal), hash(journal)) == before
    assert pickle.loads(before[0]) == journal == Journal(journal.path)
    assert pickle.loads(before[0]).publish(line(2), topic="LINES").rows == 1


def test_a_handle_opens_nothing_by_itself(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "nothing"))
    with pytest.raises(JournalError, match="NOT_A_JOURNAL"):
        journal.publish(line(1), topic="LINES")
    Journal.create(journal.path, LINES)
    assert journal.publish(line(1), topic="LINES").rows == 1


def test_a_process_keeps_what_it_knows_of_some_journals_only(journal: Journal, tmp_path: Path) -> None:
    for number in range(shared_target._KEPT_MOST + 1):
        place = tmp_path / f"copy {number}"
        shutil.copytree(journal.path, place)
        Journal(str(place)).publish(line(number), topic="LINES")
    assert shared_target.shared_target.cache_info().currsize == shared_target._KEPT_MOST
    assert Journal(str(tmp_path / "copy 0")).publish(line(9), topic="LINES").rows == 1


@pytest.mark.parametrize("way", ["publish", "publish_async"])
def test_a_journal_that_was_deleted_and_made_anew_is_the_one_that_is_published_to(journal: Journal, way: str) -> None:
    def publish(amount: int, topic: str) -> Any:
        made = getattr(journal, way)(line(amount), topic=topic)
        return asyncio.run(made) if way == "publish_async" else made

    for number in (1, 2, 3):
        publish(number, "LINES")
    shutil.rmtree(journal.path)
    with pytest.raises(JournalError, match="NOT_A_JOURNAL"):
        publish(4, "LINES")
    bills = {"message_types": {**LINES["message_types"], "bills": {"columns": "amount BIGINT", "topics": ["BILLS"]}}}
    Journal.create(journal.path, bills)
    assert publish(5, "LINES").rows == 1
    shutil.rmtree(journal.path)
    Journal.create(journal.path, bills)
    assert publish(6, "BILLS").rows == 1, "a topic that the old one did not have"
    assert publish(7, "LINES").rows == 1
    assert (amounts(journal), amounts(journal, "bills")) == ([7], [6])


def test_threads_lose_and_double_nothing(journal: Journal) -> None:
    def publish(thread: int) -> list[Published]:
        return [Journal(journal.path).publish(line(100 * thread + number), topic="LINES") for number in range(10)]

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(publish, range(8)))
    assert told == [[Published(rows=1)] * 10] * 8
    assert amounts(journal) == sorted(100 * thread + number for thread in range(8) for number in range(10))


def test_what_is_awaited_at_once_shares_commits(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait while one is committed, a handful of commits has all of them."""
    known = shared_target.shared_target(journal.store, journal.endpoint)
    awaited = 300

    def all_wait() -> None:
        group = known._open()[0]._group("lines")
        wait_until(lambda: sum(len(each.publishes) for each in group._callers) + len(known._arrived) == awaited)

    at_first_put(monkeypatch, all_wait)
    begun: list[Callable[[], None]] = []
    submit = known._threads.submit

    def submitted(deed: Callable[[], None]) -> Future[None]:
        begun.append(deed)
        return submit(deed)

    monkeypatch.setattr(known._threads, "submit", submitted)
    told = together(*(journal.publish_async(line(number), topic="LINES") for number in range(awaited)))
    assert told == [Published(rows=1)] * awaited
    assert amounts(journal) == list(range(awaited))
    assert commits(journal) <= 3
    assert len(begun) < awaited / 2, "who comes while others wait for a thread needs none"


def test_the_event_loop_goes_on_meanwhile(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()

    async def publish(*given: Any) -> Published:
        asyncio.get_running_loop().call_later(0.01, goes_on.set)
        return await journal.publish_async(*given, topic="LINES")

    for data in (line(1), pa.table({"amount": [2]}), iter(line(3))):
        goes_on.clear()
        at_first_put(monkeypatch, lambda: goes_on.wait(DEADLINE_S) or pytest.fail("the loop waits"))
        assert asyncio.run(publish(data)).rows == 1
    assert amounts(journal) == [1, 2, 3]


def test_each_awaiting_task_has_its_own_refusal(journal: Journal) -> None:
    told = together(
        journal.publish_async(line(1), topic="LINES"),
        journal.publish_async(line("x"), topic="LINES"),
        journal.publish_async(line(2), topic="NOWHERE"),
        journal.publish_async([{"amount": 3, "topic": "NOTES"}]),
        journal.publish_async(line(4), topic="LINES", publisher="p", first_sequence=1),
        journal.publish_async(line(5), topic="LINES", replicated_to=1),
    )
    assert [each.code if isinstance(each, CallerError | ConfigError) else each for each in told] == [
        Published(rows=1), "COLUMN_TYPE_MISMATCH", "UNKNOWN_TOPIC", Published(rows=1), Published(rows=1, persisted_sequence=1),
        "BAD_VALUE",
    ]  # fmt: skip
    assert amounts(journal) == [1, 3, 4]


def test_a_task_that_is_cancelled_takes_no_other_along(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancelled() -> list[Any]:
        begun, goes_on = threading.Event(), threading.Event()

        def pause() -> None:
            begun.set()
            goes_on.wait(DEADLINE_S)

        at_first_put(monkeypatch, pause)
        first = asyncio.create_task(journal.publish_async(line(1), topic="LINES"))
        await asyncio.to_thread(begun.wait, DEADLINE_S)
        second = asyncio.create_task(journal.publish_async(line(2), topic="LINES"))
        first.cancel()
        goes_on.set()
        return list(await asyncio.gather(first, second, return_exceptions=True))

    ended, other = asyncio.run(cancelled())
    assert isinstance(ended, asyncio.CancelledError)
    assert other == Published(rows=1)
    assert amounts(journal) == [1, 2], "it was under way"


def test_who_waits_no_longer_keeps_no_other_from_being_told(journal: Journal) -> None:
    """Of calls that were committed together one task was cancelled meanwhile, and the loop of another is closed."""
    known = shared_target.shared_target(journal.store, journal.endpoint)
    closed = asyncio.new_event_loop()

    async def committed() -> Published:
        loop = asyncio.get_running_loop()
        call = PublishCall(data=line(1), topic="LINES")
        gone, cancelled, waits = (shared_target._Awaited(call, each, each.create_future()) for each in (closed, loop, loop))
        cancelled.future.cancel()
        closed.close()
        known._arrived = [gone, cancelled, waits]
        await asyncio.to_thread(known._commit_arrived)
        return await asyncio.wait_for(waits.future, DEADLINE_S)

    assert asyncio.run(committed()) == Published(rows=1)
    assert amounts(journal) == [1, 1, 1]


def test_the_coordinator_is_told_beside_of_what_was_published(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer waits for a commit of its own; what is published until then needs one more call."""
    told, goes_on = list[tuple[str, int]](), threading.Event()

    def nudge(client: Any, message_type: str, version: int) -> bool:
        # Others of this process may be late.
        if client._store == journal.store:
            told.append((message_type, version))
            goes_on.wait(DEADLINE_S)
        return True

    monkeypatch.setattr(CoordinatorClient, "nudge", nudge)
    for number in range(5):
        journal.publish(line(number), topic="LINES")
    wait_until(lambda: len(told) == 1)
    first = journal.publish(line(5), topic="LINES").version
    last = journal.publish(line(6), topic="LINES").version
    assert first is not None
    goes_on.set()
    wait_until(lambda: told[1:] == [("lines", last)])
    assert told[0][1] < first


ENDS = """
import asyncio, sys
from spark_queue import Journal
journal = Journal(sys.argv[1])
journal.publish([{"amount": 1}], topic="LINES")
async def main():
    await asyncio.gather(*(journal.publish_async([{"amount": n}], topic="LINES") for n in range(10)))
    with journal.publisher("p") as publisher:
        await publisher.publish_async([{"amount": 10}], topic="LINES")
asyncio.run(main())
"""


def test_a_program_that_has_published_ends(journal: Journal) -> None:
    command = [sys.executable, "-c", ENDS, journal.path]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=DEADLINE_S)
    assert done.stderr == ""
    assert len(amounts(journal)) == 12


def test_an_open_publisher_numbers_what_tasks_publish_in_the_order_of_the_calls(journal: Journal) -> None:
    """R95."""

    async def publish() -> list[Published]:
        with journal.publisher("p") as named:
            calls = [named.publish_async([*line(2 * number), *line(2 * number + 1)], topic="LINES") for number in range(10)]
            told = await asyncio.gather(*(asyncio.create_task(call) for call in calls))
            assert named.last_sequence == 20
            again = await named.publish_async(line(0), topic="LINES", first_sequence=1)
            return [*told, again]

    told = asyncio.run(publish())
    assert [each.persisted_sequence for each in told[:-1]] == list(range(2, 22, 2))
    assert told[-1].duplicates == 1
    stored = DeltaTable(journal.store.messages_uri("lines")).to_pyarrow_table().to_pylist()
    assert {each["sequence"]: each["amount"] for each in stored} == {number + 1: number for number in range(20)}


def test_what_was_committed_is_told_whatever_becomes_of_the_calls_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that is told of a failure publishes its rows again."""
    types = {"others": {"columns": "amount INT", "topics": ["OTHERS"]}, **LINES["message_types"]}
    journal = Journal.create(str(tmp_path / "two"), {"message_types": types})
    journal.publish(line(1), topic="LINES")
    journal.publish(line(1), topic="OTHERS")

    def refuse(*_: Any) -> None:
        raise JournalError("STORE_FAILED", path=journal.path, doing="looking", reason="it was away.", next_step="Try again.")

    stands = GroupCommit._standing_head
    monkeypatch.setattr(GroupCommit, "_standing_head", lambda group: refuse() if group._message_type == "others" else stands(group))
    monkeypatch.setattr(shared_target, "open_for_publishing", refuse)
    done, failed = together(journal.publish_async(line(2), topic="LINES"), journal.publish_async(line(2), topic="OTHERS"))
    assert isinstance(done, Published)
    assert isinstance(failed, JournalError)
    assert (amounts(journal), amounts(journal, "others")) == ([1, 2], [1])


def test_a_thread_that_cannot_be_started_hangs_no_later_publish(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(ThreadPoolExecutor, "submit", refuse)
        [failed] = together(journal.publish_async(line(1), topic="LINES"))
    assert "can't start new thread" in str(failed)
    assert together(asyncio.wait_for(journal.publish_async(line(2), topic="LINES"), DEADLINE_S)) == [Published(rows=1)]
    assert amounts(journal) == [2]


def test_a_publisher_that_is_opened_again_publishes_for_tasks_too(journal: Journal) -> None:
    named = journal.publisher("p")
    for number in range(2):
        with named:
            [done] = together(named.publish_async(line(number), topic="LINES"))
            assert isinstance(done, Published)
    [refusal] = together(named.publish_async(line(9), topic="LINES"))
    assert "[UNSUPPORTED_WRITE]" in str(refusal)
    assert "'p' is not open" in str(refusal)
    assert amounts(journal) == [0, 1]


class Exhausted(Mapping[str, Any]):
    """A row that is computed when it is read, from what has ended."""

    def __getitem__(self, name: str) -> Any:
        return next(iter(()))

    def __iter__(self) -> Iterator[str]:
        return iter(["amount"])

    def __len__(self) -> int:
        return 1

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]


def test_rows_that_raise_what_no_future_takes_leave_others_their_outcomes(journal: Journal) -> None:
    journal.publish(line(0), topic="LINES")
    publishes = [journal.publish_async(rows, topic="LINES") for rows in (line(1), [Exhausted()], line(2))]
    one, refused, other = together(*(asyncio.wait_for(each, DEADLINE_S) for each in publishes))
    assert (type(one), type(other)) == (Published, Published)
    assert isinstance(refused, Exception)
    assert "StopIteration" in f"{type(refused).__name__}: {refused}"
    assert amounts(journal) == [0, 1, 2]
