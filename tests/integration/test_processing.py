"""`Queue.process` and ``sparkq work``: a function for each message, in threads or on an event loop (R131, R138, DESIGN 15.12)."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spark_queue import Expire, Journal, Message, Queue, Retry
from spark_queue.errors import CallerError, ConfigError
from tests.integration.coordinator_world import DEADLINE_S, QUEUE, MakeWorld, World
from tests.source_tree import ROOT
from tests.waiting import wait_until


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Return a journal of which a lease lasts two seconds."""
    return make_world(queue={"lease_period": "2s", "max_deliveries": 4, "max_cancels": 2, "dead_letter_queue": "FAILED"})


def queue_of(world: World) -> Queue:
    """Return the users' handle of the queue."""
    return Journal(world.store.path).queue(QUEUE)


def letters(world: World) -> list[tuple[int, str, str | None]]:
    """Return the dead letters: bookmark, reason and error."""
    found = Journal(world.store.path).view("dead_letters", queue=QUEUE).to_pylist()
    return [(row["bookmark"], row["reason"], row["error"]) for row in found]


def test_what_returns_is_acknowledged_and_exceptions_say_the_rest(world: World) -> None:
    world.publish(6)
    tries: Counter[int] = Counter()

    def handle(message: Message) -> None:
        tries[message.bookmark] += 1
        if message.bookmark == 1 and tries[1] == 1:
            raise Retry("not now")
        if message.bookmark == 2:
            raise Expire("never")
        if message.bookmark == 3:
            # Its own word counts.
            _ = message.expire(error="by itself")

    done = queue_of(world).process(handle, wait="500ms")
    assert (done.acknowledged, done.cancelled, done.expired, done.lost) == (4, 1, 1, 0)
    assert letters(world) == [(2, "forced_expire", "never"), (3, "forced_expire", "by itself")]
    assert tries == {0: 1, 1: 2, 2: 1, 3: 1, 4: 1, 5: 1}
    assert queue_of(world).status().queue_depth == 0


def test_a_message_on_which_the_function_fails_is_a_dead_letter_in_the_end_and_others_go_on(world: World) -> None:
    journal = Journal(world.store.path)
    world.definitions["queues"][QUEUE] |= {"retry_backoff": "50ms"}
    journal.apply(world.definitions)
    world.publish(8)

    def handle(message: Message) -> None:
        if message.bookmark == 3:
            raise ValueError("bad")

    done = journal.queue(QUEUE).process(handle, wait="1s", concurrency=2)
    assert done.acknowledged == 7
    assert letters(world) == [(3, "max_cancels", "ValueError: bad")]


def test_a_function_that_fails_on_everything_pauses_its_subscription_and_makes_no_dead_letter(world: World) -> None:
    """15.12."""
    journal = Journal(world.store.path)
    # It is tried again as soon as that says.
    world.definitions["queues"][QUEUE] |= {"retry_backoff": "100ms"}
    journal.apply(world.definitions)
    world.publish(12)
    broken = threading.Event()
    broken.set()

    def handle(_message: Message) -> None:
        if broken.is_set():
            raise ConnectionError("down")

    alarms: list[str | None] = []

    def mend() -> None:
        wait_until(lambda: queue_of(world).status().alarm is not None)
        alarms.append(queue_of(world).status().alarm)
        broken.clear()

    mending = threading.Thread(target=mend)
    mending.start()
    done = queue_of(world).process(handle, subscription="mail", wait="4s")
    mending.join(DEADLINE_S)
    assert (done.acknowledged, done.expired) == (12, 0)
    assert "mail" in str(alarms[-1])
    assert "ConnectionError: down" in str(alarms[-1])
    assert letters(world) == []
    assert queue_of(world).status().alarm is None


