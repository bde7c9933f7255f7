"""The files of the user who runs a coordinator: token and logs in the state directory, locks in the runtime directory.

The token marks the user's own processes: every reader of the file may call, so the file belongs to
the user, is readable by nobody else, and any other file is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.journal.store import Store

if TYPE_CHECKING:
    from spark_queue.protocol.tokens import Token

#: Holds a token itself, for where secrets come in the environment; it goes before every file.
TOKEN_VARIABLE = "SPARKQ_TOKEN"  # noqa: S105  # A name, not a secret.

#: Names a token file other than the user's own, for callers of a coordinator that another user or host runs.
TOKEN_FILE_VARIABLE = "SPARKQ_TOKEN_FILE"  # noqa: S105  # A name, not a secret.

_LOCK_POLL_S = 0.05
_LOG_LIMIT_BYTES = 10 * 1024 * 1024


def state_directory() -> Path:
    """Return the directory of token and logs, made on first use."""
    root = os.environ.get("XDG_STATE_HOME")
    return _own_directory(Path(root) / "spark_queue" if root else Path.home() / ".local" / "state" / "spark_queue")


def runtime_directory() -> Path:
    """Return the directory of locks, which one host has for itself, made on first use."""
    root = os.environ.get("XDG_RUNTIME_DIR")
    if root:
        return _own_directory(Path(root) / "spark_queue", "XDG_RUNTIME_DIR")
    shared = Path(tempfile.gettempdir()) / f"spark_queue-{os.getuid()}"
    with suppress(OSError):
        shared.mkdir(mode=0o700, exist_ok=True)
        # Somebody else could have made it first, or a link there, and must keep nobody from a lock.
        if shared.lstat().st_uid == os.getuid():
            return shared
    return state_directory()


def _own_directory(directory: Path, variable: str = "XDG_STATE_HOME") -> Path:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as failure:
        raise _unusable(directory, failure.strerror, variable) from None
    if directory.stat().st_uid != os.getuid():
        # Its owner could replace files that are put there.
        raise _unusable(directory, "It belongs to another user", variable)
    return directory


def _unusable(directory: Path, reason: str | None, variable: str) -> CoordinatorError:
    return CoordinatorError("USER_DIRECTORY_UNUSABLE", directory=str(directory), reason=f"{reason}.", variable=variable)


def token_path() -> Path:
    """Return the token file: the one that `TOKEN_FILE_VARIABLE` names, or the user's own."""
    named = os.environ.get(TOKEN_FILE_VARIABLE)
    return Path(named) if named else state_directory() / "token"


def token(file: str | None = None, *, store: Store | None = None, makes_named: bool = False) -> str:
    """Return the text of the token that `find_token` finds."""
    return find_token(file, store=store, makes_named=makes_named).text


def find_token(file: str | None = None, *, store: Store | None = None, makes_named: bool = False) -> Token:
    """Read the token from a given file; without one return that of the environment, or read the user's own, made on first use.

    `makes_named` also makes a file that `TOKEN_FILE_VARIABLE` names: callers are given one, and only a coordinator may begin it.
    """
    if file is not None:
        return _read_token(Path(file), store, key="token_file", where="the call")
    given = os.environ.get(TOKEN_VARIABLE, "").strip()
    if given:
        return _choose(given, store, key=TOKEN_VARIABLE, where="the environment", value="(not shown)")
    path, is_named = token_path(), bool(os.environ.get(TOKEN_FILE_VARIABLE))
    if not path.exists() and (makes_named or not is_named):
        try:
            _make_token(path)
        except OSError as failure:
            variable = TOKEN_FILE_VARIABLE if is_named else "XDG_STATE_HOME"
            raise _unusable(path.parent, failure.strerror, variable) from None
    if is_named:
        return _read_token(path, store, key=TOKEN_FILE_VARIABLE, where="the environment")
    return _read_token(path, store, key=path.name, where="the user's state directory")


def _read_token(path: Path, store: Store | None, *, key: str, where: str) -> Token:
    try:
        file = path.open("rb")
    except OSError as failure:
        expected = f"a file that can be read and holds a token: of a principal, or of the host that serves ({failure.strerror})"
        raise ConfigError("BAD_VALUE", key=key, where=where, value=str(path), expected=expected) from None
    with file:
        _check_private(path, os.fstat(file.fileno()))
        text = file.read().decode(errors="replace").strip()
    if not text:
        raise CoordinatorError("TOKEN_FILE_UNSAFE", file=str(path), problem="is empty")
    return _choose(text, store, key=key, where=where, value=str(path))


def _choose(text: str, store: Store | None, *, key: str, where: str, value: str) -> Token:
    # Most publishers need no token, and load nothing of it.
    from spark_queue.protocol.tokens import choose_token  # noqa: PLC0415 - as said above.

    return choose_token(text, store, key=key, where=where, value=value)


def _make_token(path: Path) -> None:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
        # A link appears whole or not at all, and never replaces the token of a process that was faster.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _check_private(path: Path, status: os.stat_result) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.getuid():
        raise CoordinatorError("TOKEN_FILE_UNSAFE", file=str(path), problem="belongs to another user")
    # A secret that is mounted into a container is nobody's to write.
    if mode not in (0o600, 0o400):
        raise CoordinatorError("TOKEN_FILE_UNSAFE", file=str(path), problem=f"has mode {mode:04o} instead of 0600 or 0400")


def log_path(journal_id: str, location: str) -> Path:
    """Return the log file of a journal's coordinators at one place (`location_of`): a copy has the same id, and its own log."""
    mark = hashlib.blake2s(location.encode(), digest_size=4).hexdigest()
    return state_directory() / f"coordinator-{journal_id}-{mark}.log"


def open_log(journal_id: str, location: str) -> int:
    """Open the log for appending and give its descriptor; a long one is set aside first, replacing the one set aside before."""
    path = log_path(journal_id, location)
    if path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES:
        path.replace(path.with_suffix(".log.1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


@contextmanager
def start_lock(journal_id: str, *, timeout_s: float) -> Iterator[bool]:
    """Let one process of this host at a time start a coordinator of a journal.

    Yields whether the lock was had. Without it after `timeout_s` the caller goes on all the same: the lock saves needless
    starts, and only the control log decides about the reign. A paused holder must not keep everybody out.
    """
    descriptor = os.open(runtime_directory() / f"{journal_id}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _try_lock(descriptor, timeout_s)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_LOCK_POLL_S)
        else:
            return True
