"""An S3 server as a process: `python -m tests.integration.s3_server` runs moto's, until its stdin is closed.

Moto decides a conditional put in two steps, looking and then writing, so two racing puts could both win; a real store does
not allow that. The server therefore serves one changing request at a time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from tests.source_tree import ROOT

#: What must never be seen outside a process's memory and its stdin.
SECRET = "NobodyMayEverSeeThisSecretAccessKey"

BUCKET = "journals"

#: A server started with this argument ignores conditions, as old object stores do.
UNCONDITIONAL = "--ignore-conditions"

#: Before the address that it listens on, where that is not this host's loopback.
HOST = "--host"

_Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


#: What a server that runs is told, line by line: to drop every request from now on, and to serve again.
_VANISH, _COME_BACK = "vanish\n", "come back\n"


class S3Server(Protocol):
    """A server with an empty bucket, whose objects outlive its absences."""

    endpoint: str
    #: Storage options by which it is reached.
    options: dict[str, str]

    def vanish(self) -> None:
        """Answer nobody from now on."""
        ...

    def come_back(self) -> None:
        """Answer again."""
        ...


class MotoServer:
    """Moto's server as a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = self._line()
        self.options = s3_options(self.endpoint)
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT"), timeout=30).close()

    def vanish(self) -> None:
        self._tell(_VANISH)

    def come_back(self) -> None:
        self._tell(_COME_BACK)

    def _tell(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order)
        self._process.stdin.flush()
        assert self._line() == order.strip()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def s3_server(*arguments: str) -> Iterator[S3Server]:
    """Run moto's server with an empty bucket."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.s3_server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        try:
            yield MotoServer(process)
        finally:
            process.kill()


def s3_options(endpoint: str, *, secret: str = SECRET) -> dict[str, str]:
    """Return the storage options of a server."""
    return {
        "aws_access_key_id": "key-of-the-tests",
        "aws_secret_access_key": secret,
        "aws_endpoint_url": endpoint,
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
    }


def objects(endpoint: str) -> Mapping[str, bytes]:
    """Return every object that the server holds."""
    import obstore
    from obstore.store import S3Store

    config: Any = s3_options(endpoint)
    client_options: Any = {"allow_http": config.pop("aws_allow_http")}
    store = S3Store(BUCKET, config=config, client_options=client_options)
    return {found["path"]: bytes(obstore.get(store, found["path"]).bytes()) for found in obstore.list(store).collect()}


def _one_at_a_time(application: _Application, is_gone: threading.Event, *, ignores_conditions: bool) -> _Application:
    changing = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if is_gone.is_set():
            # The server closes the connection without a word.
            raise ConnectionAbortedError
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return application(environ, start_response)
        if ignores_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with changing:
            return application(environ, start_response)

    return serve


def main(arguments: list[str]) -> None:
    """Serve until stdin is closed."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    is_gone = threading.Event()
    moto = DomainDispatcherApplication(create_backend_app)
    application = _one_at_a_time(moto, is_gone, ignores_conditions=UNCONDITIONAL in arguments)
    host = arguments[arguments.index(HOST) + 1] if HOST in arguments else "127.0.0.1"
    server = make_server(host, 0, application, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://{host}:{server.port}\n")
    sys.stdout.flush()
    for order in sys.stdin:
        if order == _VANISH:
            is_gone.set()
        else:
            is_gone.clear()
        sys.stdout.write(order)
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
