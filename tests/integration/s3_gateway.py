"""A real S3 server as a process: Versity's gateway over a directory, where its program is at hand (`make gateway`)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.integration.s3_server import BUCKET, HOST, SECRET, S3Server, s3_options, s3_server
from tests.waiting import wait_until

PROGRAM = shutil.which("versitygw")

#: The kinds of server that tests run: moto's always, and the real one where its program is at hand.
KINDS = ("moto", "gateway") if PROGRAM else ("moto",)

_START_S = 30.0


class Gateway:
    """The gateway, which can be ended and started again over the same directory."""

    def __init__(self, directory: Path, secret: str, host: str) -> None:
        self._directory = directory
        (directory / BUCKET).mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind((host, 0))
            self._address = f"{host}:{free.getsockname()[1]}"
        self.endpoint = f"http://{self._address}"
        self.options = s3_options(self.endpoint, secret=secret)
        self.come_back()

    def vanish(self) -> None:
        self._process.kill()
        self._process.wait()

    def come_back(self) -> None:
        assert PROGRAM is not None
        keys = {
            "ROOT_ACCESS_KEY_ID": self.options["aws_access_key_id"],
            "ROOT_SECRET_ACCESS_KEY": self.options["aws_secret_access_key"],
        }
        self._process = subprocess.Popen(
            [PROGRAM, "--quiet", "--port", self._address, "posix", str(self._directory)],
            stdout=subprocess.DEVNULL,
            env={**os.environ, **keys},
        )
        wait_until(self._listens, lambda: "the gateway does not listen", deadline_s=_START_S)

    def _listens(self) -> bool:
        host, port = self._address.split(":")
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return True
        return False


@contextmanager
def s3_server_of(kind: str, directory: Path, *, secret: str = SECRET, host: str = "127.0.0.1") -> Iterator[S3Server]:
    """Run a server of a kind; only the gateway looks at secrets, and keeps its objects in a directory."""
    if kind == "moto":
        with s3_server(HOST, host) as server:
            yield server
        return
    gateway = Gateway(directory, secret, host)
    try:
        yield gateway
    finally:
        gateway.vanish()
