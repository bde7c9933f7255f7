"""How soon a receiver has a message, and how soon it is acknowledged: alone, beside PostgreSQL, and beside many that wait, too."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from spark_queue import Queue
from spark_queue.receiver.receiver import Receiver
from tests.benchmarks.figure import Bench, Figure, NotMeasuredError, median, percentile, shown, spread
from tests.benchmarks.journals import BODY, TOPIC, serving_queue
from tests.benchmarks.postgres import Postgres, postgres

#: Publishes whose way is timed, and how many of the first are left out.
_WARM, _TIMED, _PAUSE_S = 20, 200, 0.02

_DEADLINE_S = 120.0

#: Receivers that wait at one time, and messages that they share.
_CROWD, _SHARED = 200, 4_000

#: For each publish: when its message was taken, and when it was settled, in milliseconds after the publish began.
_Times = tuple[list[float], list[float]]


def latency(bench: Bench) -> Iterator[Figure]:
    """Measure the time from a publish's begin until the function begins, and until its acknowledgement is durable."""
    runs: list[_Times] = []
    for run in range(bench.runs):
        with serving_queue(bench.place / f"latency-{run}", 0) as queue:
            runs.append(_times_ms(queue))
    peer: _Times | None = None
    try:
        with postgres(bench.place / "postgres") as server:
            peer = _times_of_peer_ms(server)
    except NotMeasuredError:
        # The own figures count all the same.
        peer = None
    for place, row, what, budget in (
        (0, "receive-handler", "publish begun until its function begins", 6),
        (1, "receive-acknowledged", "publish begun until its acknowledgement is durable", 10),
    ):
        p50s, p99_ms = [median(each[place]) for each in runs], median([percentile(each[place], 0.99) for each in runs])
        note = f"{spread(p50s, 'ms')}; p99 {shown(p99_ms)} ms"
        if peer is not None:
            peer_p99_ms = percentile(peer[place], 0.99)
            note += f"; SKIP LOCKED on PostgreSQL {shown(median(peer[place]))} ms, p99 {shown(peer_p99_ms)} ms"
            about = f"{what}, p99, beside that of SKIP LOCKED on PostgreSQL"
            yield Figure(row=f"{row}-p99", what=about, value=p99_ms / peer_p99_ms, unit="x", budget=3, note=note)
        yield Figure(row=row, what=f"{what}, p50", value=median(p50s), unit="ms", budget=budget, note=note)


def many(bench: Bench) -> Iterator[Figure]:
    """Measure how long a message takes to one of many receivers that wait, beside one alone, and how evenly they share."""
    ratios, shares = [], []
    for run in range(bench.runs):
        with serving_queue(bench.place / f"many-{run}", 0) as queue:
            with ExitStack() as ending:
                alone_ms = median(_Crowd(queue, 1, ending).times_ms()[0])
            with ExitStack() as ending:
                crowd = _Crowd(queue, _CROWD, ending)
                ratios.append(median(crowd.times_ms()[0]) / alone_ms)
                shares.append(crowd.share(_SHARED))
    what = f"publish begun until a function begins, with {_CROWD} receivers that wait, beside one alone"
    note = f"{spread(ratios, 'x')}; of {_SHARED:,} messages at once each got {', '.join(shares)}"
    yield Figure(row="receive-many", what=what, value=median(ratios), unit="x", budget=3, note=note)


class _Crowd:
    """Some receivers of one queue, which count what they get and acknowledge it, until the end of a block."""

    def __init__(self, queue_: Queue, size: int, ending: ExitStack) -> None:
        self._queue = queue_
        self._came: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(size):
            receiver = ending.enter_context(queue_.receive(max_backlog=5))
            threading.Thread(target=self._run, args=(number, receiver), daemon=True).start()
        self._size = size

    def _run(self, number: int, receiver: Receiver) -> None:
        for message in receiver:
            self._came.put(number)
            _ = message.acknowledge()

    def times_ms(self) -> _Times:
        """Return when each of some publishes came to one of them."""

        def take() -> Callable[[], object]:
            self._came.get(timeout=_DEADLINE_S)
            return lambda: None

        return _timed(lambda: _publish(self._queue, 1), take)

    def share(self, messages: int) -> str:
        """Publish many messages at once, and return how few one of them got of these, and how many another."""
        counts = [0] * self._size
        _publish(self._queue, messages)
        for _ in range(messages):
            counts[self._came.get(timeout=_DEADLINE_S)] += 1
        return f"{min(counts)} to {max(counts)}"


def _publish(queue_: Queue, messages: int) -> None:
    queue_.journal.publish([BODY] * messages, topic=TOPIC)  # type: ignore[attr-defined]  # A handle of users' is a journal.


def _times_ms(queue_: Queue) -> _Times:
    with queue_.receive(max_backlog=1) as received:

        def take() -> Callable[[], object]:
            message = received.get(_DEADLINE_S)
            assert message is not None
            return lambda: message.acknowledge().result(_DEADLINE_S)

        return _timed(lambda: _publish(queue_, 1), take)


def _times_of_peer_ms(server: Postgres) -> _Times:
    """Return the same of a table, by two clients; the one that takes looks again after a millisecond."""
    server.ask("CREATE TABLE work (id BIGSERIAL PRIMARY KEY, body TEXT)")
    with server.client() as publisher, server.client() as consumer:

        def take() -> Callable[[], object]:
            while not (found := consumer("BEGIN; SELECT id FROM work ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;")):
                consumer("ROLLBACK;")
                threading.Event().wait(0.001)
            return lambda: consumer(f"DELETE FROM work WHERE id = {found}; COMMIT;")

        return _timed(lambda: publisher("INSERT INTO work (body) VALUES (repeat('x', 200));"), take)


def _timed(publish: Callable[[], object], take: Callable[[], Callable[[], object]]) -> _Times:
    begun_ms, done_ms = list[float](), list[float]()
    for turn in range(_WARM + _TIMED):
        threading.Event().wait(_PAUSE_S)
        began_s = time.perf_counter()
        publish()
        settle = take()
        handed_s = time.perf_counter()
        settle()
        if turn >= _WARM:
            begun_ms.append((handed_s - began_s) * 1e3)
            done_ms.append((time.perf_counter() - began_s) * 1e3)
    return begun_ms, done_ms
