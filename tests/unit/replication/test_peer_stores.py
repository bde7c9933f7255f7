"""With which storage options a peer's journal is read (DESIGN 17.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import PeerDefinition
from spark_queue.errors import ConfigError
from spark_queue.journal.store import Store
from spark_queue.journal.stores_file import STORES_FILE_VARIABLE
from spark_queue.replication.peer_stores import peer_store

OWN = {"aws_region": "eu-central-1"}

STORES = """
["s3://shop-us"]
aws_region = "us-east-1"

["s3://shop-us/west/"]
AWS_REGION = "us-west-1"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(STORES_FILE_VARIABLE, raising=False)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode(errors="surrogateescape"))


def peer(path: str) -> PeerDefinition:
    stored = {
        "journal": {"instance": "frankfurt"},
        "peers": {"virginia": {"journal": path, "topics": ["T"]}},
        "message_types": {"json": {"topics": ["T"]}},
    }
    return parsing.parse(stored).peers["virginia"]


def options(path: str) -> dict[str, str]:
    return dict(peer_store(Store("s3://shop-eu/journal", OWN), peer(path)).storage_options)


def test_without_a_file_they_are_those_of_the_own_journal() -> None:
    assert options("s3://shop-us/journal") == OWN


@pytest.mark.parametrize(
    ("path", "region"),
    [
        ("s3://shop-us", "us-east-1"),
        ("s3://shop-us/journal", "us-east-1"),
        ("s3://shop-us/west/journal/", "us-west-1"),
        ("s3://shop-us/western", "us-east-1"),
        ("s3://shop-us2/journal", "eu-central-1"),
    ],
)
def test_the_longest_name_of_a_store_that_a_path_begins_with_counts(tmp_path: Path, path: str, region: str) -> None:
    write(tmp_path / "spark_queue" / "stores.toml", STORES)
    assert options(path) == {"aws_region": region}


def test_another_file_may_be_named_and_is_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "spark_queue" / "stores.toml", STORES)
    write(tmp_path / "mine", '["s3://shop-us"]\naws_region = "mine"')
    monkeypatch.setenv(STORES_FILE_VARIABLE, str(tmp_path / "mine"))
    assert options("s3://shop-us/journal") == {"aws_region": "mine"}
    write(tmp_path / "mine", '["s3://shop-us"]\naws_region = "rotated"')
    assert options("s3://shop-us/journal") == {"aws_region": "rotated"}


@pytest.mark.parametrize("text", ["aws_region = 'x'", '["s3://b"]\naws_allow_http = true', "[", "\udcff"])
def test_a_file_that_says_something_else_is_refused_without_its_values(tmp_path: Path, text: str) -> None:
    write(tmp_path / "spark_queue" / "stores.toml", text)
    with pytest.raises(ConfigError, match="STORES_UNREADABLE"):
        options("s3://shop-us/journal")


def test_a_named_file_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORES_FILE_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="STORES_UNREADABLE"):
        options("s3://shop-us/journal")
