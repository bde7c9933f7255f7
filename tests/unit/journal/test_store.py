"""Where a journal stands and its object operations."""

from __future__ import annotations

import pickle
import shutil
from functools import partial
from pathlib import Path

import obstore
import pytest

from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal.store import CONTROL_LOG, Store


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Make a directory that is a journal as far as writing asks."""
    (tmp_path / CONTROL_LOG).mkdir(parents=True)
    return tmp_path


def test_store_is_lazy_and_survives_pickling(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "nowhere"), {"AWS_Region": "x"})
    assert not (tmp_path / "nowhere").exists()
    copy = pickle.loads(pickle.dumps(store))
    assert (copy, hash(copy), copy.storage_options) == (store, hash(store), {"aws_region": "x"})


def test_store_makes_local_paths_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors and the coordinator have other working directories."""
    monkeypatch.chdir(tmp_path)
    assert Store("a/../b").path == str(tmp_path / "b")
    assert Store(f"file://{tmp_path}/with%20space").path == f"{tmp_path}/with space"
    assert Store(f"file:{tmp_path}/with%20space").path == f"{tmp_path}/with space"
    assert Store("s3://bucket/prefix/").path == "s3://bucket/prefix"
    assert Store("s3://bucket/prefix").messages_uri("json") == "s3://bucket/prefix/messages/json"


def test_store_never_shows_its_options() -> None:
    store = Store("s3://bucket/p", {"aws_secret_access_key": "tell-nobody", "aws_endpoint_url": "http://h"})
    assert "tell-nobody" not in repr(store)
    assert store.reason(OSError("GET http://h?sig=tell-nobody failed\nDebug: tell-nobody")) == "GET http://h?sig=*** failed."


def test_reason_of_a_kernel_failure_holds_the_causes_that_stand_below_it() -> None:
    """As delta-rs words it where a log may not be read; what no arrow leads is Rust's own."""
    causes = (
        "\x1b[31m↳\x1b[0m Unable to open file /j/_delta_log\n   \x1b[31m↳\x1b[0m Permission denied (os error 13)\n\n  backtrace"
    )
    failure = OSError(f"Kernel error -> Generic LocalFileSystem error\n  {causes}")
    told = "Kernel error -> Generic LocalFileSystem error: Unable to open file /j/_delta_log: Permission denied (os error 13)."
    assert Store("journal").reason(failure) == told


def test_reason_of_a_library_that_prints_whole_structures_is_cut_in_the_middle() -> None:
    """What it is about stands in front, and the cause may come last."""
    said = Store("/nowhere").reason(OSError("Kernel error: found gap: " + "ParsedLogPath " * 100 + "Permission denied"))
    assert said.startswith("Kernel error: found gap: ParsedLogPath")
    assert said.endswith("Permission denied.")
    assert len(said) < 500


def test_objects_are_written_read_listed_and_deleted(place: Path) -> None:
    store = Store(str(place))
    assert store.read("a/1") is None
    store.make_folder("a")
    store.make_folder("a")
    store.write("a/1", b"one")
    store.write("a/1", b"uno")
    assert store.create("a/2", b"two")
    assert not store.create("a/2", b"due")
    assert (store.read("a/1"), store.read("a/2")) == (b"uno", b"two")
    assert [(entry.key, entry.size_bytes) for entry in store.list("a")] == [("a/1", 3), ("a/2", 3)]
    assert [entry.key for entry in store.list("a", after="a/1")] == ["a/2"]
    store.delete(["a/1", "a/none"])
    assert [entry.key for entry in store.list("a")] == ["a/2"]


def test_a_store_that_lists_also_what_stands_before_the_place_it_was_told_to_begin_at_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store("memory:///listed")
    for key in ("a/1", "a/2", "a/3"):
        store.write(key, b"")
    listed = obstore.list
    monkeypatch.setattr(obstore, "list", lambda found, prefix, **_: listed(found, prefix))
    assert [entry.key for entry in store.list("a", after="a/1")] == ["a/2", "a/3"]


def test_a_listing_of_a_disk_follows_links_once_and_leaves_out_drafts_and_what_leads_to_nothing(place: Path) -> None:
    """Where the folders of a journal lie is up to who set it up."""
    store, elsewhere = Store(str(place)), place / "elsewhere"
    elsewhere.mkdir()
    store.make_folder("a")
    (place / "a" / "there").symlink_to(elsewhere)
    (elsewhere / "round").symlink_to(place / "a")
    (elsewhere / "file").write_bytes(b"xy")
    (place / "a" / "linked").symlink_to(elsewhere / "file")
    (place / "a" / "lost").symlink_to(elsewhere / "none")
    for name in ("1.json", "1.json#123", "1#x", "#", "2#3#4"):
        (place / "a" / name).write_bytes(b"")
    found = [(entry.key, entry.size_bytes) for entry in store.list("a")]
    assert found == [("a/#", 0), ("a/1#x", 0), ("a/1.json", 0), ("a/2#3#4", 0), ("a/linked", 2), ("a/there/file", 2)]
    assert store.folders("a") == ["a/there"]
    assert [store.list("none"), store.list("a/1.json"), store.folders("none"), store.folders("a/1.json")] == [[], [], [], []]


