"""Clients of Flight, which connect at their first call, and to no address where a token would cross a network in clear."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from pyarrow import flight

from spark_queue import forks
from spark_queue.errors import ConfigError
from spark_queue.protocol.host import TLS_ROOTS_VARIABLE, keeps_secrets


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
            client = flight.FlightClient(address, tls_root_certs=roots)
            forks.keep_in_children(client)
            return client
        expected = "HOST:PORT or grpc+tls://HOST:PORT: without TLS anyone on the way could read the token"
    except (pa.ArrowException, ValueError):
        pass
    raise ConfigError("BAD_VALUE", key="coordinator", where="the call", value=address, expected=expected)
