"""PostgreSQL as a peer: a server of its own, and clients. It promises what a journal does here: what is committed survives kills.

Power loss it does not survive (``fsync = off``), as a journal does not by default.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.figure import NotMeasuredError

#: What a client is told to write once it has the answers to all statements.
_END = "answered"


@dataclass(frozen=True, slots=True)
class Postgres:
    """A server that runs."""

    port: str

    def _command(self, *options: str) -> list[str]:
        # psql sends, and commits, each statement by itself.
        return [*f"psql -X -h 127.0.0.1 -p {self.port} -U bench -q -v ON_ERROR_STOP=1 -d postgres".split(), *options]

    def ask(self, text: str) -> None:
        """Send statements by a client of its own, and wait for all answers."""
        lines = text.replace(";", ";\n")
        subprocess.run(
            self._command("-f", "-"), input=lines, text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    @contextmanager
    def client(self) -> Iterator[Callable[[str], str]]:
        """Yield a client that stays connected: it sends statements, and returns what they found."""
        command = self._command("-A", "-t")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
            given, told = process.stdin, process.stdout
            assert given is not None
            assert told is not None

            def ask(statements: str) -> str:
                given.write(f"{statements}\n\\echo {_END}\n")
                found = []
                while (line := told.readline().rstrip("\n")) != _END:
                    if not line:
                        raise NotMeasuredError("PostgreSQL's client has ended")
                    found.append(line)
                return "\n".join(found)

            yield ask
            given.close()


@contextmanager
def postgres(place: Path) -> Iterator[Postgres]:
    """Run a server in a directory, which it makes.

    Raises
    ------
    NotMeasuredError
        It is not installed here.
    """
    if shutil.which("initdb") is None or shutil.which("psql") is None:
        raise NotMeasuredError("PostgreSQL is not installed here")
    place.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    # It refuses to run as root.
    as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
    if as_user:
        shutil.chown(place, "nobody", "nogroup")
        for parent in place.parents:
            with suppress(PermissionError):
                parent.chmod(parent.stat().st_mode | 0o011)
    data, options = place / "data", f"-p {port} -k {place} -c fsync=off -c listen_addresses=127.0.0.1"

    def run(*words: str) -> None:
        subprocess.run([*as_user, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    run("initdb", "-D", str(data), "-U", "bench", "--auth=trust")
    run("pg_ctl", "-D", str(data), "-o", options, "-w", "start", "-l", str(place / "log"))
    try:
        yield Postgres(port)
    finally:
        run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
