"""A queue over a Delta table in an object store: names that have to be escaped, options of its own, and what a look costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_queue import Journal
from spark_queue.journal.stores_file import STORES_FILE_VARIABLE
from tests.integration.coordinator_world import DEADLINE_S
from tests.integration.s3_server import BUCKET, s3_options, s3_server
from tests.integration.source_journal import end_coordinator

pytestmark = pytest.mark.usefixtures("own_user")

#: Partition values that are escaped in paths, and then once more in the log.
PLACES = ["a b", "50%", "x/y", "ü:", "a%20b", "?#[]"]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as server:
        yield server.endpoint


def append(table: str, options: dict[str, str], first: int) -> None:
    rows = pa.table({"id": pa.array(range(first, first + len(PLACES)), pa.int64()), "place": PLACES})
    write_deltalake(table, rows, mode="append", partition_by=["place"], storage_options=options)


def test_a_table_in_a_store_of_its_own_is_followed_whatever_its_partitions_are_called(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal lies on a disk: the options are those that the file of stores says."""
    table, options = f"s3://{BUCKET}/{tmp_path.name}/orders", s3_options(endpoint)
    lines = [f'["s3://{BUCKET}"]', *(f'{name} = "{value}"' for name, value in options.items())]
    (tmp_path / "stores.toml").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setenv(STORES_FILE_VARIABLE, str(tmp_path / "stores.toml"))
    append(table, options, 0)
    definitions = {
        "message_types": {"orders": {"table": table, "from": "beginning"}},
        "queues": {"SHIP": {"underlying_topic": "orders", "filter": "place <> 'nowhere'"}},
    }
    journal = Journal.create(str(tmp_path / "journal"), definitions)
    try:
        append(table, options, 100)
        DeltaTable(table, storage_options=options).optimize.compact()
        with journal.queue("SHIP").receive(until_empty=True) as messages:
            found = []
            for message in messages:
                found.append((message["id"], message["place"]))
                message.acknowledge().result(DEADLINE_S)
        assert sorted(found) == [(first + number, place) for first in (0, 100) for number, place in enumerate(PLACES)]
    finally:
        end_coordinator(journal)
