"""Certificates that are replaced while a port is served (cert-manager, certbot)."""

from __future__ import annotations

import logging
import shutil
import ssl
from pathlib import Path

import pytest

from spark_queue.protocol import certificates
from spark_queue.protocol.certificates import tls_context
from tests.certificates import make_certificate


@pytest.fixture(autouse=True)
def looks_at_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "LOOK_AGAIN_MS", 0)


class Pairs:
    """Two certificates with their keys, and the files that are served."""

    def __init__(self, directory: Path) -> None:
        self.first, self.second = (self._make(directory / name) for name in ("first", "second"))
        self.cert, self.key = directory / "cert.pem", directory / "key.pem"
        self.put(self.first)

    def put(self, pair: tuple[Path, Path]) -> None:
        """Replace both files."""
        for source, file in zip(pair, (self.cert, self.key), strict=True):
            shutil.copy(source, new := file.with_suffix(".new"))
            new.replace(file)

    @staticmethod
    def _make(directory: Path) -> tuple[Path, Path]:
        directory.mkdir()
        return make_certificate(directory, "DNS:localhost")


@pytest.fixture
def pairs(tmp_path: Path) -> Pairs:
    return Pairs(tmp_path)


def shown_by(server: ssl.SSLContext, *, name: str | None = "localhost") -> bytes:
    """Return the certificate that a visitor is shown."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    visitor = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    served = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (visitor, served, visitor):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found = visitor.getpeercert(binary_form=True)
    assert found is not None
    return found


def der(pair: tuple[Path, Path]) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair[0].read_text())


@pytest.mark.parametrize("name", ["localhost", None])
def test_a_pair_that_takes_the_place_of_the_files_is_shown_to_who_connects_next(pairs: Pairs, name: str | None) -> None:
    context = tls_context(pairs.cert, pairs.key)
    assert shown_by(context, name=name) == der(pairs.first)
    pairs.put(pairs.second)
    assert shown_by(context, name=name) == der(pairs.second)
    pairs.put(pairs.first)
    assert shown_by(context, name=name) == der(pairs.first)


def test_a_pair_that_is_not_whole_is_logged_once_and_the_last_one_stays(pairs: Pairs, caplog: pytest.LogCaptureFixture) -> None:
    context = tls_context(str(pairs.cert), str(pairs.key))
    for spoil in (
        # The certificate comes before its key, is cut short, or is away for a moment.
        lambda: shutil.copy(pairs.second[0], pairs.cert),
        lambda: pairs.cert.write_text(pairs.second[0].read_text()[:300]),
        pairs.cert.unlink,
    ):
        caplog.clear()
        spoil()
        assert [shown_by(context) for _ in range(3)] == [der(pairs.first)] * 3
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "are not a matching certificate and key" in caplog.text
    pairs.put(pairs.second)
    assert shown_by(context) == der(pairs.second)


def test_files_are_looked_at_once_in_a_while(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "LOOK_AGAIN_MS", 3_600_000)
    context = tls_context(pairs.cert, pairs.key)
    pairs.put(pairs.second)
    assert shown_by(context) == der(pairs.first)
