"""What an idle journal asks of an object store, counted by an S3 server; spans are counted by renewals of the advertisement."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.client.shared_target import SharedTarget
from spark_queue.core.commands import Apply
from spark_queue.journal import control_checkpoint
from spark_queue.journal.group_commit import PublishCall
from spark_queue.journal.log_looks import SILENT_MS
from spark_queue.journal.reader import open_control
from spark_queue.journal.store import ADVERTISEMENT_KEY, CONTROL, Store, log_key
from spark_queue.journal.store_files import requests_made
from spark_queue.protocol.discovery import RENEWAL_S
from spark_queue.protocol.endpoint import LOCAL
from spark_queue.source.spark_versions import ReadAllAvailable
from spark_queue.source.topic_following import WAIT_MS
from tests.integration.coordinator_world import DEADLINE_S, TOPIC, Planner, World
from tests.integration.s3_server import BUCKET, MotoServer, Requests, s3_server
from tests.unit.source.reading import stream

#: Most requests of an idle coordinator in a second, whatever it serves.
IDLE_BUDGET = 0.5

#: A coordinator on a busy machine is not idle at once: its first looks may still be under way.
ATTEMPTS = 5

TEN_TYPES = {f"t{number}": {"columns": "id BIGINT", "topics": [f"T{number}"]} for number in range(10)}


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    with s3_server() as found:
        assert isinstance(found, MotoServer)
        yield found


@pytest.fixture
def world(server: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    made = World(f"s3://{BUCKET}/{tmp_path.name}/journal", storage_options=server.options)
    yield made
    made.end()


def journal_of(world: World) -> Journal:
    return Journal(world.store.path, storage_options=dict(world.store.storage_options))


def topic_stream(world: World) -> tuple[Any, dict[str, Any]]:
    """Return a stream of the topic as its planner has it, and the offset of all that is there."""
    options = {f"storage.{name}": value for name, value in world.store.storage_options.items()}
    reader = stream(journal_of(world), topic=TOPIC, startingBookmark="earliest", **options)
    return reader, reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def renewals(found: Requests) -> int:
    return sum(count for (kind, key), count in found.items() if kind == "PUT" and key.endswith(ADVERTISEMENT_KEY))


def asked_during(server: MotoServer, *, renewals_passed: int) -> Requests:
    """Return what was asked from one renewal until some renewals later."""
    begun = renewals(server.requests()) + 1
    first = until(server, lambda found: renewals(found) >= begun)
    return until(server, lambda found: renewals(found) >= begun + renewals_passed) - first


def until(server: MotoServer, holds: Callable[[Requests], bool]) -> Requests:
    """Wait until something was asked, and return all that was."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds(found := server.requests()):
        assert time.monotonic() < deadline_s, "that is not asked"
        threading.Event().wait(0.05)
    return found


def by_kind(found: Requests) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for (kind, _), count in found.items():
        kinds[kind] += count
    return kinds


def test_an_idle_coordinator_of_ten_message_types_asks_for_little(world: World, server: MotoServer) -> None:
    queues = {f"Q{number}": {"underlying_topic": f"T{number}"} for number in range(10)}
    more = {name: {**world.definitions[name], **added} for name, added in (("message_types", TEN_TYPES), ("queues", queues))}
    world.client().call(Apply(definitions=more), timeout_s=DEADLINE_S)
    # Each is looked at once as it is new.
    until(server, lambda found: all(any(f"/{name}/" in key for kind, key in found if kind == "LIST") for name in TEN_TYPES))
    found = asked_during(server, renewals_passed=2)
    for _ in range(ATTEMPTS):
        if found.total() > IDLE_BUDGET * RENEWAL_S * 2:
            found = asked_during(server, renewals_passed=2)
    assert found.total() <= IDLE_BUDGET * RENEWAL_S * 2
    assert by_kind(found)["LIST"] == 0


def test_those_who_wait_share_the_looks_at_their_log(world: World, server: MotoServer) -> None:
    """Three streams of a queue and one of the topic; each call is one of Spark's."""
    world.publish(1)
    planners = [Planner(world, f"s{number}") for number in range(3)]
    reader, end = topic_stream(world)
    ended = threading.Event()

    def ask(planner: Planner) -> None:
        while not ended.is_set():
            planner.next(wait_ms=WAIT_MS)

    def follow() -> None:
        while not ended.is_set():
            assert reader.latestOffset(end, ReadAllAvailable()) is end

    threads = [threading.Thread(target=ask, args=(planner,)) for planner in planners] + [threading.Thread(target=follow)]
    for thread in threads:
        thread.start()
    try:
        # Meanwhile the looks have become as few as they get.
        asked_during(server, renewals_passed=1)
        found = asked_during(server, renewals_passed=1)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    looks = {key: count for (kind, key), count in found.items() if kind == "GET" and "messages/json/_delta_log" in key}
    # One more for where the span begins; the machine may be slow, which makes them fewer.
    assert 1 <= sum(looks.values()) <= RENEWAL_S * 1_000 / SILENT_MS + 1
    assert by_kind(found)["LIST"] <= 1


