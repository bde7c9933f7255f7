"""Instances in object stores: two journals in one, and one in each of two of which one disappears."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from spark_queue.journal.stores_file import STORES_FILE_VARIABLE
from tests.integration.coordinator_world import QUEUE, Planner, World
from tests.integration.s3_gateway import KINDS, s3_server_of
from tests.integration.s3_server import BUCKET, S3Server
from tests.integration.sites import journal_of, owners, peer, ping, received, site, states
from tests.integration.source_journal import wait_until

NAMES = ("frankfurt", "virginia")

pytestmark = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_user: None) -> Iterator[ExitStack]:
    """End what was made, in reverse: coordinators before their servers."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with ExitStack() as stack:
        yield stack


def two_sites(worlds: ExitStack, servers: Mapping[str, S3Server]) -> dict[str, World]:
    """Make two journals that pull from each other, each at its server."""
    paths = {name: f"s3://{BUCKET}/{name}" for name in NAMES}
    made = {}
    for name, other in (NAMES, NAMES[::-1]):
        made[name] = site(paths[name], name, {other: peer(paths[other])}, storage_options=servers[name].options)
        worlds.callback(made[name].end)
    ping([*made.values()])
    return made


def table_of(name: str, server: S3Server) -> str:
    """Return what a file of stores says of a server."""
    options = [f"{key} = {json.dumps(value)}" for key, value in server.options.items()]
    return "\n".join([f'["s3://{BUCKET}/{name}"]', *options])


def test_two_journals_in_one_store_share_transfer_and_agree(kind: str, worlds: ExitStack, tmp_path: Path) -> None:
    server = worlds.enter_context(s3_server_of(kind, tmp_path / "objects"))
    frankfurt, virginia = two_sites(worlds, dict.fromkeys(NAMES, server)).values()
    frankfurt.publish(5)
    virginia.publish(3)
    wait_until(lambda: states(frankfurt) == {"available": 5, "remote": 3})
    wait_until(lambda: states(virginia) == {"available": 3, "remote": 5})
    assert sorted(received(Planner(virginia), 8)) == list(range(8))
    wait_until(lambda: states(frankfurt) == states(virginia) == {})


def test_the_other_store_disappears_and_comes_back(
    kind: str, worlds: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two stores differ in endpoint and secret, which only the file of stores says; both coordinators have that file."""
    servers = {}
    for name in NAMES:
        servers[name] = worlds.enter_context(s3_server_of(kind, tmp_path / f"of {name}", secret=f"TheSecretOf{name}"))
    file = tmp_path / "stores.toml"
    file.write_text("\n".join(map(table_of, NAMES, servers.values())))
    monkeypatch.setenv(STORES_FILE_VARIABLE, str(file))
    frankfurt, virginia = two_sites(worlds, servers).values()
    virginia.publish(4)
    wait_until(lambda: states(frankfurt) == {"remote": 4})
    assert owners(frankfurt) == {"virginia": 4}
    virginia.end()
    servers["virginia"].vanish()
    journal_of(frankfurt).queue(QUEUE).proxied_transfer(on=True)
    assert received(Planner(frankfurt), 4) == [0, 1, 2, 3]
    servers["virginia"].come_back()
    virginia.ping()
    wait_until(lambda: states(virginia) == {})
    virginia.publish(2)
    wait_until(lambda: states(frankfurt) == {"remote": 2})
