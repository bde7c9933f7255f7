"""A real `sparkq dashboard` beyond loopback: over TLS alone, with a login, and a cookie that never leaves it."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from spark_queue import Journal
from tests.certificates import make_certificate

TOKEN = "a token of some length"
WAIT_S = 60.0


@dataclass(frozen=True)
class Served:
    """Where it is served, and whom a visitor trusts."""

    address: str
    port: int
    trusted: ssl.SSLContext
    #: Where its certificate and key are.
    place: Path

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
        """Ask as a browser does that reaches it by its name."""
        with closing(http.client.HTTPSConnection("localhost", self.port, timeout=WAIT_S, context=self.trusted)) as connection:
            found: tuple[int, http.client.HTTPMessage, str] = answered(connection, method, path, body, headers)
            return found


def answered(connection: Any, method: str, path: str, body: str | None, headers: dict[str, str]) -> Any:
    form = {"Content-Type": "application/x-www-form-urlencoded"} if body is not None else {}
    connection.request(method, path, body, {"Accept": "text/html", **form, **headers})
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


def command(journal: Journal, *options: Any) -> list[str]:
    return [sys.executable, "-m", "spark_queue.cli", "dashboard", journal.path, "--port", "0", "--json", *map(str, options)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("tls")
    (place / "token").write_text(TOKEN)
    (place / "token").chmod(0o600)
    cert, key = make_certificate(place, "DNS:localhost", "IP:127.0.0.1")
    options = ("--host", "0.0.0.0", "--tls-cert", cert, "--tls-key", key, "--token-file", place / "token")
    journal = Journal.create(str(place / "journal"))
    with subprocess.Popen(
        command(journal, *options, "--allowed-host", "localhost"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            address = json.loads(process.stdout.readline())["address"]
            yield Served(address, int(address.rpartition(":")[2].strip("/")), ssl.create_default_context(cafile=str(cert)), place)
            process.send_signal(signal.SIGTERM)
            rest = process.communicate(timeout=WAIT_S)[0]
            assert "Traceback" not in rest
        finally:
            process.kill()


def test_it_is_named_by_its_name_and_the_chosen_token_is_not_told(served: Served) -> None:
    assert served.address == f"https://localhost:{served.port}/"


def test_without_tls_nobody_is_answered(served: Served) -> None:
    with (
        closing(http.client.HTTPConnection("localhost", served.port, timeout=WAIT_S)) as connection,
        pytest.raises((http.client.HTTPException, OSError)),
    ):
        answered(connection, "GET", "/login", None, {})


def test_who_does_not_trust_the_certificate_says_nothing(served: Served) -> None:
    with (
        closing(http.client.HTTPSConnection("localhost", served.port, context=ssl.create_default_context())) as connection,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        connection.request("GET", "/")


def test_nothing_is_shown_before_the_login_and_the_cookie_is_of_tls_alone(served: Served) -> None:
    status, headers, _ = served.ask("GET", "/")
    assert (status, headers["location"], headers["strict-transport-security"]) == (303, "/login", "max-age=31536000")
    assert served.ask("GET", "/metrics", Accept="text/plain")[0] == 401
    status, headers, told = served.ask("POST", "/login", urlencode({"token": "a token of some lengtH"}))
    assert (status, headers["set-cookie"], "That is not the token." in told) == (403, None, True)
    status, headers, _ = served.ask("POST", "/login", urlencode({"token": TOKEN}), Origin=f"https://localhost:{served.port}")
    assert status == 303
    cookie, *marks = headers["set-cookie"].split("; ")
    assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} <= set(marks)
    # A browser takes a name that begins so only with Secure, for this host alone, and for all of its paths.
    assert cookie.startswith("__Host-")
    assert not any(mark.startswith("Domain") for mark in marks)
    assert served.ask("GET", "/", Cookie=cookie)[0] == 200
    assert served.ask("GET", "/metrics", Authorization=f"Bearer {TOKEN}")[0] == 200


@pytest.mark.parametrize("headers", [{"Origin": "http://localhost"}, {"Origin": "https://evil.example"}])
def test_a_login_comes_from_its_own_page(served: Served, headers: dict[str, str]) -> None:
    assert served.ask("POST", "/login", urlencode({"token": TOKEN}), **headers)[0] == 403


def test_it_is_answered_under_its_name_alone(served: Served) -> None:
    with closing(http.client.HTTPSConnection("127.0.0.1", served.port, timeout=WAIT_S, context=served.trusted)) as connection:
        assert answered(connection, "GET", "/login", None, {})[0] == 421


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "given", [(), ("--tls-cert", "cert"), ("--tls-cert", "cert", "--tls-key", "key"), ("--token-file", "token")]
)
def test_it_is_refused_where_something_is_missing(tmp_path: Path, given: tuple[str, ...]) -> None:
    journal = Journal(str(tmp_path))
    done = subprocess.run(
        command(journal, "--host", "0.0.0.0", *given), capture_output=True, text=True, check=False, timeout=WAIT_S, cwd=tmp_path
    )
    assert (done.returncode, "[ADDRESS_UNSAFE]" in done.stderr, done.stdout) == (1, True, "")


def test_a_certificate_that_takes_the_place_of_the_first_is_shown_without_a_restart(served: Served) -> None:
    def shown() -> str:
        return ssl.get_server_certificate(("localhost", served.port), timeout=WAIT_S)

    was = shown()
    make_certificate(served.place, "DNS:localhost", "IP:127.0.0.1")
    served.trusted.load_verify_locations(str(served.place / "cert.pem"))
    deadline = time.monotonic() + WAIT_S
    while shown() == was:
        # Files are looked at once in some seconds.
        assert time.monotonic() < deadline
    assert served.ask("GET", "/login")[0] == 200


def test_a_certificate_that_cannot_be_read_is_told_before_any_address(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("no certificate")
    done = subprocess.run(
        command(Journal(str(tmp_path)), "--tls-cert", tmp_path / "cert", "--tls-key", tmp_path / "cert"),
        capture_output=True, text=True, check=False, timeout=WAIT_S,
    )  # fmt: skip
    assert (done.returncode, "[BAD_VALUE]" in done.stderr, "Traceback" in done.stderr, done.stdout) == (1, True, False, "")