def test_an_idle_stream_with_a_coordinator_asks_nothing_of_the_store_and_hears_of_messages_at_once(world: World) -> None:
    world.publish(1)
    world.ping()
    reader, end = topic_stream(world)
    assert reader.latestOffset(end, ReadAllAvailable()) is end
    assert reader._follower._asks_from_ms == 0, "the coordinator has answered"
    before = requests_made()
    for _ in range(3):
        assert reader.latestOffset(end, ReadAllAvailable()) is end
    assert requests_made() == before
    journal_of(world).publish([{"value": "{}"}], topic=TOPIC)
    told = reader.latestOffset(end, ReadAllAvailable())
    assert told["bookmark"] == 2, "its publisher nudged the coordinator"
    world.publish(1)
    assert calls_until_news(reader, told) <= SILENT_MS // WAIT_MS + 1, "nobody nudged anybody"
    assert reader._follower._asks_from_ms == 0, "nor did the stream look for itself"


def test_an_idle_stream_without_a_coordinator_looks_seldom_and_finds_the_first_message_in_time(world: World) -> None:
    world.publish(1)
    reader, end = topic_stream(world)
    while reader._follower._looks.due_ms() - reader._follower._looks.looked_at_ms < SILENT_MS:
        assert reader.latestOffset(end, ReadAllAvailable()) is end
    before = requests_made()
    for _ in range(calls := 4):
        assert reader.latestOffset(end, ReadAllAvailable()) is end
    asked = Counter(requests_made()) - Counter(before)
    assert set(asked) == {"GET"}
    assert asked["GET"] <= calls * WAIT_MS // SILENT_MS + 1
    world.publish(1)
    assert calls_until_news(reader, end) <= SILENT_MS // WAIT_MS + 1


def calls_until_news(reader: Any, end: dict[str, Any]) -> int:
    """Return how many calls of Spark's it takes until the stream tells of something."""
    calls = 1
    while reader.latestOffset(end, ReadAllAvailable()) is end:
        calls += 1
        assert calls < 60
    return calls


def test_a_publish_of_a_new_process_reads_nothing_that_was_committed_since_the_checkpoint(world: World, server: MotoServer) -> None:
    """Neither where a journal is opened for its id, nor for what is published."""
    world.publish(1)
    planner = Planner(world, "s")
    control_checkpoint.write(world.store, open_control(world.store).as_entry(), durable=False)
    since = open_control(world.store).version + 1
    for _ in range(commits := 12):
        world.publish(1)
        assert planner.next(wait_ms=int(DEADLINE_S * 1_000)).messages >= 1
    # What a coordinator reads meanwhile is not the publisher's.
    world.end()
    newest = open_control(world.store).version
    assert newest >= since + commits - 1
    later = tuple(log_key(CONTROL, version) for version in range(since, newest + 1))
    before = server.requests()
    SharedTarget(world.store, LOCAL).publish(PublishCall(data=[{"value": "{}"}], topic=TOPIC))
    assert journal_of(world).journal_id() == world.journal_id
    found = server.requests() - before
    assert [asked for asked in found if asked[1].endswith(later)] == []
    assert found.total() <= 70, found


def test_a_process_counts_its_own_requests_as_the_store_does(server: MotoServer, tmp_path: Path) -> None:
    store = Store(f"s3://{BUCKET}/{tmp_path.name}/objects", server.options)
    before, counted = server.requests(), requests_made()
    store.write("a", b"1")
    assert store.create("b", b"2")
    assert not store.create("b", b"3")
    assert (store.read("a"), store.read("c")) == (b"1", None)
    with store.writer("small") as sink:
        sink.write(b"x" * 100)
    with store.writer("large") as sink:
        sink.write(b"x" * (25 * 1024 * 1024))
    assert store.open("small").read() == b"x" * 100
    source = store.open("large")
    for place in (0, 1_000):
        source.seek(place)
        source.read(100)
    assert [found.key for found in store.list("")] == ["a", "b", "large", "small"]
    store.delete(["a", "b"])
    told = by_kind(server.requests() - before)
    told["PUT"] += told.pop("POST")
    assert Counter(requests_made()) - Counter(counted) == told
    assert told == {"PUT": 9, "GET": 6, "LIST": 1, "DELETE": 2, "HEAD": 1}
