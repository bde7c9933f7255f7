"""What the protocol needs of an object store (DESIGN 4), asked of each that is at hand: a key is created once, whoever races."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_queue.journal.store import Store
from tests.integration.other_stores import OTHERS, ObjectStore, store_of
from tests.integration.s3_gateway import KINDS

THREADS, KEYS = 8, 40


@pytest.fixture(scope="module", params=[*KINDS, *OTHERS])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with store_of(request.param, tmp_path_factory.mktemp("objects")) as found:
        yield found


@pytest.fixture
def store(server: ObjectStore) -> Store:
    return Store(f"{server.url}/{uuid.uuid4().hex}", server.options)


def test_of_eight_who_create_a_key_at_once_one_does_and_its_bytes_stand(store: Store) -> None:
    begin = threading.Barrier(THREADS)

    def create(thread: int) -> list[str]:
        won = []
        for number in range(KEYS):
            begin.wait(60)
            if store.create(f"keys/{number}", f"{thread}".encode()):
                won.append(f"keys/{number}")
        return won

    with ThreadPoolExecutor(THREADS) as pool:
        won = list(pool.map(create, range(THREADS)))
    assert sorted(key for keys in won for key in keys) == sorted(f"keys/{number}" for number in range(KEYS))
    assert [key for thread, keys in enumerate(won) for key in keys if store.read(key) != f"{thread}".encode()] == []


def test_a_key_is_replaced_read_and_deleted_and_can_then_be_created(store: Store) -> None:
    store.check_put_if_absent()
    store.write("a", b"one")
    store.write("a", b"two")
    assert (store.read("a"), store.read("b")) == (b"two", None)
    assert not store.create("a", b"three")
    store.delete(["a", "b"])
    assert store.read("a") is None
    assert store.create("a", b"four")
    assert store.read("a") == b"four"
    assert abs(store.time_ms() - store.list("")[0].modified_ms) < 60_000


def test_a_listing_is_in_the_order_of_keys_and_begins_after_one(store: Store) -> None:
    keys = sorted(f"log/{number:020d}.json" for number in (0, 2, 9, 10, 11, 100))
    for key in reversed([*keys, "log/_last", "log/below/x", "logs/y"]):
        store.write(key, key.encode())
    assert [entry.key for entry in store.list("log")] == [*keys, "log/_last", "log/below/x"]
    assert [entry.key for entry in store.list("log", after=keys[2])] == [*keys[3:], "log/_last", "log/below/x"]
    assert [entry.key for entry in store.list("log", after="log/below")] == ["log/below/x"]
    assert [store.folders(""), store.folders("log")] == [["log", "logs"], ["log/below"]]
    assert [entry.size_bytes for entry in store.list("log", after="log/_last")] == [len("log/below/x")]


def test_a_listing_is_whole_beyond_what_one_request_brings(store: Store) -> None:
    keys = [f"many/{number:05d}" for number in range(1_100)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda key: store.write(key, b""), keys))
    assert [entry.key for entry in store.list("many")] == keys
    assert [entry.key for entry in store.list("many", after=keys[50])] == keys[51:]


def test_files_of_one_and_of_several_parts_come_back_whole_and_by_ranges(store: Store) -> None:
    large = bytes(range(256)) * 100_000
    for name, data in (("none", b""), ("small", b"x" * 1_000), ("large", large)):
        with store.writer(name) as sink:
            sink.write(data)
        assert store.read(name) == data
    source = store.open("large")
    source.seek(20_000_001)
    assert source.read(300) == large[20_000_001:20_000_301]


def test_names_that_urls_quote_stand_for_themselves(store: Store) -> None:
    for key in ("a b/ü=1", "a b/%41", "a b/+&?#"):
        assert store.create(key, key.encode())
        assert store.read(key) == key.encode()
        assert not store.create(key, b"")
    assert [entry.key for entry in store.list("a b")] == ["a b/%41", "a b/+&?#", "a b/ü=1"]
