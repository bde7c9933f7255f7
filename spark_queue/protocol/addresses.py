"""Addresses of coordinators: how they are written, and which of them a secret may be sent to at all."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from spark_queue.errors import ConfigError
from spark_queue.protocol.host import is_loopback, keeps_secrets

#: Names a PEM file of certificates to trust beside the system's, for a coordinator served with one's own certificate.
TLS_ROOTS_VARIABLE = "SPARKQ_TLS_ROOTS"


def tells_no_address(refusal: ConfigError) -> bool:
    """Return whether a connection was refused for its address: a claim or an advertisement may say anything."""
    return str(refusal.facts["key"]) == "coordinator"


def normalise_address(address: str) -> str:
    """Return an address as a Flight URI: ``host:port`` means TLS, except on loopback.

    Raises
    ------
    ConfigError
        BAD_VALUE for what is no address.
    """
    if "://" in address:
        return address
    plain = f"grpc://{address}"
    try:
        urlsplit(plain)
    except ValueError:
        raise ConfigError("BAD_VALUE", key="coordinator", where="the caller", value=address, expected="host:port") from None
    return plain if is_loopback(plain) else f"grpc+tls://{address}"


def open_client(address: str) -> flight.FlightClient:
    """Make a client, which connects at its first call."""
    roots, named = None, os.environ.get(TLS_ROOTS_VARIABLE)
    if named is not None and address.startswith("grpc+tls"):
        try:
            roots = Path(named).read_text()
        except (OSError, UnicodeDecodeError):
            expected = "a PEM file that can be read"
            raise ConfigError(
                "BAD_VALUE", key=TLS_ROOTS_VARIABLE, where="the environment", value=named, expected=expected
            ) from None
    expected = "HOST:PORT"
    try:
        if keeps_secrets(address):
            return flight.FlightClient(address, tls_root_certs=roots)
        expected = "HOST:PORT or grpc+tls://HOST:PORT: without TLS everybody on the way could read the token"
    except (pa.ArrowException, ValueError):
        pass
    raise ConfigError("BAD_VALUE", key="coordinator", where="the call", value=address, expected=expected)
