"""Stores other than S3 as processes: Azurite for ADLS, fake-gcs-server for GCS, where their programs are at hand (`make stores`).

Both stand behind a relay, which can lose a reply. fake-gcs-server has no XML API, by which object_store writes and lists; its relay
asks it by the JSON API instead, and holds the parts of an upload itself.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from tests.integration.s3_gateway import s3_server_of
from tests.integration.s3_server import BUCKET
from tests.waiting import wait_until

_AZURITE, _FAKE_GCS = shutil.which("azurite-blob"), shutil.which("fake-gcs-server")

#: The kinds of store other than S3 whose programs are at hand.
OTHERS = tuple(kind for kind, program in (("azurite", _AZURITE), ("fake-gcs", _FAKE_GCS)) if program)

_HOST = "127.0.0.1"
_START_S = 30.0

#: Azurite's account, which it documents.
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_AZURE_VERSION = "2021-08-06"

#: Headers that each of the relay's two connections has for itself.
_OF_A_CONNECTION = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True)
class Request:
    """What a client asks."""

    method: str
    #: Path and query, as they came.
    target: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def key(self) -> str:
        """The key of an object, or empty."""
        return urllib.parse.unquote(self.target.partition("?")[0]).partition(f"/{BUCKET}")[2].strip("/")

    @property
    def query(self) -> dict[str, str]:
        """The parameters."""
        return dict(urllib.parse.parse_qsl(self.target.partition("?")[2], keep_blank_values=True))


@dataclass(frozen=True)
class Reply:
    """What a client is answered."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        """Return what the body says."""
        return json.loads(self.body)


class Relay:
    """A server in front of another one, which loses replies where it is told to."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._losing: list[str] = []
        #: How many replies were lost.
        self.lost = 0
        self._server = ThreadingHTTPServer((_HOST, 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://{_HOST}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def lose_reply_to_put(self, ending: str) -> None:
        """Carry out the next put of a key that ends so, and hang up without a word."""
        self._losing.append(ending)

    def end(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, request: Request) -> Reply:
        """Answer a request: as the server does."""
        return self.ask(request)

    def ask(self, request: Request) -> Reply:
        """Ask the server."""
        server = http.client.HTTPConnection(_HOST, self._to, timeout=60)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_A_CONNECTION}
        try:
            server.request(request.method, request.target, request.body, {**headers, "Host": f"{_HOST}:{self._to}"})
            found = server.getresponse()
            return Reply(found.status, {name.title(): value for name, value in found.getheaders()}, found.read())
        finally:
            server.close()

    def _loses(self, request: Request) -> bool:
        endings = [each for each in self._losing if request.method == "PUT" and request.key.endswith(each)]
        for ending in endings:
            self._losing.remove(ending)
            self.lost += 1
        return bool(endings)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _relay(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(self.command, self.path, dict(self.headers.items()), body)
                is_lost = relay._loses(request)
                reply = relay.answer(request)
                if is_lost:
                    self.close_connection = True
                    return
                self.send_response_only(reply.status)
                for name, value in reply.headers.items():
                    if name.lower() not in _OF_A_CONNECTION:
                        self.send_header(name, value)
                length = reply.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(reply.body))
                self.send_header("Content-Length", length)
                # Who needs no more of an object hangs up.
                with suppress(ConnectionError):
                    self.end_headers()
                    self.wfile.write(reply.body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _relay  # noqa: N815 - as http.server calls them

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler


class XmlRelay(Relay):
    """A relay that speaks as much of GCS's XML API as object_store needs, in front of a server that speaks the JSON API."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._uploads: dict[str, dict[int, bytes]] = {}

    def answer(self, request: Request) -> Reply:
        if not request.target.startswith(f"/{BUCKET}"):
            # The server knows no other bucket, and says so.
            return self.ask(request)
        if not request.key:
            return self._listed(request)
        upload = request.query.get("uploadId")
        if request.method == "POST":
            return self._finish(request, upload) if upload is not None else self._begin()
        if request.method == "PUT":
            return self._put(request) if upload is None else self._keep(request, upload)
        return self.ask(request)

    def _put(self, request: Request) -> Reply:
        condition = request.headers.get("x-goog-if-generation-match")
        named = {"uploadType": "media", "name": request.key}
        named |= {} if condition is None else {"ifGenerationMatch": condition}
        target = f"/upload/storage/v1/b/{BUCKET}/o?{urllib.parse.urlencode(named)}"
        reply = self.ask(Request("POST", target, {"Content-Type": "application/octet-stream"}, request.body))
        if reply.status != 200:
            return Reply(reply.status, body=reply.body)
        said = reply.json()
        return Reply(200, {"Etag": said["etag"], "x-goog-generation": said["generation"]})

    def _begin(self) -> Reply:
        upload = uuid.uuid4().hex
        self._uploads[upload] = {}
        said = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        return Reply(200, body=said.encode())

    def _keep(self, request: Request, upload: str) -> Reply:
        number = int(request.query["partNumber"])
        self._uploads[upload][number] = request.body
        return Reply(200, {"Etag": f'"{number}"'})

    def _finish(self, request: Request, upload: str) -> Reply:
        parts = self._uploads.pop(upload)
        reply = self._put(Request("PUT", request.target, {}, b"".join(parts[number] for number in sorted(parts))))
        etag = reply.headers["Etag"]
        return Reply(200, body=f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>".encode())

    def _listed(self, request: Request) -> Reply:
        names = {"prefix": "prefix", "delimiter": "delimiter", "start-after": "startOffset", "continuation-token": "pageToken"}
        asked = {names[name]: value for name, value in request.query.items() if name in names}
        found = self.ask(Request("GET", f"/storage/v1/b/{BUCKET}/o?{urllib.parse.urlencode(asked)}", {})).json()
        result = ET.Element("ListBucketResult")
        for item in found.get("items", []):
            # The JSON API lists the place that it begins at, and the XML API does not.
            if item["name"] != request.query.get("start-after"):
                of = ET.SubElement(result, "Contents")
                for name, said in (("Key", "name"), ("Size", "size"), ("LastModified", "updated"), ("ETag", "etag")):
                    ET.SubElement(of, name).text = item[said]
        for prefix in found.get("prefixes", []):
            ET.SubElement(ET.SubElement(result, "CommonPrefixes"), "Prefix").text = prefix
        if "nextPageToken" in found:
            ET.SubElement(result, "NextContinuationToken").text = found["nextPageToken"]
        return Reply(200, body=ET.tostring(result))


@dataclass(frozen=True)
class ObjectStore:
    """A store with an empty bucket."""

    #: The URL of the bucket, and the storage options by which it is reached.
    url: str
    options: dict[str, str]
    #: None where nothing stands in between.
    relay: Relay | None = None


@contextmanager
def store_of(kind: str, directory: Path) -> Iterator[ObjectStore]:
    """Run a store of a kind."""
    if kind in ("moto", "gateway"):
        with s3_server_of(kind, directory) as server:
            yield ObjectStore(f"s3://{BUCKET}", server.options)
        return
    with socket.socket() as free:
        free.bind((_HOST, 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(_command(kind, port, directory), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _listens(port), lambda: f"{kind} does not listen", deadline_s=_START_S)
        relay = Relay(port) if kind == "azurite" else XmlRelay(port)
        try:
            yield _azure(relay) if kind == "azurite" else _gcs(relay)
        finally:
            relay.end()
    finally:
        process.kill()
        process.wait()


def _command(kind: str, port: int, directory: Path) -> list[str]:
    if kind == "azurite":
        assert _AZURITE is not None
        place = ["--blobHost", _HOST, "--blobPort", str(port), "--location", str(directory)]
        return [_AZURITE, *place, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    assert _FAKE_GCS is not None
    place = ["-host", _HOST, "-port", str(port), "-public-host", f"{_HOST}:{port}"]
    return [_FAKE_GCS, "-scheme", "http", "-backend", "memory", "-log-level", "error", *place]


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
        return True
    return False


def _azure(relay: Relay) -> ObjectStore:
    stated = {"x-ms-date": formatdate(time.time(), usegmt=True), "x-ms-version": _AZURE_VERSION}
    text = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in stated.items())
    text += f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(_ACCOUNT_KEY), text.encode(), hashlib.sha256)).decode()
    headers = {**stated, "Authorization": f"SharedKey {_ACCOUNT}:{signature}"}
    made = relay.ask(Request("PUT", f"/{_ACCOUNT}/{BUCKET}?restype=container", headers))
    assert made.status == 201, made
    options = {
        "azure_storage_account_name": _ACCOUNT,
        "azure_storage_account_key": _ACCOUNT_KEY,
        "azure_storage_endpoint": f"{relay.url}/{_ACCOUNT}",
        "azure_allow_http": "true",
    }
    return ObjectStore(f"abfss://{BUCKET}@{_ACCOUNT}.dfs.core.windows.net", options, relay)


def _gcs(relay: Relay) -> ObjectStore:
    bucket = json.dumps({"name": BUCKET}).encode()
    made = relay.ask(Request("POST", "/storage/v1/b?project=p", {"Content-Type": "application/json"}, bucket))
    assert made.status == 200, made
    account = {"gcs_base_url": relay.url, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    return ObjectStore(f"gs://{BUCKET}", {"google_service_account_key": json.dumps(account), "google_allow_http": "true"}, relay)
