"""Ports that answer HTTP, the page's and that of metrics: names and a token."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.protocol.host import is_loopback

_LOG = logging.getLogger(__name__)


#: Fewest characters of a token that somebody chose.
TOKEN_CHARACTERS = 16


def bracketed(host: str) -> str:
    """Return a host as it stands in an address."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def reaches_others(host: str) -> bool:
    """Return whether a port on a host can be reached from other hosts."""
    return not is_loopback(f"http://{bracketed(host)}")


def check_reach(what: str, host: str, address: str, **needed: object) -> bool:
    """Refuse a port that other hosts can reach unless all that makes it safe is there; returns whether they can reach it.

    `needed` are the certificate, key and token that were given, by the names of their options.
    """
    if not reaches_others(host):
        return False
    missing = [f"--{name.replace('_', '-')}" for name, value in needed.items() if value is None]
    if missing:
        raise CoordinatorError("ADDRESS_UNSAFE", address=address, reason=f"{what} given no {', no '.join(missing)}.")
    return True


def host_headers(host: str, port: int, others: Iterable[str] = ()) -> frozenset[str]:
    """Return the values of a ``Host`` header that mean a port: any other one is a stranger's name for it (DNS rebinding)."""
    names = {host, *others}
    if not reaches_others(host):
        names |= {"localhost", "127.0.0.1", "::1"}
    ends = {"", f":{port}"} if port in (80, 443) else {f":{port}"}
    return frozenset(f"{bracketed(name).lower()}{end}" for name in names for end in ends)


def chosen_token(path: Path, option: str) -> str:
    """Read a token that somebody chose from the file that an option names."""
    try:
        with path.open(encoding="ascii") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read().strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise _bad_token(path, option, f"a file that can be read as ASCII ({type(failure).__name__})") from None
    if mode & 0o077:
        raise _bad_token(path, option, "a file that only its owner may read (chmod 600)")
    if len(text) < TOKEN_CHARACTERS:
        raise _bad_token(path, option, f"a file with a token of {TOKEN_CHARACTERS} characters at least")
    return text


def _bad_token(path: Path, option: str, expected: str) -> ConfigError:
    return ConfigError("BAD_VALUE", key=option, where="the arguments", value=str(path), expected=expected)
