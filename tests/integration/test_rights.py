"""Rights over a real coordinator: who is told what, by tokens that change while it serves (R12, R47, R48)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from spark_queue import Journal
from spark_queue.cli.verify import verify
from spark_queue.errors import AccessError, CallerError, ConfigError, CoordinatorError
from spark_queue.protocol import user_files
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.protocol.host import location_of
from spark_queue.protocol.tokens import new_token, token_hash
from spark_queue.protocol.user_files import TOKEN_VARIABLE
from tests.integration.coordinator_world import MakeWorld, Planner, World
from tests.records import detail_of

ADMIN, READER, WRITER = (new_token() for _ in range(3))


def principals(reader: Any = READER) -> dict[str, Any]:
    rights = [{"queues": "WORK", "rights": ["read", "change"], "filter": "value LIKE '%7}'"}]
    hashes = token_hash(reader) if isinstance(reader, str) else [token_hash(each) for each in reader]
    return {
        "admin": {"token_hash": token_hash(ADMIN), "rights": [{"rights": ["administer"]}]},
        "reader": {"token_hash": hashes, "rights": rights},
        "writer": {"token_hash": token_hash(WRITER), "rights": [{"queues": "WORK", "rights": ["write"]}]},
    }


@pytest.fixture
def guarded(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> World:
    """Make a journal with principals, of 20 messages, and its coordinator, started by the user who runs it."""
    world = make_world()
    journal(world).apply({**world.definitions, "principals": principals()})
    world.publish(20)
    monkeypatch.setenv(TOKEN_VARIABLE, READER)
    return world


def journal(world: World) -> Journal:
    return Journal(world.store.path)


def test_a_reader_is_given_what_it_may_see_and_nothing_else(guarded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R47, R48: of messages 0 to 19 it sees 7 and 17, whatever it asks for."""
    planner = Planner(guarded)
    assert planner.consume() == [7, 17]
    guarded.publish(10)
    assert planner.consume() == [27]
    queue = journal(guarded).queue("WORK")
    with pytest.raises(CallerError, match=r"UNKNOWN_BOOKMARK.*2 bookmarks that never entered the queue, first 4"):
        queue.settle([4, 5])
    assert queue.settle(where="value IS NOT NULL").acknowledged == 0
    assert queue.purge().purged == 0
    monkeypatch.setenv(TOKEN_VARIABLE, WRITER)
    assert journal(guarded).publish(['{"n": 7}'], topic="WORK").rows == 1
    for refused in (queue.purge, queue.pause, lambda: Planner(guarded, "mine")):
        with pytest.raises(AccessError, match="ACCESS_DENIED.*'writer'"):
            refused()
    assert queue.status().queue_depth == 28
    verify(guarded.store, as_json=True)


def test_who_may_publish_no_longer_is_refused_at_the_next_one(guarded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """`write` is asked by each publish, also of a publisher and of a batch that are under way."""
    rights = {"queues": "^WORK$|^ORDERS$", "rights": ["read", "write"]}

    def applied(*given: dict[str, Any], **further: Any) -> None:
        monkeypatch.setenv(TOKEN_VARIABLE, ADMIN)
        known = principals() | {"writer": {"token_hash": token_hash(WRITER), "rights": list(given)}}
        journal(guarded).apply({**guarded.definitions, **further, "principals": known})
        monkeypatch.setenv(TOKEN_VARIABLE, WRITER)

    applied(rights)
    work = journal(guarded).queue("WORK")
    into: Any = work.into(topic="ORDERS", fn=lambda *_: pytest.fail("it is called"), subscription="s")
    types = guarded.definitions["message_types"]
    with journal(guarded).publisher("till") as publisher:
        publisher.publish(['{"n": 1}'], topic="WORK")
        applied(rights | {"queues": "^NEW$"}, message_types={**types, "new": {"columns": "n INT", "topics": ["NEW"]}})
        with pytest.raises(AccessError, match="ACCESS_DENIED.*'writer'"):
            publisher.publish(['{"n": 2}'], topic="WORK")
        with pytest.raises(CallerError, match="UNSUPPORTED_WRITE.*'new' was added after publisher 'till' was opened"):
            publisher.publish([{"n": 2}], topic="NEW")
    with pytest.raises(AccessError, match="ACCESS_DENIED.*'writer'"):
        into._work(Mock(), Mock(is_barrier=False), Mock(), 0)


def test_tokens_change_while_a_coordinator_serves(guarded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pid, planner, later = guarded.ping().pid, Planner(guarded), new_token()

    def applied(reader: Any) -> None:
        monkeypatch.setenv(TOKEN_VARIABLE, ADMIN)
        journal(guarded).apply({**guarded.definitions, "principals": principals(reader)})

    applied([READER, later])
    assert planner.next().messages == 2
    applied(later)
    monkeypatch.setenv(TOKEN_VARIABLE, READER)
    with pytest.raises(CoordinatorError, match="UNAUTHENTICATED"):
        planner.next()
    monkeypatch.setenv(TOKEN_VARIABLE, later)
    assert Planner(guarded).next().messages == 2, "the lease of before goes on under the new token"
    assert guarded.ping().pid == pid


def test_a_token_in_a_file_is_replaced_under_a_running_consumer(
    guarded: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read again when the token is refused: its consumer, its connection and its lease go on."""
    file, later = tmp_path / "reader-token", new_token()

    def put(token: str) -> None:
        draft = tmp_path / "draft"
        draft.touch(mode=0o600)
        draft.write_text(f"{token}\n")
        draft.replace(file)

    def applied(reader: Any) -> None:
        Journal(guarded.store.path, token_file=str(admin)).apply({**guarded.definitions, "principals": principals(reader)})

    put(ADMIN)
    admin = file.rename(tmp_path / "admin-token")
    put(READER)
    # What the call says goes before what the environment says.
    monkeypatch.setenv(TOKEN_VARIABLE, WRITER)
    planner = Planner(guarded, client=guarded.client(endpoint=Endpoint(token_file=str(file))))
    assert planner.next().messages == 2
    applied([READER, later])
    put(later)
    applied(later)
    assert planner.bookmarks() == [7, 17], "the very lease"
    guarded.publish(10)
    assert planner.consume() == [27]
    assert later not in user_files.log_path(guarded.journal_id, location_of(guarded.store)).read_text()
    file.unlink()
    with pytest.raises(ConfigError, match="BAD_VALUE.*token_file"):
        Journal(guarded.store.path, token_file=str(file)).queue("WORK").pause()


@pytest.mark.usefixtures("coordinators_are_started")
def test_no_token_is_written_anywhere(guarded: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = new_token()
    Planner(guarded).consume()
    pid = guarded.ping().pid
    for token in (wrong, WRITER):
        monkeypatch.setenv(TOKEN_VARIABLE, token)
        with pytest.raises((AccessError, CoordinatorError)):
            journal(guarded).queue("WORK").pause()
    monkeypatch.delenv(TOKEN_VARIABLE)
    log = user_files.log_path(guarded.journal_id, location_of(guarded.store))
    assert "A call from 127.0.0.1 was refused for an unknown token" in log.read_text()
    own = user_files.token()
    written = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != user_files.token_path()}
    written |= {"arguments": " ".join(psutil.Process(pid).cmdline()).encode()}
    written |= {"records": json.dumps([dict(detail_of(each)) for each in guarded.records()], default=str).encode()}
    for token in (ADMIN, READER, WRITER, wrong, own):
        assert [name for name, data in written.items() if token.encode() in data] == []
