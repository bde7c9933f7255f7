"""Receivers and coordinators as real processes: `Queue.receive` by hand, by a loop, asynchronously, by the batch (R131 to R140)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_queue import Journal, Queue
from spark_queue.core import commands, replies
from spark_queue.core.definitions.keys import valid_name
from spark_queue.errors import AccessError, CallerError, ConfigError, LeaseError
from spark_queue.journal import control_checkpoint
from spark_queue.journal.reader import open_control
from spark_queue.receiver.message import Message
from spark_queue.receiver.receiver import Receiver
from spark_queue.receiver.session import ReceiverSession, made_name
from tests.integration.coordinator_world import DEADLINE_S, QUEUE, TOPIC, MakeWorld, World, stopped
from tests.source_tree import ROOT, product_files
from tests.waiting import wait_until

RECEIVE = """
import sys
from spark_queue import Journal

with Journal(sys.argv[1]).queue(sys.argv[2]).receive(until_empty=True) as messages:
    for message in messages:
        message.value()
        message.acknowledge().result(30)
print(*sys.modules)
"""

#: What a receiver does without: delta-rs, expressions, definitions, parts of pyarrow and all of pandas, and what decides or looks.
NOT_FOR_RECEIVERS = (
    "asyncio deltalake duckdb pandas pyarrow.compute pyarrow.dataset pyspark re2 sqlglot spark_queue.core.deciding "
    "spark_queue.core.folds spark_queue.core.state spark_queue.expression spark_queue.journal.repair spark_queue.views"
).split()

#: The number in a body, in Spark SQL.
NUMBER = "CAST(get_json_object(value, '$.n') AS INT)"


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Return a journal of which a lease lasts two seconds."""
    return make_world(queue={"lease_period": "2s", "max_deliveries": 3, "dead_letter_queue": "FAILED"})


def queue_of(world: World) -> Queue:
    """Return the users' handle of the queue."""
    return Journal(world.store.path).queue(QUEUE)


def number(message: Message) -> int:
    """Return the number in a message's body."""
    return int(message.value()["n"])


def test_messages_come_one_by_one_and_leave_when_they_are_acknowledged(world: World) -> None:
    world.publish(25)
    queue = queue_of(world)
    with queue.receive(max_backlog=4, until_empty=True) as messages:
        found = []
        for message in messages:
            found.append((number(message), message.bookmark, message.delivery_count, message.topic))
            message.acknowledge().result(DEADLINE_S)
            assert messages.status.in_work == 0
    assert found == [(row, row, 1, "ORDERS") for row in range(25)]
    status = queue.status()
    assert (status.queue_depth, status.acknowledged, status.subscriptions) == (0, 25, 0)


def test_a_receiver_loads_nothing_that_others_need(world: World) -> None:
    """Also of a log with a checkpoint, which pyarrow's datasets would read with pandas."""
    ours = {name for name in NOT_FOR_RECEIVERS if name.startswith("spark_queue.")}
    assert ours <= {file.module for file in product_files()}
    world.publish(3)
    control_checkpoint.write(world.store, open_control(world.store).as_entry(), durable=False)
    command = [sys.executable, "-c", RECEIVE, world.store.path, QUEUE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=DEADLINE_S)
    assert queue_of(world).status().acknowledged == 3
    assert [name for name in done.stdout.split() if f"{name}.".startswith(tuple(f"{each}." for each in NOT_FOR_RECEIVERS))] == []


def test_a_message_knows_its_columns(make_world: MakeWorld) -> None:
    world = make_world()
    journal = Journal(world.store.path)
    journal.apply(
        {
            "message_types": {"order": {"columns": "id BIGINT NOT NULL, price DOUBLE, at TIMESTAMP", "topics": ["O"]}},
            "queues": {"Q": {"underlying_topic": "O"}},
        },
        remove=[QUEUE],
    )
    journal.publish([{"id": 7, "price": 1.5, "at": None}], topic="O")
    with journal.queue("Q").receive(until_empty=True) as messages:
        message = messages.get(DEADLINE_S)
        assert message is not None
        assert (message["id"], message["price"], message["sequence"]) == (7, 1.5, 1)
        assert message.value() == {"id": 7, "price": 1.5, "at": None}
        with pytest.raises(CallerError, match=r"UNKNOWN_COLUMN.*'prise' in the message\. Did you mean 'price'"):
            message["prise"]


