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
from typing import Any

from tests.source_tree import ROOT

#: What must never be seen outside a process's memory and its stdin.
SECRET = "NobodyMayEverSeeThisSecretAccessKey"

BUCKET = "journals"

#: A server started with this argument ignores conditions, as old object stores do.
UNCONDITIONAL = "--ignore-conditions"

_Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


@contextmanager
def s3_server(*arguments: str) -> Iterator[str]:
    """Run a server with an empty bucket, and give its endpoint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.s3_server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        try:
            assert process.stdout is not None
            endpoint = process.stdout.readline().strip()
            urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=30).close()
            yield endpoint
        finally:
            process.kill()


def s3_options(endpoint: str) -> dict[str, str]:
    """Return the storage options of a server."""
    return {
        "aws_access_key_id": "key-of-the-tests",
        "aws_secret_access_key": SECRET,
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


def _one_at_a_time(application: _Application, *, ignores_conditions: bool) -> _Application:
    changing = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
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
    application = _one_at_a_time(DomainDispatcherApplication(create_backend_app), ignores_conditions=UNCONDITIONAL in arguments)
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
