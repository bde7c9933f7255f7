"""What a coordinator process is told on stdin, and the one line that it answers with on stdout."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from spark_queue.errors import CoordinatorError
from spark_queue.protocol.host import is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Where to listen, and with which certificate."""

    host: str = "127.0.0.1"
    #: 0 lets the system choose.
    port: int = 0
    #: PEM files; both or neither.
    tls_cert: str | None = None
    tls_key: str | None = None

    def location(self) -> str:
        """Return the Flight location to bind.

        Raises
        ------
        CoordinatorError
            ADDRESS_UNSAFE when callers on other hosts could connect without TLS.
        """
        scheme = "grpc" if self.tls_cert is None or self.tls_key is None else "grpc+tls"
        location = f"{scheme}://{self.host}:{self.port}"
        if scheme == "grpc" and not is_loopback(location):
            reason = "tokens and messages would cross the network in clear."
            raise CoordinatorError("ADDRESS_UNSAFE", address=f"{self.host}:{self.port}", reason=reason)
        return location


class MetricsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where a coordinator process is scraped for metrics."""

    host: str = "127.0.0.1"
    #: 0 lets the system choose.
    port: int
    #: Whether subscriptions are told one by one, too.
    per_subscription: bool = False
    #: File with what who scrapes must give; None for nothing.
    token_file: str | None = None


class StartOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a coordinator process is told. Storage options hold secrets, so they travel on stdin only (DESIGN 15.14)."""

    path: str
    storage_options: dict[str, str]
    journal_id: str
    #: Where it listens.
    bind: Bind = Bind()
    #: Whether it ends when nobody has called for the journal's `coordinator_idle`.
    ends_idle: bool = True
    #: Reign although the log is more than a day ahead of this host's clock.
    accept_clock: bool = False
    #: Where it is scraped for metrics; None for nowhere.
    metrics: MetricsOptions | None = None
    #: How its log is written: ``text`` or ``json``.
    log_format: str = "text"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Where the journal's coordinator serves now, or the code and facts of what kept this process from it."""

    address: str | None = None
    code: str | None = None
    facts: dict[str, object] = {}
