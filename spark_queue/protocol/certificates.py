"""The certificate of a port, looked at again while it serves."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from spark_queue.clock import SystemClock
from spark_queue.errors import ConfigError

_LOG = logging.getLogger(__name__)

#: How long nobody looks again whether a certificate was replaced, in milliseconds.
LOOK_AGAIN_MS = 5_000


def tls_context(cert: str | Path, key: str | Path) -> ssl.SSLContext:
    """Return the context of a port with a certificate; a pair that replaces the files is used from then on."""
    pair = _CertificatePair(cert, key)
    try:
        context = pair.load()
    except OSError as failure:
        expected = f"a certificate chain, with its private key without a password in --tls-key ({failure.strerror or failure})"
        raise ConfigError("BAD_VALUE", key="--tls-cert", where="the arguments", value=str(cert), expected=expected) from None

    def present_newest(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = pair.newest()

    # It is asked at the beginning of each connection, also by callers that name no host.
    context.sni_callback = present_newest
    return context


class _CertificatePair:
    """A certificate and its key, in files that somebody renews."""

    def __init__(self, cert: str | Path, key: str | Path) -> None:
        self._files = (Path(cert), Path(key))

    def load(self) -> ssl.SSLContext:
        """Return the pair as it is now; an OSError where it is none.

        A context of its own: one that is in use would keep half of a pair that does not fit.
        """
        self._looked_at_ms, self._known = SystemClock().monotonic_ms(), self._versions()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Without a password at hand OpenSSL would ask a terminal that may not be there.
        context.load_cert_chain(*self._files, password="")
        self._newest = context
        return context

    def newest(self) -> ssl.SSLContext:
        """Return the newest pair that is whole."""
        now_ms = SystemClock().monotonic_ms()
        if now_ms - self._looked_at_ms >= LOOK_AGAIN_MS:
            self._looked_at_ms = now_ms
            if self._versions() != self._known:
                try:
                    self.load()
                    _LOG.info("The certificate in '%s' was replaced, and the new one is used from now on.", self._files[0])
                except OSError as failure:
                    _LOG.warning(
                        "'%s' and '%s' are not a matching certificate and key (%s): the previous ones stay in use.",
                        *self._files, failure.strerror or failure,
                    )  # fmt: skip
        return self._newest

    def _versions(self) -> list[tuple[int, int, int] | None]:
        """Return the facts that change when a file is replaced or written; None for one that is away."""
        found: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                status = file.stat()
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError:
                found.append(None)
        return found
