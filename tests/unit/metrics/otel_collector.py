"""A collector of OpenTelemetry in this process: it keeps what it is sent over HTTP."""

from __future__ import annotations

import gzip
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

#: Path and body of a request.
Sent = tuple[str, bytes]


@contextmanager
def collector() -> Iterator[tuple[str, queue.SimpleQueue[Sent]]]:
    """Listen; gives the address and what was sent."""
    sent: queue.SimpleQueue[Sent] = queue.SimpleQueue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent.put((self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", sent
        server.shutdown()
        thread.join()
