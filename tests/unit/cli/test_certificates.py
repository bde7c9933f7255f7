"""``sparkq doctor`` and certificates that end soon."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from spark_queue import Journal
from spark_queue.cli.certificates import try_certificates
from spark_queue.protocol.host import TLS_ROOTS_VARIABLE
from tests.certificates import make_certificate


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], str]]:
    """Serve with a certificate of so many days, as a coordinator does; returns the address."""
    with ExitStack() as stack:

        def start(days: int) -> str:
            cert, key = make_certificate(tmp_path, "IP:127.0.0.1", days=days)
            monkeypatch.setenv(TLS_ROOTS_VARIABLE, str(cert))
            pairs: Any = [(cert.read_bytes(), key.read_bytes())]
            server = stack.enter_context(flight.FlightServerBase("grpc+tls://127.0.0.1:0", tls_certificates=pairs))
            return f"grpc+tls://127.0.0.1:{server.port}"

        yield start


@pytest.mark.parametrize(("days", "result"), [(13, "warning"), (90, "ok")])
def test_a_certificate_that_ends_within_two_weeks_is_mentioned(serve: Callable[[int], str], days: int, result: str) -> None:
    # The other one is away.
    found = try_certificates(Journal("nowhere", coordinator=f"{serve(days)},grpc+tls://127.0.0.1:9"))
    assert (found.result, found.found) == (result, f"the first one expires in {days - 1} days")
    assert ("restart it" in found.advice) == (result == "warning")


def test_a_certificate_that_is_not_believed_fails(serve: Callable[[int], str], monkeypatch: pytest.MonkeyPatch) -> None:
    address = serve(90)
    monkeypatch.setenv(TLS_ROOTS_VARIABLE, ssl.get_default_verify_paths().openssl_cafile)
    found = try_certificates(Journal("nowhere", coordinator=address))
    assert (found.result, "self-signed certificate" in found.found) == ("failed", True)


@pytest.mark.parametrize("coordinator", [None, "127.0.0.1:9", "grpc+tls://127.0.0.1:9"])
def test_where_nobody_answers_with_tls_nothing_is_said(coordinator: str | None) -> None:
    assert try_certificates(Journal("nowhere", coordinator=coordinator)).result == "ok"