def test_writer_leaves_nothing_when_it_fails(place: Path) -> None:
    store = Store(str(place))

    def write_half() -> None:
        with store.writer("f") as sink:
            sink.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert store.read("f") is None


def test_failure_names_the_place_and_the_deed(place: Path) -> None:
    (place / "file").write_bytes(b"")
    with pytest.raises(JournalError, match=r"STORE_FAILED.*while writing file/key"):
        Store(str(place)).write("file/key", b"")


def sink(store: Store, key: str, data: bytes) -> None:
    with store.writer(key) as file:
        file.write(data)


@pytest.mark.parametrize("left", ["", "messages/json/_delta_log"], ids=["nothing", "a mount point, or what another made"])
def test_a_journal_that_disappeared_is_not_made_anew_by_writing(tmp_path: Path, left: str) -> None:
    """What would be written there is hidden when it comes back, and until then it stands in its place."""
    store = Store(str(tmp_path / "journal"))
    if left:
        (tmp_path / "journal" / left).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    for key in ("beacon.json", f"{CONTROL_LOG}/{7:020d}.json", f"messages/json/_delta_log/{7:020d}.json"):
        for write in (store.write, store.create, partial(sink, store)):
            with pytest.raises(JournalError, match="STORE_FAILED.*control log is not there"):
                write(key, b"{}")
    with pytest.raises(JournalError, match="STORE_FAILED.*control log is not there"):
        store.make_folder("snapshots")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_journal_that_disappears_while_it_is_written_is_not_made_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking and writing are two moments."""
    store, require = Store(str(place)), Store._require_log

    def vanish_after(store: Store) -> None:
        require(store)
        shutil.rmtree(place / "control")

    monkeypatch.setattr(Store, "_require_log", vanish_after)
    for write in (store.write, store.create, partial(sink, store)):
        (place / CONTROL_LOG).mkdir(parents=True, exist_ok=True)
        with pytest.raises(JournalError, match="STORE_FAILED.*No such file"):
            write(f"{CONTROL_LOG}/{7:020d}.json", b"{}")
    assert list(place.iterdir()) == []


def test_check_put_if_absent_accepts_a_disk_and_cleans_up(place: Path) -> None:
    Store(str(place)).check_put_if_absent()
    assert [each.name for each in place.iterdir()] == ["control"]


def test_check_put_if_absent_refuses_a_store_that_overwrites(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrite(store: Store, key: str, data: bytes) -> bool:
        store.write(key, data)
        return True

    monkeypatch.setattr(Store, "create", overwrite)
    with pytest.raises(JournalError, match="STORE_UNSAFE"):
        Store(str(place)).check_put_if_absent()
    assert [each.name for each in place.iterdir()] == ["control"]


def test_check_put_if_absent_refuses_unsafe_renames() -> None:
    with pytest.raises(JournalError, match="STORE_UNSAFE"):
        Store("s3://bucket/p", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}).check_put_if_absent()


@pytest.mark.parametrize(
    ("path", "option"),
    [("/data/journal", "aws_region"), ("s3://bucket/p", "azure_storage_account_key"), ("gs://bucket/p", "aws_region")],
)
def test_an_option_that_the_store_cannot_take_is_named_without_its_value(path: str, option: str) -> None:
    with pytest.raises(ConfigError, match=f"STORAGE_OPTION_UNSUPPORTED.*{option}") as refused:
        Store(path, {option: "a secret"}).check_options()
    assert "a secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/data/journal", {}),
        ("s3://bucket/p", {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "r"}),
        ("s3://bucket/p", {"AWS_ENDPOINT_URL": "http://localhost:1", "AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag"}),
        ("s3://bucket/p", {"aws_unsigned_payload": "true", "aws_server_side_encryption": "AES256"}),
        ("abfss://box@account.dfs.core.windows.net/p", {"azure_storage_account_key": "YQ=="}),
        ("abfss://box@account.dfs.core.windows.net/p", {"bearer_token": "a"}),
    ],
)
def test_options_of_the_kind_of_store_are_taken(path: str, options: dict[str, str]) -> None:
    Store(path, options).check_options()


def test_unknown_storage_option_is_named() -> None:
    with pytest.raises(ConfigError, match="STORAGE_OPTION_UNSUPPORTED.*'aws_nonsense'"):
        Store("s3://bucket/p", {"aws_nonsense": "1"}).read("x")
