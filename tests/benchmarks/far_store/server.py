"""An S3 server that answers as from far away, and what it was asked: Versity's gateway behind a proxy that waits and counts."""

from __future__ import annotations

import shutil
import subprocess
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import msgspec

from spark_queue.journal.store import ADVERTISEMENT_KEY
from tests.benchmarks.figure import NotMeasuredError
from tests.integration.s3_gateway import PROGRAM, s3_server_of
from tests.integration.s3_server import s3_options

#: The program of `latency_proxy.go`, where it is at hand (`make bench`).
PROXY = shutil.which("latency_proxy")

#: Milliseconds that requests wait, by kind: those of a store in the same region.
FAR: Mapping[str, float] = MappingProxyType({"GET": 20, "LIST": 20, "DELETE": 20, "PUT": 30, "COPY": 30})


class Request(msgspec.Struct, frozen=True):
    """One request; times are seconds since 1970, sizes bytes of bodies."""

    begun_s: float
    ended_s: float
    #: GET, HEAD, PUT, POST and DELETE by method; LIST, COPY, and DELETE of many keys by what they ask for.
    kind: str
    #: Bucket and key, or bucket and prefix of a listing.
    key: str
    status: int
    sent_bytes: int
    answered_bytes: int
    agent: str


class FarServer:
    """The server; it is near until it is told to be far."""

    def __init__(self, own: str, control: str) -> None:
        self.endpoint = f"http://{own}"
        self.options = s3_options(self.endpoint)
        self._control = control

    def wait(self, latency_ms: Mapping[str, float], *, times: float = 1, sigma: float = 0, tail: float = 0) -> None:
        """Let requests wait from now on, by kind, `times` as long, and spread by `sigma`; a share `tail` waits 100 ms more."""
        settings = {**{kind: ms * times for kind, ms in latency_ms.items()}, "sigma": sigma, "tail": tail, "tail_ms": 100 * times}
        self._ask(f"/latency?{urllib.parse.urlencode(settings)}")

    def forget(self) -> None:
        """Forget all requests so far."""
        self._ask("/forget")

    def requests(self) -> list[Request]:
        """Return the requests that were answered since, in the order in which they came."""
        found = [msgspec.json.decode(line, type=Request) for line in self._ask("/requests").splitlines()]
        return sorted(found, key=lambda each: each.begun_s)

    def _ask(self, what: str) -> bytes:
        with urllib.request.urlopen(f"http://{self._control}{what}", timeout=60) as answer:
            return bytes(answer.read())


@contextmanager
def far_server(directory: Path) -> Iterator[FarServer]:
    """Run a server over a directory."""
    if PROXY is None or PROGRAM is None:
        raise NotMeasuredError("`make bench` builds its S3 server and its proxy where Go is installed")
    with s3_server_of("gateway", directory) as gateway:
        to = gateway.endpoint.removeprefix("http://")
        with subprocess.Popen([PROXY, "-to", to], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield FarServer(*process.stdout.readline().split())
            finally:
                process.kill()


def waiting_s(requests: Iterable[Request]) -> float:
    """Return how long at least one request was under way: no processor, however fast, makes it shorter."""
    until_s = waited_s = 0.0
    for each in sorted(requests, key=lambda each: each.begun_s):
        if each.ended_s > until_s:
            waited_s += each.ended_s - max(each.begun_s, until_s)
            until_s = each.ended_s
    return waited_s


def kinds_of(requests: Iterable[Request]) -> Counter[str]:
    """Return how many requests there are of each kind."""
    return Counter(each.kind for each in requests)


def is_commit(request: Request, table: str) -> bool:
    """Return whether a request has put an entry into the log of a table, of which the end of the path is given."""
    return (
        request.kind == "PUT" and request.status == 200 and request.key.endswith(".json") and f"/{table}/_delta_log/" in request.key
    )


def between_commits(requests: Iterable[Request], table: str) -> list[list[Request]]:
    """Return the requests of each batch but the first and the last: from one commit of a table to the next."""
    of_batches = [each for each in requests if not each.key.endswith(ADVERTISEMENT_KEY)]
    ends = [each.ended_s for each in of_batches if is_commit(each, table)]
    return [[each for each in of_batches if begun < each.ended_s <= ended] for begun, ended in pairwise(ends)]
