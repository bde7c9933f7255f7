"""The way back when nobody can administer a journal any more (R12)."""

from __future__ import annotations

import getpass
import platform
from pathlib import Path

import pytest

from spark_queue import Journal
from spark_queue.cli import definitions as verbs
from spark_queue.cli.verify import verify
from spark_queue.coordinator import store_owner
from spark_queue.coordinator.store_owner import STORE_OWNER
from spark_queue.errors import AccessError, ConfigError, CoordinatorError
from spark_queue.protocol.tokens import new_token, token_hash
from spark_queue.protocol.user_files import TOKEN_VARIABLE
from tests.integration.coordinator_world import MakeWorld, Planner, World
from tests.records import detail_of

DEFINITIONS = """
[message_types.json]
topics = ["ORDERS"]
[queues.WORK]
underlying_topic = "ORDERS"
"""

PRINCIPALS = """
[principals.admin]
token_hash = "{admin}"
rights = [{{rights = ["administer"]}}]
[principals.reader]
token_hash = "{reader}"
rights = [{{queues = "WORK", rights = ["read"]}}]
"""


def definitions(path: Path, admin: str, reader: str, *, more: str = "") -> Path:
    path.write_text(DEFINITIONS + more + PRINCIPALS.format(admin=token_hash(admin), reader=token_hash(reader)))
    return path


@pytest.fixture
def locked_out(make_world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Make a journal of 4 messages whose administrator has lost the token, with a coordinator that serves a reader."""
    world = make_world()
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    Journal(world.store.path).apply(definitions(tmp_path / "before.toml", new_token(), "reader"))
    world.publish(4)
    return world


def apply(world: World, file: Path, *, dry_run: bool = False) -> None:
    verbs.apply(path=world.store.path, definitions=file, dry_run=dry_run, as_store_owner=True)


def test_the_owner_of_the_store_replaces_the_principals_past_the_coordinator(
    locked_out: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log says who did it, a lease of before goes on, and the new token of who administers opens everything again."""
    monkeypatch.setenv(TOKEN_VARIABLE, "reader")
    planner = Planner(locked_out)
    assert planner.next().messages == 4
    monkeypatch.delenv(TOKEN_VARIABLE)
    epoch, admin = locked_out.ping().epoch, new_token()
    file = definitions(tmp_path / "after.toml", admin, "reader")
    with pytest.raises(AccessError, match="TOKEN_OF_NOBODY"):
        Journal(locked_out.store.path).apply(file)
    apply(locked_out, file, dry_run=True)
    assert "Nothing was changed yet" in capsys.readouterr().out
    assert locked_out.ping().epoch == epoch
    apply(locked_out, file)
    assert "change [principals.admin] token_hash" in capsys.readouterr().out
    signed = [
        detail_of(each)["by"] for each in locked_out.records() if each.kind == "definitions_applied" and "by" in detail_of(each)
    ]
    assert signed[-1:] == [{"principal": STORE_OWNER, "host": f"{getpass.getuser()}@{platform.node()}"}]
    monkeypatch.setenv(TOKEN_VARIABLE, "reader")
    assert Planner(locked_out).next().lease == planner.lease, "the lease of before"
    monkeypatch.setenv(TOKEN_VARIABLE, admin)
    assert Journal(locked_out.store.path).apply(definitions(tmp_path / "later.toml", admin, "other"))
    # One reign changed the principals, and the next serves.
    assert locked_out.ping().epoch == epoch + 2
    verify(locked_out.store, as_json=True)


def test_only_principals_are_changed_so_and_never_so_that_nobody_administers(locked_out: World, tmp_path: Path) -> None:
    before = len(locked_out.records())
    more = definitions(tmp_path / "more.toml", "admin", "reader", more="[queues.ORDERS]\n")
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*--as-store-owner.*with a change of \[queues.ORDERS\]"):
        apply(locked_out, more)
    nobody = tmp_path / "nobody.toml"
    nobody.write_text(definitions(tmp_path / "x.toml", "a", "b").read_text().replace("administer", "change"))
    with pytest.raises(AccessError, match="NOBODY_ADMINISTERS"):
        apply(locked_out, nobody)
    assert len(locked_out.records()) == before


def test_while_a_coordinator_serves_that_does_not_stop_nothing_is_changed(
    locked_out: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service starts it again at once: the owner of the store stops the service first."""
    locked_out.ping()
    monkeypatch.setattr("spark_queue.cli.stop.stop_coordinator", lambda *_: True)
    monkeypatch.setattr(store_owner, "_ENDS_WITHIN_S", 0.5)
    before = locked_out.ping().epoch
    with pytest.raises(CoordinatorError, match="COORDINATOR_SERVES"):
        apply(locked_out, definitions(tmp_path / "after.toml", "admin", "reader"))
    assert locked_out.ping().epoch == before