def test_cancelled_messages_come_again_and_expired_ones_are_dead_letters(world: World) -> None:
    world.publish(3)
    queue = queue_of(world)
    with queue.receive() as messages:
        first, second, third = (messages.get(DEADLINE_S) for _ in range(3))
        assert first is not None
        assert second is not None
        assert third is not None
        first.cancel(retry_after=timedelta(milliseconds=300), error="not now").result(DEADLINE_S)
        second.expire(error="never").result(DEADLINE_S)
        third.cancel().result(DEADLINE_S)
        again = [messages.get(DEADLINE_S) for _ in range(2)]
        assert [(each.bookmark, each.delivery_count, each.cancel_count) for each in again if each] == [(2, 2, 1), (0, 2, 1)]
        for each in again:
            assert each is not None
            _ = each.acknowledge()
    (letter,) = queue.journal.view("dead_letters", queue=QUEUE).to_pylist()  # type: ignore[attr-defined]  # A handle of users' is a journal.
    assert (letter["bookmark"], letter["reason"], letter["error"]) == (1, "forced_expire", "never")


def test_leaving_with_an_exception_cancels_what_was_handed_out_and_gives_back_the_rest_uncounted(world: World) -> None:
    world.publish(5)
    queue = queue_of(world)
    with pytest.raises(ZeroDivisionError), queue.receive() as messages:  # noqa: PT012 - what raises is the block.
        messages.get(DEADLINE_S)
        wait_until(lambda: messages.status.waiting == 4)
        _ = 1 // 0
    found = queue.journal.view("messages", queue=QUEUE).to_pylist()  # type: ignore[attr-defined]  # As above.
    assert [(row["delivery_count"], row["cancel_count"]) for row in found] == [(1, 1), (0, 0), (0, 0), (0, 0), (0, 0)]
    returned = [record for record in world.records() if record.kind == "returned"]
    assert "ZeroDivisionError" in str(returned[0].body)


