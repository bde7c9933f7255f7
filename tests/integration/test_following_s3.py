"""A queue over a Delta table in an object store: names that have to be escaped, options of its own, and what a look costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_queue import Journal
from spark_queue.client.catching_up import TablesRead
from spark_queue.journal.stores_file import STORES_FILE_VARIABLE
from tests.integration.coordinator_world import DEADLINE_S
from tests.integration.s3_gateway import KINDS, s3_server_of
from tests.integration.s3_server import BUCKET, MotoServer, Requests, S3Server
from tests.integration.source_journal import end_coordinator
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("own_user")

#: Partition values that are escaped in paths, and then once more in the log.
PLACES = ["a b", "50%", "x/y", "ü:", "a%20b", "?#[]"]


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server_of(request.param, tmp_path_factory.mktemp("objects")) as found:
        yield found


def vacuum(table: str, options: dict[str, str]) -> set[str]:
    """Delete every file that a table has removed, and return their names."""
    there = DeltaTable(table, storage_options=options)
    return set(there.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False))


def taken(journal: Journal) -> list[int]:
    """Take and acknowledge all that is in the queue."""
    found = []
    with journal.queue("SHIP").receive(until_empty=True) as messages:
        for message in messages:
            found.append(message["id"])
            message.acknowledge().result(DEADLINE_S)
    return sorted(found)


def asked_for(server: S3Server, names: set[str]) -> Requests:
    """Return how often a server that tells it was asked for files of some names."""
    found = server.requests() if isinstance(server, MotoServer) else Counter()
    return Counter({asked: count for asked, count in found.items() if any(asked[1].endswith(f"/{name}") for name in names)})


def test_what_vacuum_took_before_anybody_copied_it_is_lost_by_name_and_never_asked_for_again(
    server: S3Server, tmp_path: Path
) -> None:
    """R152, R155, R157: a store that says 404 is believed, after one question for each file."""
    home, options = f"s3://{BUCKET}/{tmp_path.name}", server.options
    table = f"{home}/orders"
    append(table, options, 0)
    definitions = {"message_types": {"orders": {"table": table}}, "queues": {"SHIP": {"underlying_topic": "orders"}}}
    journal = Journal.create(f"{home}/journal", definitions, storage_options=options)
    try:
        append(table, options, 100)
        assert journal.catch_up() == TablesRead(files=0, troubles={})
        files = {str(journal.queue("SHIP").explain(bookmark).file) for bookmark in range(len(PLACES))}
        DeltaTable(table, storage_options=options).optimize.compact()
        names = {each.rpartition("/")[2] for each in files}
        assert names <= {each.rpartition("/")[2] for each in vacuum(table, options)}
        append(table, options, 200)
        before = asked_for(server, names)
        assert journal.catch_up() == TablesRead(files=0, troubles={})
        wait_until(lambda: journal.queue("SHIP").status().dead_letters == len(PLACES))
        letters = journal.view("dead_letters", queue="SHIP").to_pylist()
        assert {(row["reason"], row["id"]) for row in letters} == {("lost", None)}
        assert {str(row["error"]).partition("file ")[2].strip("'") for row in letters} == files
        assert "[TABLE_ROWS_LOST]" in str(journal.queue("SHIP").status().alarm)
        if isinstance(server, MotoServer):
            # The status, which is asked for meanwhile, looks for damage by reading.
            heads = [count for (kind, _), count in (asked_for(server, names) - before).items() if kind == "HEAD"]
            assert heads == [1] * len(names)
        after = asked_for(server, names)
        # Neither a start asks for them, nor a consumer, nor whoever forgets them.
        end_coordinator(journal)
        assert taken(journal) == list(range(200, 200 + len(PLACES)))
        journal.forget_lost("orders")
        assert journal.queue("SHIP").status().dead_letters == 0
        assert journal.queue("SHIP").status().alarm is None
        assert asked_for(server, names) == after
    finally:
        end_coordinator(journal)


def append(table: str, options: dict[str, str], first: int) -> None:
    rows = pa.table({"id": pa.array(range(first, first + len(PLACES)), pa.int64()), "place": PLACES})
    write_deltalake(table, rows, mode="append", partition_by=["place"], storage_options=options)


def test_a_table_in_a_store_of_its_own_is_followed_whatever_its_partitions_are_called(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal lies on a disk: the options are those that the file of stores says."""
    table, options = f"s3://{BUCKET}/{tmp_path.name}/orders", server.options
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
