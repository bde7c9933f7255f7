"""The token file and the start lock (DESIGN 6, RPC; 15.16)."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.journal.store import Store
from spark_queue.protocol import user_files
from spark_queue.protocol.host import location_of


@pytest.fixture(autouse=True)
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv(user_files.TOKEN_FILE_VARIABLE, raising=False)


def test_the_token_is_made_on_first_use_for_its_owner_only() -> None:
    first = user_files.token()
    assert len(first) >= 32
    assert stat.S_IMODE(user_files.token_path().stat().st_mode) == 0o600
    assert user_files.token() == first


def test_callers_that_start_at_once_agree_on_one_token() -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(lambda _: user_files.token(), range(32)))
    assert len(tokens) == 1
    assert [entry.name for entry in user_files.state_directory().iterdir()] == ["token"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o440, 0o700])
def test_a_token_file_of_another_mode_is_refused(mode: int) -> None:
    user_files.token()
    user_files.token_path().chmod(mode)
    with pytest.raises(CoordinatorError, match=f"has mode {mode:04o} instead of 0600 or 0400"):
        user_files.token()


def test_a_token_file_that_nobody_may_write_is_as_good() -> None:
    """A secret that is mounted into a container, as conf/Containerfile says."""
    made = user_files.token()
    user_files.token_path().chmod(0o400)
    assert user_files.token() == made


def test_a_token_file_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    user_files.token()
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    monkeypatch.setattr(user_files, "_own_directory", lambda directory: directory)
    with pytest.raises(CoordinatorError, match="belongs to another user"):
        user_files.token()


def test_an_empty_token_file_is_refused() -> None:
    user_files.token()
    user_files.token_path().write_text("")
    with pytest.raises(CoordinatorError, match="is empty"):
        user_files.token()


@pytest.mark.parametrize("text", ["two\nlines", "caf\u00e9", "a\x01b", "\ufefftoken", "x" * 4_097])
def test_what_no_call_can_carry_is_no_token(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who calls with it would find nobody, and a coordinator that is started so would depose the one that serves."""
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"\[BAD_VALUE\] 'token_file' .*must be one token, printable ASCII"):
        user_files.token(str(file))
    monkeypatch.setenv(user_files.TOKEN_VARIABLE, text)
    with pytest.raises(ConfigError, match=r"\[BAD_VALUE\] 'SPARKQ_TOKEN' .*\(not shown\)") as refusal:
        user_files.token()
    assert text not in str(refusal.value)


def test_a_token_file_that_nobody_named_and_that_cannot_be_read_is_said_to_be_the_users_own() -> None:
    user_files.token_path().mkdir()
    with pytest.raises(ConfigError, match=r"'token' in the user's state directory is '.*must be a file that can be read"):
        user_files.token()


def test_a_named_token_file_is_made_by_who_serves_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls was told of a token that exists; a new one would open no door."""
    named = tmp_path / "token"
    monkeypatch.setenv(user_files.TOKEN_FILE_VARIABLE, str(named))
    with pytest.raises(ConfigError, match=rf"\[BAD_VALUE\] '{user_files.TOKEN_FILE_VARIABLE}' in the environment is '{named}'"):
        user_files.token()
    assert not named.exists()
    made = user_files.token(makes_named=True)
    assert user_files.token() == made


def test_a_token_file_that_cannot_be_made_is_named_with_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(user_files.TOKEN_FILE_VARIABLE, str(tmp_path / "nowhere" / "token"))
    said = f"USER_DIRECTORY_UNUSABLE.*'{tmp_path / 'nowhere'}'.*No such file.*{user_files.TOKEN_FILE_VARIABLE}"
    with pytest.raises(CoordinatorError, match=said):
        user_files.token(makes_named=True)


def test_a_token_file_that_the_caller_names_goes_before_the_environment_and_is_never_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named"
    monkeypatch.setenv(user_files.TOKEN_VARIABLE, "of the environment")
    with pytest.raises(ConfigError, match=rf"\[BAD_VALUE\] 'token_file' in the call is '{named}'.*No such file"):
        user_files.token(str(named))
    assert not named.exists()
    named.touch(mode=0o600)
    named.write_text("named\n")
    assert user_files.token(str(named)) == "named"
    assert user_files.token() == "of the environment"
    named.chmod(0o640)
    with pytest.raises(CoordinatorError, match="TOKEN_FILE_UNSAFE.*has mode 0640"):
        user_files.token(str(named))


def test_a_directory_that_somebody_else_made_first_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = user_files.runtime_directory()
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(CoordinatorError, match=f"'{directory}' cannot be used.*belongs to another user.*XDG_RUNTIME_DIR"):
        user_files.runtime_directory()


@pytest.mark.parametrize("taken_by", ["a directory of somebody else", "a file"])
def test_who_takes_our_place_under_the_temporary_directory_keeps_nobody_from_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_by: str
) -> None:
    owner = os.getuid()
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ours = tmp_path / f"spark_queue-{owner}"
    assert user_files.runtime_directory() == ours
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    if taken_by == "a file":
        ours.rmdir()
        ours.touch()
    else:
        monkeypatch.setattr(user_files, "_own_directory", lambda directory: directory)
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert user_files.runtime_directory() == user_files.state_directory()


def test_one_starter_at_a_time_has_the_lock_and_the_other_goes_on_after_its_patience() -> None:
    with (
        user_files.start_lock("j", timeout_s=1.0) as first,
        user_files.start_lock("j", timeout_s=0.0) as second,
        user_files.start_lock("other", timeout_s=0.0) as elsewhere,
    ):
        assert (first, second, elsewhere) == (True, False, True)
    with user_files.start_lock("j", timeout_s=0.0) as after:
        assert after


def test_a_long_log_is_set_aside() -> None:
    os.close(user_files.open_log("j", "17"))
    path = user_files.log_path("j", "17")
    path.write_bytes(b"x" * (10 * 1024 * 1024 + 1))
    os.close(user_files.open_log("j", "17"))
    assert path.stat().st_size == 0
    assert path.with_suffix(".log.1").stat().st_size > 0


def test_a_copy_of_a_journal_has_a_log_of_its_own(tmp_path: Path) -> None:
    path = user_files.log_path("j", location_of(Store(str(tmp_path))))
    assert path == user_files.log_path("j", location_of(Store(f"{tmp_path}/../{tmp_path.name}")))
    (tmp_path / "copy").mkdir()
    assert path != user_files.log_path("j", location_of(Store(str(tmp_path / "copy"))))
    assert user_files.log_path("j", location_of(Store("s3://bucket/shop"))).parent == user_files.state_directory()


@pytest.mark.parametrize(
    ("variable", "directory"),
    [("XDG_STATE_HOME", user_files.state_directory), ("XDG_RUNTIME_DIR", user_files.runtime_directory)],
)
def test_a_directory_that_cannot_be_made_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, directory: Callable[[], Path]
) -> None:
    """A service account often has no home."""
    monkeypatch.setenv(variable, "/dev/null/nowhere")
    with pytest.raises(CoordinatorError, match=f"USER_DIRECTORY_UNUSABLE.*/dev/null/nowhere.*{variable}"):
        directory()
