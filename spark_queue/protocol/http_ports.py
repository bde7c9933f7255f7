"""Ports that answer HTTP, the page's and that of metrics: names, a certificate, a token, and a bound on tries at tokens."""

from __future__ import annotations

import ipaddress
import logging
import os
import ssl
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

from spark_queue.clock import SystemClock
from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.ports import Clock
from spark_queue.protocol.host import is_loopback

_LOG = logging.getLogger(__name__)

#: Wrong tokens of an address that are looked at however fast they come, and how long each further one takes, in milliseconds.
FREE_GUESSES = 5
GUESS_MS = 2_000

#: Addresses that are remembered; the one that guessed longest ago is forgotten first.
ADDRESSES_MAX = 1_024


class GuessLimit:
    """Counts wrong tokens by address; safe to be asked by any thread.

    Parameters
    ----------
    clock : Clock
        Says when an address may try again.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: Until when the wrong tokens of an address would have taken if they had come one by one, and their number.
        self._until: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def looked_at(self, address: str, is_right: Callable[[], bool]) -> bool | None:
        """Return whether a token is right; None where it was not looked at: too many of its address were wrong.

        A wait before the answer would not do: who guesses takes further connections meanwhile, and sees which one is let in.
        """
        place = _place_of(address)
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            until_ms, count = self._until.get(place, (0, 0))
            if until_ms - now_ms > (FREE_GUESSES - 1) * GUESS_MS:
                return None
            if is_right():
                return True
            self._until[place] = max(until_ms, now_ms) + GUESS_MS, count + 1
            self._until.move_to_end(place)
            if len(self._until) > ADDRESSES_MAX:
                self._until.popitem(last=False)
        if count & (count + 1) == 0:
            # The first, the second, the fourth and so on: a flood must not fill the log.
            _LOG.warning("A token from %s is not the right one; so were %d in all from there.", address, count + 1)
        return False


def _place_of(address: str) -> str:
    """Return whom an address belongs to: a host with IPv6 has as many as it likes of one network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if parsed.version == 4 else str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))


#: Fewest characters of a token that somebody chose.
TOKEN_CHARACTERS = 16

#: How long nobody looks again whether a certificate was replaced, in milliseconds.
LOOK_AGAIN_MS = 5_000


def bracketed(host: str) -> str:
    """Return a host as it stands in an address."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def reaches_others(host: str) -> bool:
    """Return whether a port on a host can be reached from other hosts."""
    return not is_loopback(f"http://{bracketed(host)}")


def check_reach(what: str, host: str, address: str, **needed: object) -> bool:
    """Refuse a port that other hosts can reach without all of what makes that safe; returns whether they can reach it.

    Parameters
    ----------
    what
        Who listens there, as an error names it.
    **needed
        What is given of certificate, key and token, by the names of their options.
    """
    if not reaches_others(host):
        return False
    missing = [f"--{name.replace('_', '-')}" for name, value in needed.items() if value is None]
    if missing:
        raise CoordinatorError("ADDRESS_UNSAFE", address=address, reason=f"{what} given no {', no '.join(missing)}.")
    return True


def host_headers(host: str, port: int, others: Iterable[str] = ()) -> frozenset[str]:
    """Return the values of a ``Host`` header that mean a port: any other one is a stranger's name for it (DNS rebinding).

    Parameters
    ----------
    host : str
        Where the port listens; on loopback every name of loopback means it.
    port : int
        The port.
    others : Iterable of str
        Further names of the host.
    """
    names = {host, *others}
    if not reaches_others(host):
        names |= {"localhost", "127.0.0.1", "::1"}
    ends = {"", f":{port}"} if port in (80, 443) else {f":{port}"}
    return frozenset(f"{bracketed(name).lower()}{end}" for name in names for end in ends)


def tls_context(cert: str | Path, key: str | Path) -> ssl.SSLContext:
    """Return what a port with a certificate serves by; a pair that takes the place of the files is used from then on."""
    pair = _CertificatePair(cert, key)
    try:
        context = pair.load()
    except OSError as failure:
        expected = f"a certificate chain, with its private key without a password in --tls-key ({failure.strerror or failure})"
        raise ConfigError("BAD_VALUE", key="--tls-cert", where="the arguments", value=str(cert), expected=expected) from None

    def present_newest(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = pair.newest()

    # It is asked at the beginning of each connection, also by who names no host.
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
                    _LOG.info("The certificate in '%s' was replaced, and is used from now on.", self._files[0])
                except OSError as failure:
                    _LOG.warning(
                        "'%s' and '%s' are no certificate and key that fit (%s): the last ones that did stay in use.",
                        *self._files, failure.strerror or failure,
                    )  # fmt: skip
        return self._newest

    def _versions(self) -> list[tuple[int, int, int] | None]:
        """Return what changes when a file is replaced or written; None for one that is away."""
        found: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                status = file.stat()
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError:
                found.append(None)
        return found


def chosen_token(path: Path, option: str) -> str:
    """Read a token that somebody chose from the file that an option names."""
    try:
        with path.open(encoding="ascii") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read().strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise _bad_token(path, option, f"a file that can be read as ASCII ({type(failure).__name__})") from None
    if mode & 0o077:
        raise _bad_token(path, option, "a file that nobody but its owner may read (chmod 600)")
    if len(text) < TOKEN_CHARACTERS:
        raise _bad_token(path, option, f"a file with a token of {TOKEN_CHARACTERS} characters at least")
    return text


def _bad_token(path: Path, option: str, expected: str) -> ConfigError:
    return ConfigError("BAD_VALUE", key=option, where="the arguments", value=str(path), expected=expected)