def test_a_run_that_ends_reports_what_failed_and_was_not_done_since(world: World) -> None:
    journal = Journal(world.store.path)
    world.definitions["queues"][QUEUE] |= {"retry_backoff": "100ms"}
    journal.apply(world.definitions)
    world.publish(5)
    tries: Counter[int] = Counter()

    def handle(message: Message) -> None:
        tries[message.bookmark] += 1
        if message.bookmark == 3 or (message.bookmark == 1 and tries[1] == 1):
            raise ValueError("bad")
        if message.bookmark == 4:
            raise Expire("never")

    done = journal.queue(QUEUE).process(handle, wait="2s")
    assert (done.acknowledged, done.expired, done.failed, done.first_failure) == (4 - 1, 1, 1, "3 (ValueError: bad)")
    assert (done.exit_code, done.findings) == (3, ["Failed: 1 message, first 3 (ValueError: bad)."])
    world.publish(1)
    assert journal.queue(QUEUE).process(lambda _message: None, until_empty=True).exit_code == 0


@pytest.mark.parametrize("named", [True, False])
def test_a_nightly_worker_whose_messages_fail_does_not_end_well(world: World, tmp_path: Path, *, named: bool) -> None:
    """15.12: the third raises an alarm, which ends with a subscription that was made for one run: nobody else tells of it."""
    world.definitions["queues"][QUEUE] |= {"retry_backoff": "1h"}
    Journal(world.store.path).apply(world.definitions)
    world.publish(2)
    arguments = ["--until-empty", *(["--subscription", "nightly"] if named else [])]
    with worker(world, tmp_path, *arguments, FAILS="1") as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3
    told = output.decode().splitlines()
    assert told[0] == "0 acknowledged, 2 cancelled, 0 expired, 0 lost"
    assert told[1].startswith("Delayed: 2 messages in the queue, the first until 20")
    assert told[2:] == ["Failed: 2 messages, first 0 (ValueError: cannot)."]
    world.publish(8)
    with worker(world, tmp_path, *arguments, FAILS="1") as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3
    pause = output.decode().splitlines()[-1]
    assert pause.startswith(f"Queue '{QUEUE}' is paused by an alarm, so whatever waits there stays: subscription '")
    assert "ValueError: cannot. A message is tried next at 20" in pause
    assert pause.endswith(f"; `sparkq unpause {world.store.path} {QUEUE}` ends the pause before.")
    assert Journal(world.store.path).queue(QUEUE).check().exit_code == (3 if named else 0)
    if named:
        with worker(world, tmp_path, *arguments) as process:
            output, _ = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, output.decode().splitlines()[-1]) == (3, pause)


@pytest.mark.parametrize("named", [True, False])
def test_bad_messages_at_the_head_keep_no_good_one_from_its_turn(world: World, *, named: bool) -> None:
    """15.12: as many as are in work at once raise an alarm, and the run tries another one before it ends with that."""
    world.definitions["queues"][QUEUE] |= {"retry_backoff": "1h"}
    journal = Journal(world.store.path)
    journal.apply(world.definitions)
    world.publish(24)

    def handle(message: Message) -> None:
        if message.bookmark < 4:
            raise ValueError("bad")

    subscription = "nightly" if named else None
    done = journal.queue(QUEUE).process(handle, concurrency=2, until_empty=True, subscription=subscription)
    assert (done.acknowledged, done.failed, done.pause, done.exit_code) == (20, 4, None, 3)
    assert done.delayed == 4


def test_so_many_messages_are_in_work_at_once_as_asked(world: World) -> None:
    world.publish(12)
    running, most, lock = 0, 0, threading.Lock()

    def handle(_message: Message) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.2)
        with lock:
            running -= 1

    done = queue_of(world).process(handle, concurrency=4, until_empty=True)
    assert (done.acknowledged, most) == (12, 4)


