"""An S3 server as a process: `python -m tests.integration.s3_server` runs moto's, until its stdin is closed.

Moto decides a conditional put in two steps, looking and then writing, so two racing puts could both win; a real store does
not allow that. The server therefore serves one changing request at a time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections import Counter
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


#: What a server that runs is told, line by line: to drop every request from now on, to serve again, and to tell what it was asked.
_VANISH, _COME_BACK, _TELL = "vanish\n", "come back\n", "tell\n"

#: How often a server was asked for what: by kind, of which `LIST` and `DELETE` may be questions to the bucket, and by key, or the
#: prefix of a listing.
Requests = Counter[tuple[str, str]]


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

    def requests(self) -> Requests:
        """Return what it was asked for so far."""
        return Counter({(kind, key): count for kind, key, count in json.loads(self._tell(_TELL))})

    def _tell(self, order: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(order)
        self._process.stdin.flush()
        return self._line()

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


def _kind_and_key(environ: Mapping[str, Any]) -> tuple[str, str]:
    key = environ["PATH_INFO"].removeprefix(f"/{BUCKET}").strip("/")
    asked = urllib.parse.parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
    if not key:
        # Objects are deleted, and listed, by asking the bucket.
        return "DELETE" if "delete" in asked else "LIST", asked.get("prefix", [""])[0]
    return environ["REQUEST_METHOD"], key


def _one_at_a_time(
    application: _Application, is_gone: threading.Event, asked: Requests, *, ignores_conditions: bool
) -> _Application:
    changing = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with changing:
            asked[_kind_and_key(environ)] += 1
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

    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    is_gone, asked = threading.Event(), Requests()
    # Its dispatcher of services looks for each request which ones there are: half of the server's time.
    application = _one_at_a_time(create_backend_app("s3"), is_gone, asked, ignores_conditions=UNCONDITIONAL in arguments)
    host = arguments[arguments.index(HOST) + 1] if HOST in arguments else "127.0.0.1"
    server = make_server(host, 0, application, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://{host}:{server.port}\n")
    sys.stdout.flush()
    for order in sys.stdin:
        if order == _TELL:
            sys.stdout.write(json.dumps([[*what, count] for what, count in list(asked.items())]) + "\n")
        else:
            (is_gone.set if order == _VANISH else is_gone.clear)()
            sys.stdout.write(order)
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
