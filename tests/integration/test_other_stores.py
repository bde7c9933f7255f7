"""A journal in ADLS and in GCS, as their emulators have them: what is tried on S3, and replies that are lost (`make stores`)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.store import Store
from tests.integration.coordinator_world import QUEUE, TOPIC, Planner, World, wait_for_end
from tests.integration.other_stores import OTHERS, ObjectStore, Relay, store_of

# Their worlds are this module's.
from tests.integration.test_s3 import (  # noqa: F401 - pytest collects them.
    MakeWorld,
    directories,
    journal_of,
    test_a_coordinator_continued_after_its_reign_puts_nothing_into_the_bucket,
    test_a_coordinator_killed_with_leases_open_is_recovered_from_the_bucket,
    test_a_journal_is_backed_up_within_its_store_and_to_a_disk,
    test_a_kill_around_the_conditional_put_of_a_grant_loses_and_doubles_nothing,
    test_messages_are_published_leased_read_proven_and_looked_at,
    test_publishers_that_race_lose_and_double_nothing_and_keep_their_own_order,
    test_two_coordinators_started_at_once_agree_on_one_that_reigns,
)
from tests.sparkless_stream import SparklessStream


@pytest.fixture(scope="module", params=OTHERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with store_of(request.param, tmp_path_factory.mktemp("objects")) as found:
        yield found


@pytest.fixture
def make_world(server: ObjectStore, tmp_path: Path) -> Iterator[MakeWorld]:
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(f"{server.url}/{tmp_path.name}/journal{len(made)}", storage_options=server.options, **options))
        return made[-1]

    yield make
    for world in made:
        world.end()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


@pytest.fixture
def relay(server: ObjectStore) -> Relay:
    assert server.relay is not None
    server.relay.lost = 0
    return server.relay


def next_entry(store: Store, table: str) -> str:
    """Return the end of the key of the entry that the next commit to a table puts."""
    return f"{store.path.rpartition('/')[2]}/{table}/_delta_log/{versions_after(store, table, -1)[-1] + 1:020d}.json"


def numbers_of(values: list[Any]) -> list[int]:
    return sorted(json.loads(str(value))["n"] for value in values)


def test_messages_are_received_in_plain_python_after_their_coordinator_was_killed(world: World) -> None:
    world.publish(10)
    world.ping()
    received: list[int] = []
    with journal_of(world).queue(QUEUE).receive(until_empty=True, max_backlog=4) as receiver:
        for message in receiver:
            received.append(message.value()["n"])
            if len(received) == 3:
                pid = world.ping().pid
                os.kill(pid, signal.SIGKILL)
                wait_for_end(pid)
            message.acknowledge().result(60)
    assert received == list(range(10))
    assert journal_of(world).queue(QUEUE).status().acknowledged == 10


def test_batches_are_appended_to_a_table_once_though_checkpoints_and_the_replies_to_their_commits_are_lost(
    world: World, relay: Relay
) -> None:
    table = f"{world.store.path}-table"
    arguments: dict[str, Any] = {"queue": QUEUE, "subscription": "s", "message_type": "json", "table": table, "rows": 10}
    for version in (1, 2, 3):
        world.publish(10)
        stream = SparklessStream(world.store, world.journal_id, **arguments)
        relay.lose_reply_to_put(f"{table.rpartition('/')[2]}/_delta_log/{version:020d}.json")
        assert stream.batch() == 10
        stream.die()
    assert relay.lost == 3
    stream = SparklessStream(world.store, world.journal_id, **arguments)
    assert stream.batch(wait_ms=0) == 0
    stream.end()
    stored = DeltaTable(table, storage_options=dict(world.store.storage_options)).to_pyarrow_table()
    assert numbers_of(stored.column("value").to_pylist()) == list(range(30))
    assert journal_of(world).queue(QUEUE).status().acknowledged == 30


@pytest.mark.parametrize("opened", [False, True])
def test_a_publish_whose_reply_is_lost_stands_once(world: World, relay: Relay, *, opened: bool) -> None:
    with journal_of(world).publisher("p") as publisher:
        publish = publisher.publish if opened else journal_of(world).publish
        for number in range(3):
            if number:
                relay.lose_reply_to_put(next_entry(world.store, "messages/json"))
            publish([{"value": json.dumps({"n": number})}], topic=TOPIC)
    assert relay.lost == 2
    assert numbers_of(journal_of(world).view("messages", queue=QUEUE).column("value").to_pylist()) == [0, 1, 2]


def test_a_grant_and_a_claim_whose_replies_are_lost_stand_once(world: World, relay: Relay) -> None:
    world.publish(30)
    relay.lose_reply_to_put(next_entry(world.store, "control"))
    planner = Planner(world)
    relay.lose_reply_to_put(next_entry(world.store, "control"))
    assert planner.next(limit=10).messages == 10
    assert relay.lost == 2
    assert planner.bookmarks() == list(range(10))
    assert planner.consume() == list(range(10, 30))
    assert [claim.epoch for claim in world.claims()] == [1], "nobody has taken its own commit for another's"


def test_options_of_another_kind_of_store_and_a_bucket_that_is_not_there_are_refused(server: ObjectStore) -> None:
    with pytest.raises(ConfigError, match="STORAGE_OPTION_UNSUPPORTED.*'aws_region'"):
        Store(f"{server.url}/j", {**server.options, "aws_region": "r"}).check_options()
    with pytest.raises(JournalError, match="STORE_FAILED.*404"):
        Store(server.url.replace("journals", "no-such-bucket"), server.options).check_put_if_absent()
