"""Findings of doctor about the certificates at the coordinator's addresses."""

from __future__ import annotations

import os
import socket
import ssl
from urllib.parse import urlsplit

from spark_queue.cli.store_rights import Finding
from spark_queue.client.journal import Journal
from spark_queue.clock import SystemClock
from spark_queue.protocol.host import TLS_ROOTS_VARIABLE

#: The time before its end from which a certificate is mentioned, in days.
_SOON_DAYS = 14
_DAY_S = 86_400

#: The time for an address to answer, in seconds.
_ANSWER_S = 5.0
_ADVICE = "The coordinator reads its certificate when it starts: put a new one there, and restart it; a stand-in serves meanwhile."


def try_certificates(journal: Journal) -> Finding:
    """Return findings about the ends of the certificates that the named addresses show; one that is away shows none."""
    addresses = journal.endpoint.uris() if journal.endpoint.addresses else ()
    days: list[int] = []
    for each in map(urlsplit, addresses):
        if each.scheme != "grpc+tls" or each.hostname is None:
            continue
        try:
            days.append(_days_left(each.hostname, each.port or 443))
        except ssl.SSLCertVerificationError as failure:
            return Finding(result="failed", found=f"{each.netloc}: {failure.verify_message}", advice=_ADVICE)
        except OSError:
            continue
    if not days:
        return Finding(result="ok", found="none, since no address of a coordinator answers with TLS")
    found = f"the first one expires in {min(days):,} days"
    return Finding(result="warning", found=found, advice=_ADVICE) if min(days) < _SOON_DAYS else Finding(result="ok", found=found)


def _days_left(host: str, port: int) -> int:
    context = ssl.create_default_context(cafile=os.environ.get(TLS_ROOTS_VARIABLE))
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, port), _ANSWER_S) as plain, context.wrap_socket(plain, server_hostname=host) as shown:
        ends_s = ssl.cert_time_to_seconds(str((shown.getpeercert() or {})["notAfter"]))
    return int(ends_s - SystemClock().wall_ms() / 1_000) // _DAY_S