def test_an_interrupted_loop_gives_everything_back(world: World) -> None:
    """As an interrupted cell of a notebook does."""
    world.publish(3)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(2, signal.pthread_kill, (main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), queue_of(world).receive(subscription="cell") as messages:  # noqa: PT012 - as above.
        timer.start()
        for _ in messages:
            pass
    status = queue_of(world).status()
    assert (status.backlog, status.available) == (0, 3)


def test_the_newest_start_of_a_name_wins(world: World) -> None:
    """As a restarted kernel does: what the older one had comes to the newer one."""
    world.publish(2)
    with queue_of(world).receive(subscription="s") as older:
        assert older.get(DEADLINE_S) is not None
        with queue_of(world).receive(subscription="s") as newer:
            assert [each and each.bookmark for each in (newer.get(DEADLINE_S), newer.get(DEADLINE_S))] == [0, 1]
            with pytest.raises(LeaseError, match="SUBSCRIPTION_TAKEN"):  # noqa: PT012 - the next step raises, or one after it.
                while older.get(DEADLINE_S) is not None:
                    pass


def test_an_older_receiver_of_a_name_hands_out_nothing_more_and_what_it_has_done_counts(world: World) -> None:
    """R133: until somebody else has the message."""
    world.publish(4)
    with queue_of(world).receive(subscription="s") as older:
        first, second = older.get(DEADLINE_S), older.get(DEADLINE_S)
        assert first is not None
        assert second is not None
        with queue_of(world).receive(subscription="s", max_backlog=1) as newer:
            again = newer.get(DEADLINE_S)
            assert again is not None
            assert again.bookmark == first.bookmark
            wait_until(lambda: older.is_stopping)
            with pytest.raises(LeaseError, match="SUBSCRIPTION_TAKEN"):
                older.get(0)
            with pytest.raises(LeaseError, match=r"MESSAGE_LOST.*subscription 's' was leased it since"):
                first.acknowledge().result(DEADLINE_S)
            second.acknowledge().result(DEADLINE_S)
            assert queue_of(world).status().acknowledged == 1


def test_what_hangs_beyond_the_limit_of_its_lease_comes_to_another_and_is_no_dead_letter(make_world: MakeWorld) -> None:
    """R136."""
    limits = {"lease_period": "1s", "lease_renewal_limit": "2s", "max_deliveries": 2, "dead_letter_queue": "FAILED"}
    world = make_world(queue=limits)
    world.publish(1)
    lost = threading.Event()
    with queue_of(world).receive(on_lost=lambda _: lost.set()) as hanging:
        message = hanging.get(DEADLINE_S)
        assert message is not None
        assert lost.wait(DEADLINE_S)
        # Whatever the number of its limits is, it works on it still, and nobody else does.
        assert hanging.get(4) is None
        assert queue_of(world).status().dead_letters == 0
        with queue_of(world).receive() as other:
            taken = other.get(DEADLINE_S)
            assert taken is not None
            taken.acknowledge().result(DEADLINE_S)
        with pytest.raises(LeaseError, match="MESSAGE_LOST"):
            message.acknowledge().result(DEADLINE_S)
    assert queue_of(world).status().acknowledged == 1


def test_who_ends_beside_a_paused_queue_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.publish(1)
    queue_of(world).pause()
    with queue_of(world).receive(until_empty=True) as messages:
        assert messages.get(DEADLINE_S) is None
        assert f"paused by hand, so whatever waits there stays. `sparkq unpause {world.store.path} {QUEUE}`" in caplog.text
        assert str(messages.status.left.pause) in caplog.text
    queue_of(world).unpause()
    caplog.clear()
    with queue_of(world).receive(until_empty=True) as messages:
        for message in messages:
            message.acknowledge().result(DEADLINE_S)
    assert caplog.text == ""


def test_who_ends_tells_which_messages_wait_for_their_time(world: World) -> None:
    """R135: those that match, were there when it began, and are not due; others are not counted."""
    world.publish(4)
    queue = queue_of(world)
    with queue.receive(until_empty=True, filter=f"{NUMBER} < 3") as messages:
        for message in messages:
            if message.bookmark == 0:
                # It is not there now, and comes later than this one's turn.
                _ = message.acknowledge()
                world.publish(1)
            else:
                _ = message.cancel(retry_after=timedelta(minutes=5 + message.bookmark))
        left = messages.status.left
    (first, second) = (row["due_at"] for row in queue.journal.view("messages", queue=QUEUE).to_pylist() if row["due_at"])  # type: ignore[attr-defined]  # As above.
    assert (left.delayed, left.pause) == (2, None)
    assert left.due_at_ms == round(min(first, second).timestamp() * 1_000)


def test_a_stop_hands_out_nothing_more_while_a_poll_is_under_way(world: World) -> None:
    world.publish(4)
    with queue_of(world).receive(max_backlog=100) as messages:
        first = messages.get(DEADLINE_S)
        assert first is not None
        wait_until(lambda: messages.status.waiting == 3)
        messages.stop()
        assert messages.get(DEADLINE_S) is None
        first.acknowledge().result(DEADLINE_S)
    found = Journal(world.store.path).view("messages", queue=QUEUE).to_pylist()
    assert [(row["bookmark"], row["delivery_count"]) for row in found] == [(1, 0), (2, 0), (3, 0)]


def test_a_stop_before_the_answer_to_an_outcome_does_not_overtake_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R133: to expire counts only while the message is leased."""
    world.publish(2)
    gone, settle, leave = threading.Event(), ReceiverSession.settle, ReceiverSession.leave

    def settle_late(session: ReceiverSession, *about: Any, **named: Any) -> Any:
        gone.wait(DEADLINE_S)
        return settle(session, *about, **named)

    def leave_first(session: ReceiverSession, **about: Any) -> None:
        leave(session, **about)
        gone.set()

    monkeypatch.setattr(ReceiverSession, "settle", settle_late)
    monkeypatch.setattr(ReceiverSession, "leave", leave_first)
    with queue_of(world).receive() as messages:
        first, second = messages.get(DEADLINE_S), messages.get(DEADLINE_S)
        assert first is not None
        assert second is not None
        said = first.expire(error="never")
        messages.stop()
        said.result(DEADLINE_S)
        second.acknowledge().result(DEADLINE_S)
    status = queue_of(world).status()
    assert (status.dead_letters, status.acknowledged) == (1, 1)


def test_a_receiver_begins_anew_once_whose_subscription_has_ended(world: World) -> None:
    """R140: two of its threads meet that at the same time."""
    world.publish(1)
    lost: list[Message] = []
    with queue_of(world).receive(on_lost=lost.append) as messages:
        first = messages.get(DEADLINE_S)
        assert first is not None
        Journal(world.store.path).queue(QUEUE).unsubscribe(messages.subscription)
        wait_until(lambda: lost == [first])
        # It comes again, and goes on under the new lease.
        wait_until(lambda: not first.is_lost)
        first.acknowledge().result(DEADLINE_S)
        world.publish(1)
        later = messages.get(DEADLINE_S)
        assert later is not None
        assert later.bookmark == 1
        later.acknowledge().result(DEADLINE_S)


def receiving_threads() -> list[str]:
    """Return the names of the threads of receivers in this process."""
    return [
        each.name for each in threading.enumerate() if each.name in ("sparkqueue-poll", "sparkqueue-settle", "sparkqueue-renew")
    ]


def test_an_interrupt_while_the_block_is_left_ends_the_receiver_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish(1)
    messages = queue_of(world).receive()

    def interrupted(_receiver: object, _reason: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(messages), "_cancel_rest", interrupted)
    with pytest.raises(KeyboardInterrupt), messages:
        assert messages.get(DEADLINE_S) is not None
    wait_until(lambda: receiving_threads() == [])
    assert queue_of(world).status().available == 1


def test_a_receiver_that_nobody_waits_for_any_more_ends_once_it_has_begun(world: World) -> None:
    begun = threading.Event()

    class Slow(ReceiverSession):
        def attach(self) -> None:
            super().attach()
            begun.wait(DEADLINE_S)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), queue_of(world).receive():
                pass
        begun.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_queue.receiver.receiver.ReceiverSession", Slow)
        asyncio.run(give_up())
    wait_until(lambda: receiving_threads() == [])
    assert queue_of(world).status().subscriptions == 0


def test_a_wait_ends_a_receiver_and_a_timeout_does_not(world: World) -> None:
    world.publish(1)
    with queue_of(world).receive(wait="300ms") as messages:
        first = messages.get(DEADLINE_S)
        assert first is not None
        assert messages.get(0.05) is None
        # Not while something is in work, which may come back.
        assert messages.get(1) is None
        _ = first.acknowledge()
        assert [each.bookmark for each in messages] == []


def test_until_empty_waits_for_followers_of_a_key_and_delivers_each_message_once(make_world: MakeWorld) -> None:
    world = make_world(queue={"order_key": f"{NUMBER} % 2"})
    world.publish(6)
    with queue_of(world).receive(until_empty=True, max_backlog=2) as messages:
        found = []
        for message in messages:
            found.append(message.bookmark)
            world.publish(1)
            _ = message.cancel() if message.bookmark == 3 else message.acknowledge()
    # 5 goes back behind 3, and neither is delivered twice in one run.
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert queue_of(world).status().queue_depth == 7


@pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("max_backlog", [1, 4, 100])
def test_the_highest_priority_of_those_in_hand_comes_first(make_world: MakeWorld, max_backlog: int, semantics: str) -> None:
    """R66: a lease may hold messages of several files; those of equal priority come oldest first."""
    world = make_world(queue={"priority": f"{NUMBER} % 4", "semantics": semantics})
    for _ in range(3):
        world.publish(8)
    with queue_of(world).receive(max_backlog=max_backlog, until_empty=True) as messages:
        found = []
        for message in messages:
            found.append(number(message))
            _ = message.acknowledge()
    assert found == sorted(range(24), key=lambda row: (-(row % 4), row))
    world.publish(8)
    world.publish(8)
    with queue_of(world).receive(max_backlog=max_backlog, until_empty=True) as messages:
        rows = [row for batch in messages.batches(100, linger="200ms") if batch.settle() for row in batch.table.to_pylist()]
    assert [row["bookmark"] for row in rows] == sorted(range(24, 40), key=lambda row: (-(row % 4), row))
    assert [json.loads(row["value"])["n"] for row in rows] == [row["bookmark"] for row in rows]


def test_a_higher_priority_that_is_granted_later_overtakes_what_waits_in_hand(make_world: MakeWorld) -> None:
    """R66, also by another lease."""
    world = make_world(queue={"priority": NUMBER})
    world.publish(4)
    with queue_of(world).receive(max_backlog=8) as messages:
        wait_until(lambda: messages.status.waiting == 4)
        world.publish(1)
        wait_until(lambda: messages.status.waiting == 5)
        found = [messages.get(DEADLINE_S) for _ in range(5)]
        assert [number(each) for each in found if each] == [4, 3, 2, 1, 0]


def test_a_coordinator_that_is_killed_costs_nothing(world: World) -> None:
    world.publish(60)
    done: list[int] = []
    with queue_of(world).receive(max_backlog=8, until_empty=True) as messages:
        for turn, message in enumerate(messages):
            if turn in (10, 30):
                os.kill(world.ping().pid, signal.SIGKILL)
            message.acknowledge().result(DEADLINE_S)
            done.append(message.bookmark)
    assert sorted(set(done)) == list(range(60))
    assert len(world.claims()) == 3
    assert queue_of(world).status().queue_depth == 0


def test_messages_in_work_are_renewed_for_as_long_as_that_takes(world: World) -> None:
    world.publish(3)
    with queue_of(world).receive(until_empty=True) as messages:
        for message in messages:
            # Longer than a lease lasts.
            threading.Event().wait(3)
            assert not message.is_lost
            message.acknowledge().result(DEADLINE_S)
    assert queue_of(world).status().expired_leases == 0


#: Receives, is stopped for longer than a lease, and ends with 7 where it met what it should.
_STOPPED = """
import sys
from spark_queue import Journal
from spark_queue.errors import LeaseError

lost = []
with Journal(sys.argv[1]).queue("WORK").receive(on_lost=lost.append) as messages:
    first = messages.get(30)
    print("begun", flush=True)
    sys.stdin.readline()
    try:
        first.acknowledge().result(30)
    except LeaseError as refused:
        # Those behind it were in hand, and are not handed out.
        sys.exit(7 if refused.code == "MESSAGE_LOST" and messages.get(1) is None and lost else 1)
"""


def test_what_a_stopped_process_had_is_lost_and_it_is_told(world: World) -> None:
    """R133, R136: nothing is handed out after the end of its lease."""
    world.publish(3)
    command = [sys.executable, "-c", _STOPPED, world.store.path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "begun\n"
        with stopped(process.pid), queue_of(world).receive() as messages:
            for row in range(3):
                message = messages.get(DEADLINE_S)
                assert message is not None
                message.acknowledge().result(DEADLINE_S)
                assert message.bookmark == row
        process.stdin.write("go on\n")
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 7


def test_a_loop_that_settles_nothing_is_warned_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spark_queue.receiver.receiver._QUIET_S", 0.1)
    world.publish(2)
    with queue_of(world).receive(max_backlog=2, until_empty=True) as messages:
        assert [messages.get(DEADLINE_S) is None for _ in range(2)] == [False, False]
        wait_until(lambda: "Settle each message" in caplog.text)
        # It is told once; leases are renewed every two thirds of a second.
        assert messages.get(3) is None
    assert caplog.text.count("nothing was settled for 0 s, with 2 messages in work. Settle each message") == 1


def test_a_loop_that_settles_is_not_warned(world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("spark_queue.receiver.receiver._QUIET_S", 1.5)
    world.publish(4)
    with queue_of(world).receive(max_backlog=1, until_empty=True) as messages:
        for message in messages:
            threading.Event().wait(1)
            message.acknowledge().result(DEADLINE_S)
    assert "Settle each message" not in caplog.text


def test_a_receiver_that_had_nothing_for_long_is_not_warned_of_its_first_message(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spark_queue.receiver.receiver._QUIET_S", 1.5)
    with queue_of(world).receive(max_backlog=1) as messages:
        assert messages.get(3) is None
        world.publish(1)
        message = messages.get(DEADLINE_S)
        assert message is not None
        # A renewal comes every two thirds of a second.
        assert messages.get(1) is None
        message.acknowledge().result(DEADLINE_S)
    assert "Settle each message" not in caplog.text


def test_an_event_loop_receives_and_may_block_for_two_leases(world: World) -> None:
    world.publish(6)

    async def work() -> list[int]:
        found: list[int] = []
        async with queue_of(world).receive(max_backlog=3, until_empty=True) as messages:
            async for message in messages:
                if not found:
                    # A blocking call: threads of the receiver's own renew.
                    threading.Event().wait(5)
                assert not message.is_lost
                await message.acknowledge()
                found.append(message.bookmark)
        return found

    assert asyncio.run(work()) == list(range(6))
    assert queue_of(world).status().expired_leases == 0


def test_an_asynchronous_wait_can_be_cancelled_and_takes_no_message_with_it(world: World) -> None:
    async def work() -> int | None:
        async with queue_of(world).receive() as messages:
            waiting = asyncio.create_task(messages.get_async())
            await asyncio.sleep(0.3)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await messages.get_async(0.1) is None
            await asyncio.to_thread(world.publish, 1)
            message = await messages.get_async(DEADLINE_S)
            assert message is not None
            await message.acknowledge()
            return message.bookmark

    assert asyncio.run(work()) == 0


def test_a_wait_that_is_cancelled_as_a_message_comes_ends_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> list[int]:
        found: list[int] = []
        async with queue_of(world).receive() as messages:

            async def loop() -> None:
                while (message := await messages.get_async(DEADLINE_S)) is not None:
                    found.append(message.bookmark)

            waiting = asyncio.create_task(loop())
            await asyncio.sleep(0.3)
            running = asyncio.get_running_loop()
            called = running.call_soon_threadsafe

            def both(deed: Any, *given: Any, **named: Any) -> Any:
                def in_one_turn() -> None:
                    deed(*given)
                    if isinstance(getattr(deed, "__self__", None), asyncio.Event):
                        waiting.cancel()

                return called(in_one_turn, **named)

            monkeypatch.setattr(running, "call_soon_threadsafe", both)
            await asyncio.to_thread(world.publish, 1)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(waiting), DEADLINE_S)
            monkeypatch.undo()
        return found

    assert asyncio.run(work()) == []
    assert queue_of(world).status().queue_depth == 1


def test_batches_are_settled_as_a_whole_but_for_exceptions(world: World) -> None:
    world.publish(10)
    sizes, exceptions = [], pa.table({"bookmark": [3, 4], "outcome": ["cancel", "expire"], "error": ["later", "bad"]})
    with queue_of(world).receive(until_empty=True) as messages:
        for batch in messages.batches(6, linger="1s"):
            sizes.append(len(batch))
            assert batch.table.column("bookmark").to_pylist() == [each.bookmark for each in batch.messages]
            for each in batch.settle(exceptions if len(sizes) == 1 else None):
                each.result(DEADLINE_S)
    assert sizes == [6, 4]
    status = queue_of(world).status()
    assert (status.acknowledged, status.available, status.dead_letters) == (8, 1, 1)


def test_exceptions_of_a_batch_name_its_own_messages(world: World) -> None:
    world.publish(2)
    with queue_of(world).receive(until_empty=True) as messages:
        batch = next(messages.batches(10))
        with pytest.raises(CallerError, match=r"OUTCOME_INVALID.*bookmark 7 is not in the batch"):
            batch.settle(pa.table({"bookmark": [7], "outcome": ["cancel"]}))
        with pytest.raises(CallerError, match=r"column 'outcom' has no meaning"):
            batch.settle(pa.table({"bookmark": [0], "outcome": ["cancel"], "outcom": [1]}))
        assert len(batch.settle()) == 2


def test_a_barrier_comes_alone_and_is_received_when_it_is_acknowledged(make_world: MakeWorld) -> None:
    world = make_world(queue={"barrier": f"{NUMBER} = 2"})
    world.publish(5)
    found = []
    with queue_of(world).receive(subscription="s", until_empty=True) as messages:
        for message in messages:
            found.append((message.bookmark, message.is_barrier, messages.status.waiting if message.is_barrier else 0))
            if message.is_barrier:
                with pytest.raises(CallerError, match="OUTCOME_INVALID.*is a barrier"):
                    _ = message.expire()
            message.acknowledge().result(DEADLINE_S)
    assert found == [(0, False, 0), (1, False, 0), (2, True, 0), (3, False, 0), (4, False, 0)]


@pytest.mark.parametrize("before", ["at-least-once", "at-most-once"])
def test_a_receiver_hears_that_its_queue_has_other_semantics(make_world: MakeWorld, before: str) -> None:
    """R140: what came at most once is nobody else's, and is handed out after a stop; what came otherwise goes back."""
    world = make_world(queue={"semantics": before})
    after = "at-most-once" if before == "at-least-once" else "at-least-once"
    found = []
    with queue_of(world).receive(max_backlog=10) as messages:
        assert messages.get(0.5) is None
        world.definitions["queues"][QUEUE]["semantics"] = after
        Journal(world.store.path).apply(world.definitions)
        world.publish(10)
        wait_until(lambda: messages.status.waiting == 10)
        messages.stop()
        for message in messages:
            message.acknowledge().result(DEADLINE_S)
            found.append(message.bookmark)
    assert found == (list(range(10)) if after == "at-most-once" else [])
    assert queue_of(world).status().queue_depth == 10 - len(found)


def test_a_receiver_goes_on_with_messages_of_another_type_once_its_queue_is_reset(make_world: MakeWorld) -> None:
    world = make_world()
    types = world.definitions["message_types"]
    types |= {"one": {"columns": "n INT", "topics": ["ONE"]}, "other": {"columns": "n INT", "topics": ["OTHER"]}}
    world.definitions["queues"]["Q"] = {"underlying_topic": "ONE"}
    journal = Journal(world.store.path)
    journal.apply(world.definitions)
    with journal.queue("Q").receive(max_backlog=1) as messages:
        journal.publish([{"n": 1}], topic="ONE")
        message = messages.get(DEADLINE_S)
        assert message is not None
        message.acknowledge().result(DEADLINE_S)
        world.definitions["queues"]["Q"] = {"underlying_topic": "OTHER"}
        journal.apply(world.definitions, reset=["Q"])
        journal.publish([{"n": 2}], topic="OTHER")
        message = messages.get(DEADLINE_S)
        assert message is not None
        assert message["n"] == 2
        message.acknowledge().result(DEADLINE_S)


def test_a_batch_expires_no_barrier_and_settles_nothing_then(make_world: MakeWorld) -> None:
    world = make_world(queue={"barrier": f"{NUMBER} = 0"})
    world.publish(1)
    with queue_of(world).receive(subscription="s", until_empty=True) as messages:
        batch = next(messages.batches(10))
        assert batch.is_barrier
        with pytest.raises(CallerError, match="OUTCOME_INVALID.*is a barrier"):
            batch.settle(pa.table({"bookmark": [0], "outcome": ["expire"]}))
        [settled] = batch.settle()
        settled.result(DEADLINE_S)


def test_at_most_once_a_stop_hands_out_what_is_in_hand_already(make_world: MakeWorld) -> None:
    world = make_world(queue={"semantics": "at-most-once"})
    world.publish(5)
    found: list[int] = []
    with queue_of(world).receive(max_backlog=3) as messages:
        for message in messages:
            wait_until(lambda: messages.status.waiting + messages.status.in_work == 3 - len(found) or bool(found))
            messages.stop()
            found.append(message.bookmark)
            _ = message.acknowledge()
    assert found[:3] == [0, 1, 2]
    assert queue_of(world).status().queue_depth == 5 - len(found)


def test_at_most_once_a_stop_hands_out_what_is_under_way(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Granted messages have left the queue, also those whose poll is not answered yet."""
    world = make_world(queue={"semantics": "at-most-once"})
    world.publish(5)
    granted, stopped_it, ask = threading.Event(), threading.Event(), ReceiverSession.next

    def next_late(session: ReceiverSession, poll: commands.ReceiverPoll, **about: Any) -> Any:
        answer = ask(session, poll, **about)
        granted.set()
        stopped_it.wait(DEADLINE_S)
        return answer

    monkeypatch.setattr(ReceiverSession, "next", next_late)
    with queue_of(world).receive() as messages:
        granted.wait(DEADLINE_S)
        messages.stop()
        threading.Timer(0.3, stopped_it.set).start()
        assert [each.bookmark for each in messages] == list(range(5))


def test_at_most_once_a_stop_hands_out_what_comes_with_the_answer_to_outcomes(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(queue={"semantics": "at-most-once"})
    world.publish(2)
    granted, stopped_it, ask = threading.Event(), threading.Event(), ReceiverSession.settle

    def settle_late(session: ReceiverSession, outcomes: Any, **about: Any) -> Any:
        answer = ask(session, outcomes, **about)
        if answer.granted is not None:
            granted.set()
            stopped_it.wait(DEADLINE_S)
        return answer

    monkeypatch.setattr(ReceiverSession, "settle", settle_late)
    with queue_of(world).receive(max_backlog=1) as messages:
        first = messages.get(DEADLINE_S)
        assert first is not None
        _ = first.acknowledge()
        assert granted.wait(DEADLINE_S)
        messages.stop()
        threading.Timer(0.3, stopped_it.set).start()
        assert [each.bookmark for each in messages] == [1]


def test_where_messages_wait_a_receiver_makes_one_call_for_outcomes_and_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish(20)
    calls, ask = list[commands.ReceiverPoll](), ReceiverSession.next

    def count(session: ReceiverSession, poll: commands.ReceiverPoll, **about: Any) -> Any:
        calls.append(poll)
        return ask(session, poll, **about)

    monkeypatch.setattr(ReceiverSession, "next", count)
    with queue_of(world).receive(max_backlog=1) as messages:
        for _ in range(20):
            message = messages.get(DEADLINE_S)
            assert message is not None
            message.acknowledge().result(DEADLINE_S)
    # The first, and the one that waits for more.
    assert len(calls) <= 2


def test_only_what_matches_the_filter_comes(world: World) -> None:
    world.publish(6)
    with queue_of(world).receive(filter=f"{NUMBER} >= 4", until_empty=True) as messages:
        found = []
        for message in messages:
            _ = message.acknowledge()
            found.append(message.bookmark)
    assert found == [4, 5]


def test_a_copy_in_a_forked_child_is_dead(world: World) -> None:
    world.publish(1)
    with queue_of(world).receive() as messages:
        message = messages.get(DEADLINE_S)
        assert message is not None
        child = os.fork()
        if child == 0:
            codes = []
            for use in (message.acknowledge, messages.get, messages.__enter__):
                try:
                    use()
                except CallerError as refused:
                    codes.append(refused.code)
            os._exit(7 if codes == ["RECEIVER_FORKED"] * 3 else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        message.acknowledge().result(DEADLINE_S)


def test_a_receiver_is_used_in_its_block_and_begun_once(world: World) -> None:
    messages = queue_of(world).receive(until_empty=True)
    with pytest.raises(CallerError, match=r"RECEIVER_CLOSED.*was not begun.*Use it in a `with` statement"):
        messages.get()
    world.publish(1)
    with messages:
        message = messages.get(DEADLINE_S)
    assert message is not None
    for use in (messages.get, message.acknowledge):
        with pytest.raises(CallerError, match=r"RECEIVER_CLOSED.*has ended"):
            use()
    with pytest.raises(CallerError, match=r"RECEIVER_CLOSED.*was begun before"):
        messages.__enter__()


@pytest.mark.parametrize("arguments", [[], [""], ["-c"], ["-m"], ["/shop/.mail er-ü.py"], ["x" * 300]])
def test_a_made_name_is_allowed_whatever_the_program_is(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    assert valid_name(made_name())


def test_what_no_time_mends_is_refused_when_it_begins(world: World) -> None:
    journal = Journal(world.store.path)
    with pytest.raises(ConfigError, match="UNKNOWN_QUEUE"):
        journal.queue("WROK").receive().__enter__()
    with pytest.raises(ConfigError, match="EXPRESSION_INVALID"):
        queue_of(world).receive(filter="topic >").__enter__()
    with pytest.raises(ConfigError, match="NAME_INVALID"):
        queue_of(world).receive(subscription="").__enter__()
    with pytest.raises(ConfigError, match="BAD_VALUE.*max_backlog"):
        queue_of(world).receive(max_backlog=0)
    with pytest.raises(ConfigError, match="BAD_VALUE.*wait"):
        queue_of(world).receive(wait="soon")
    with pytest.raises(ConfigError, match="BAD_VALUE.*max_messages"):
        queue_of(world).receive().batches(0)


def access_denied() -> AccessError:
    return AccessError("ACCESS_DENIED", principal="ann", right="read", what=f"queue '{QUEUE}'")


def test_outcomes_that_are_refused_after_somebody_else_took_over_are_told_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are said again only where time may mend it."""
    world.publish(2)
    calls: list[int] = []

    def refuse(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise access_denied()

    with queue_of(world).receive(subscription="s") as older:
        message = older.get(DEADLINE_S)
        assert message is not None
        with queue_of(world).receive(subscription="s"):
            wait_until(lambda: older.is_stopping)
            monkeypatch.setattr(older._begun, "settle", refuse)
            with pytest.raises(AccessError, match="ACCESS_DENIED"):
                message.acknowledge().result(DEADLINE_S)
            with pytest.raises(LeaseError, match="SUBSCRIPTION_TAKEN"):
                older.get(0)
        assert len(calls) == 1


def test_messages_that_were_read_for_an_ended_start_are_not_handed_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R140: their lease went back to the queue with the start that had it."""
    world.publish(3)
    read = Receiver._messages

    def read_and_begin_anew(receiver: Receiver, granted: replies.Granted) -> Iterator[Message]:
        found = list(read(receiver, granted))
        if granted.lease == 1:
            with receiver._beginning:
                receiver._hand.lose_all()
                assert receiver._begin_anew() is None
        yield from found

    monkeypatch.setattr(Receiver, "_messages", read_and_begin_anew)
    with queue_of(world).receive(subscription="s") as messages:
        got = [messages.get(DEADLINE_S) for _ in range(3)]
        assert [(each.bookmark, each.lease) for each in got if each is not None] == [(0, 2), (1, 2), (2, 2)]


def raise_after_two(failure: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a receiver that has two messages in work fail at its next one."""
    get = Receiver.get

    def get_two(receiver: Receiver, timeout_s: float | None = None) -> Message | None:
        if receiver.status.in_work == 2:
            raise failure
        return get(receiver, timeout_s)

    monkeypatch.setattr(Receiver, "get", get_two)


def test_a_batch_that_a_trouble_keeps_from_being_full_is_handed_out_before_it_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that nobody has seen must not count as begun."""
    world.publish(2)
    raise_after_two(access_denied(), monkeypatch)
    with queue_of(world).receive() as messages:
        batches = messages.batches(10, linger="60s")
        assert [each.bookmark for each in next(batches).messages] == [0, 1]
        with pytest.raises(AccessError, match="ACCESS_DENIED"):
            next(batches)


def test_an_interrupt_of_a_batch_that_is_gathered_puts_its_messages_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish(2)
    with queue_of(world).receive() as messages:
        batches = messages.batches(10, linger="60s")
        raise_after_two(KeyboardInterrupt(), monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        assert (messages.status.waiting, messages.status.in_work) == (2, 0)


def test_a_body_that_is_null_is_none(world: World) -> None:
    Journal(world.store.path).publish([{"value": None}], topic=TOPIC)
    with queue_of(world).receive(until_empty=True) as messages:
        message = messages.get(DEADLINE_S)
        assert message is not None
        assert (message["value"], message.value()) == (None, None)


def test_a_number_of_any_length_is_read(world: World) -> None:
    """Python makes an int of 4,300 digits at most; what may be published may be read."""
    digits = "7" * 5_000
    Journal(world.store.path).publish([f'{{"n": {digits}, "m": 12}}'], topic=TOPIC)
    with queue_of(world).receive(until_empty=True) as messages:
        message = messages.get(DEADLINE_S)
        assert message is not None
        value = message.value()
    assert value == {"n": Decimal(digits), "m": 12}
    assert type(value["m"]) is int
