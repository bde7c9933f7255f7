"""Message files of an object store are fetched while the ones before them are read, in turn and within bounds (DESIGN 7)."""

from __future__ import annotations

import io
import threading
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.errors import JournalError
from spark_queue.journal import opening
from spark_queue.journal.folder import of_type
from spark_queue.journal.opening import AHEAD_FILES, opened_in_turn
from spark_queue.journal.store import Store, messages_key


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    """Make an object store in memory."""
    return Store(f"memory:///{request.node.name}")


def publish(store: Store, count: int, *, large: int | None = None) -> list[str]:
    """Write small files, or a large one among them; the first value of each is its place."""
    names = [f"part-{number:03}.parquet" for number in range(count)]
    for number, name in enumerate(names):
        sink, rows = io.BytesIO(), 20_000 if number == large else 3
        pq.write_table(pa.table({"n": pa.array([number, *range(1, rows)], pa.int64())}), sink)
        store.write(f"{messages_key('json')}/{name}", sink.getvalue())
    return names


class Fetching:
    """Counts the files that are fetched and not read yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lock, self._now, self.most = threading.Lock(), 0, 0
        fetch = Store.open

        def counted(store: Store, key: str) -> Any:
            with self._lock:
                self._now += 1
                self.most = max(self.most, self._now)
            return fetch(store, key)

        monkeypatch.setattr(Store, "open", counted)

    def read(self) -> None:
        with self._lock:
            self._now -= 1


def read_all(store: Store, names: list[str], fetching: Fetching) -> list[Any]:
    found: list[Any] = []
    for each in opened_in_turn([(of_type(store, "json"), name) for name in names]):
        with each as file:
            found += file.read().column("n").to_pylist()[:1]
        fetching.read()
    return found


def test_files_come_in_turn_and_are_fetched_ahead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names, fetching = publish(store, 40), Fetching(monkeypatch)
    assert read_all(store, names, fetching) == list(range(40))
    assert 1 < fetching.most <= AHEAD_FILES


def test_large_files_are_fetched_one_by_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names = publish(store, 8)
    size_bytes = len(store.read(f"{messages_key('json')}/{names[0]}") or b"")
    monkeypatch.setattr(opening, "WHOLE_BYTES", size_bytes)
    monkeypatch.setattr(opening, "AHEAD_BYTES", size_bytes)
    fetching = Fetching(monkeypatch)
    assert read_all(store, names, fetching) == list(range(8))
    assert fetching.most == 1


def test_a_large_file_behind_small_ones_is_read_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names = publish(store, 30, large=10)
    monkeypatch.setattr(opening, "AHEAD_BYTES", 2 * len(store.read(f"{messages_key('json')}/{names[10]}") or b""))
    monkeypatch.setattr(opening, "WHOLE_BYTES", 8_000)
    assert read_all(store, names, Fetching(monkeypatch)) == list(range(30))


def test_a_file_that_is_missing_is_told_when_it_is_its_turn(store: Store) -> None:
    names = publish(store, 3)
    store.delete([f"{messages_key('json')}/{names[2]}"])
    files = opened_in_turn([(of_type(store, "json"), name) for name in names])
    for _ in range(2):
        with next(files) as file:
            assert file.metadata.num_rows == 3
    with pytest.raises(JournalError, match=rf"MESSAGE_FILE_MISSING.*{names[2]}"), next(files):
        pass


def test_who_reads_no_further_leaves_nothing_behind(store: Store) -> None:
    names, before = publish(store, 20), threading.active_count()
    files = opened_in_turn([(of_type(store, "json"), name) for name in names])
    with next(files):
        pass
    files.close()  # type: ignore[attr-defined]  # It is a generator.
    assert threading.active_count() == before