def test_a_coroutine_function_runs_on_one_event_loop(world: World) -> None:
    world.publish(12)
    loops, running, most = set[int](), 0, 0

    async def handle(message: Message) -> None:
        nonlocal running, most
        loops.add(id(asyncio.get_running_loop()))
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0.2)
        running -= 1
        if message.bookmark == 5:
            raise Expire("no")

    done = queue_of(world).process(handle, concurrency=4, until_empty=True)
    assert (done.acknowledged, done.expired, len(loops), most) == (11, 1, 1, 4)


@pytest.mark.parametrize("kind", ["function", "object"])
def test_a_coroutine_function_is_refused_in_an_event_loop_before_anything_is_received(world: World, kind: str) -> None:
    """As in a cell of a notebook. The next step that the refusal names is possible."""
    world.publish(3)
    queue = queue_of(world)

    class Handler:
        async def __call__(self, message: Message) -> None:
            await asyncio.sleep(0)

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)

    fn = handle if kind == "function" else Handler()

    async def cell() -> None:
        with pytest.raises(CallerError, match=r"EVENT_LOOP_RUNNING.*await asyncio\.to_thread\(queue\.process, fn") as refused:
            queue.process(fn, until_empty=True)
        assert refused.value.facts["queue"] == QUEUE
        assert not (Path(world.store.path) / "coordinator.json").exists(), "no coordinator was started"
        done = await asyncio.to_thread(queue.process, fn, until_empty=True)
        assert done.acknowledged == 3
        # Other functions need no loop of their own.
        assert queue.process(print, until_empty=True).exit_code == 0

    asyncio.run(cell())


def test_the_messages_of_a_key_are_handled_one_after_the_other(make_world: MakeWorld) -> None:
    """R139."""
    world = make_world(queue={"order_key": "CAST(get_json_object(value, '$.n') AS INT) % 3"})
    world.publish(30)
    order: dict[int, list[int]] = {0: [], 1: [], 2: []}
    running: set[int] = set()

    def handle(message: Message) -> None:
        key = message.bookmark % 3
        assert key not in running
        running.add(key)
        threading.Event().wait(0.01)
        order[key].append(message.bookmark)
        running.remove(key)

    done = queue_of(world).process(handle, concurrency=4, max_backlog=20, until_empty=True)
    assert done.acknowledged == 30
    assert all(rows == sorted(rows) for rows in order.values())


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
def test_work_on_a_message_is_a_span_that_is_linked_to_its_send(world: World, spans: InMemorySpanExporter, kind: str) -> None:
    journal = Journal(world.store.path)
    world.definitions["message_types"]["traced"] = {"columns": "item STRING, traceparent STRING", "topics": ["TRACED"]}
    world.definitions["queues"]["Q"] = {"underlying_topic": "TRACED"}
    journal.apply(world.definitions)
    journal.publish([{"item": "kettle"}], topic="TRACED")

    def handle(message: Message) -> None:
        assert message.value()["item"] == "kettle"

    async def handle_async(message: Message) -> None:
        handle(message)

    chosen = handle if kind == "function" else handle_async
    assert journal.queue("Q").process(chosen, subscription="s", until_empty=True).acknowledged == 1
    made = {span.name: span for span in spans.get_finished_spans()}
    assert set(made) == {"send TRACED", "receive Q", "process Q", "settle Q"}
    [link] = made["process Q"].links
    assert link.context.span_id == made["send TRACED"].context.span_id
    told = dict(made["process Q"].attributes or {})
    assert (told["messaging.message.id"], told["messaging.destination.subscription.name"]) == ("0", "s")
    assert dict(made["receive Q"].attributes or {})["messaging.batch.message_count"] == 1


def test_a_barrier_is_skipped_or_handled(make_world: MakeWorld) -> None:
    world = make_world(queue={"barrier": "CAST(get_json_object(value, '$.n') AS INT) = 2"})
    world.publish(4)
    met: list[tuple[str, int]] = []
    done = queue_of(world).process(
        lambda message: met.append(("message", message.bookmark)),
        on_barrier=lambda message: met.append(("barrier", message.bookmark)),
        until_empty=True,
    )
    assert met == [("message", 0), ("message", 1), ("barrier", 2), ("message", 3)]
    assert done.acknowledged == 4


def test_an_error_that_is_no_message_s_ends_it(world: World) -> None:
    world.publish(2)

    def handle(_message: Message) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        queue_of(world).process(handle)
    assert queue_of(world).status().available == 2


def test_whatever_an_exception_is_it_is_the_outcome_of_its_message(world: World, caplog: pytest.LogCaptureFixture) -> None:
    # A captured log with a lone surrogate could not be sent from pytest's worker.
    caplog.set_level(logging.CRITICAL, logger="spark_queue")

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise ValueError

    raised = [
        OSError("no file \udcff"), Unspeakable(), ValueError("x" * 1_000_000), Retry(after="soon"), Retry(5),  # type: ignore[arg-type]  # What users may do.
        Retry("y" * 70_000_000), Expire("\udcff"),
    ]  # fmt: skip
    # Of several that fail in a row the function is to blame.
    world.publish(2 * len(raised))

    def handle(message: Message) -> None:
        if message.bookmark % 2:
            raise raised[message.bookmark // 2]

    done = queue_of(world).process(handle, until_empty=True)
    assert (done.acknowledged, done.cancelled, done.expired) == (len(raised), len(raised), 0)


async def _work(_message: Message) -> None:
    await asyncio.sleep(0)


def hands_on(message: Message) -> Coroutine[None, None, None]:
    """Return work that nobody has done, as a decorator may that knows nothing of coroutines."""
    return _work(message)


@pytest.mark.parametrize("takes", ["message", "barrier"])
def test_a_function_whose_work_nobody_awaits_is_refused(make_world: MakeWorld, takes: str) -> None:
    world = make_world(queue={"barrier": "CAST(get_json_object(value, '$.n') AS INT) = 0"} if takes == "barrier" else {})
    world.publish(1)
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*'fn' in process is <coroutine object _work.*`async def`"):
        queue_of(world).process(hands_on, on_barrier=_work, until_empty=True)
    assert queue_of(world).status().acknowledged == 0


def test_what_a_coroutine_function_waited_for_may_be_cancelled(world: World) -> None:
    world.publish(4)

    async def handle(message: Message) -> None:
        if message.bookmark == 1:
            waits = asyncio.get_running_loop().create_future()
            waits.cancel()
            await waits

    done = queue_of(world).process(handle, until_empty=True)
    assert (done.acknowledged, done.cancelled) == (3, 1)


def test_a_barrier_that_nobody_can_expire_comes_again(make_world: MakeWorld) -> None:
    world = make_world(queue={"barrier": "CAST(get_json_object(value, '$.n') AS INT) = 0"})
    world.publish(2)
    tries: list[int] = []

    def refuse(message: Message) -> None:
        tries.append(message.bookmark)
        if len(tries) == 1:
            raise Expire("no")

    done = queue_of(world).process(lambda _: None, on_barrier=refuse, wait="500ms")
    assert (tries, done.acknowledged, done.cancelled) == ([0, 0], 2, 1)


def test_signals_are_handled_in_the_main_thread_only(world: World) -> None:
    with ThreadPoolExecutor(1) as threads, pytest.raises(ConfigError, match=r"BAD_VALUE.*'signals'.*the main one"):
        threads.submit(queue_of(world).process, print, signals=True).result(DEADLINE_S)


def test_a_child_of_the_function_ends_by_a_signal_as_ever(world: World) -> None:
    world.publish(1)
    ended: list[int | None] = []
    forks = multiprocessing.get_context("fork")

    def handle(_message: Message) -> None:
        # A signal that comes while the child is still being forked counts, too.
        for wait_s in (0.0, 0.0, 0.0, 0.05, 0.05):
            child = forks.Process(target=threading.Event().wait)
            child.start()
            child.join(wait_s)
            child.terminate()
            child.join(DEADLINE_S / 2)
            ended.append(child.exitcode)
            child.kill()

    done = queue_of(world).process(handle, until_empty=True, signals=True)
    assert (done.acknowledged, ended) == (1, [-signal.SIGTERM] * 5)


_WORKER = """
import os, threading

def handle(message):
    with open(os.environ["DONE"], "a") as done:
        done.write(f"{message.bookmark}\\n")
    if message.bookmark == int(os.environ.get("KILLS", "-1")):
        # What others' outcomes need to become durable: an outcome that dies on its way is begun again, as R138 says.
        threading.Event().wait(2)
        os.kill(os.getpid(), 9)
    threading.Event().wait(float(os.environ.get("TAKES", "0")))
    if "FAILS" in os.environ:
        raise ValueError("cannot")
"""


def worker(world: World, place: Path, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    """Start `sparkq work` on a module in a directory."""
    (place / "mailer.py").write_text(_WORKER)
    command = [sys.executable, "-m", "spark_queue.cli", "work", world.store.path, QUEUE, "mailer:handle", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DONE": str(place / "done"), **variables}
    return subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def handled(place: Path) -> list[int]:
    """Return what was handled, in order."""
    return [int(line) for line in (place / "done").read_text().split()] if (place / "done").exists() else []


def test_a_message_that_kills_its_process_takes_no_other_with_it(world: World, tmp_path: Path) -> None:
    """R138: a supervisor starts it again, and in the end it alone is a dead letter."""
    world.publish(10)
    starts = 0
    while queue_of(world).status().queue_depth:
        starts += 1
        with worker(world, tmp_path, "--wait", "4s", KILLS="4") as process:
            process.communicate(timeout=DEADLINE_S)
        assert starts < 12
    assert [(bookmark, reason) for bookmark, reason, _ in letters(world)] == [(4, "max_deliveries")]
    counts = Counter(handled(tmp_path))
    assert {row: count for row, count in counts.items() if row != 4 and count > 1} == {}
    assert sorted(counts) == list(range(10))


def test_a_signal_lets_what_runs_end_and_gives_back_the_rest(world: World, tmp_path: Path) -> None:
    world.publish(6)
    with worker(world, tmp_path, "--max-backlog", "6", TAKES="1") as process:
        wait_until(lambda: len(handled(tmp_path)) == 2)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert output == b"2 acknowledged, 0 cancelled, 0 expired, 0 lost\n"
    found = Journal(world.store.path).view("messages", queue=QUEUE).to_pylist()
    assert [(row["bookmark"], row["delivery_count"]) for row in found] == [(2, 0), (3, 0), (4, 0), (5, 0)]


def test_what_does_not_end_in_time_is_cancelled(world: World, tmp_path: Path) -> None:
    world.publish(1)
    with worker(world, tmp_path, "--stop-timeout", "500ms", TAKES="60") as process:
        wait_until(lambda: handled(tmp_path) == [0])
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert output == b"0 acknowledged, 1 cancelled, 0 expired, 0 lost\n"
    (row,) = Journal(world.store.path).view("messages", queue=QUEUE).to_pylist()
    assert (row["delivery_count"], row["cancel_count"]) == (1, 1)


@pytest.mark.parametrize(
    ("named", "told"),
    [("mailer", "a module and a function"), ("mailer:gone", "no attribute 'gone'"), ("gone:handle", "No module named 'gone'")],
)
def test_a_function_that_is_not_there_is_refused_by_name(world: World, tmp_path: Path, named: str, told: str) -> None:
    (tmp_path / "mailer.py").write_text(_WORKER)
    command = [sys.executable, "-m", "spark_queue.cli", "work", world.store.path, QUEUE, named]
    found = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False, timeout=DEADLINE_S
    )
    assert found.returncode == 1
    assert b"BAD_VALUE" in found.stderr
    assert told in found.stderr.decode().replace("\n", " ")
