"""Which host this is: two processes on one host share its loopback (DESIGN 15.16); and addresses of coordinators on hosts.

Also the options that a coordinator process reads from stdin, and the one line that it writes to stdout.
"""

from __future__ import annotations

import functools
import getpass
import ipaddress
import os
import platform
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.journal.store import Store


def location_of(store: Store) -> str:
    """Return the location of a journal, which no copy shares, as printable ASCII; empty for a directory that is not there.

    A directory's inode number is the same by every path and mount, on every host, and after a move within its file system. An
    object store's bucket and prefix are the same by every scheme that leads there.
    """
    if store.is_local:
        try:
            return str(os.stat(store.path).st_ino)  # noqa: PTH116  # A store's path is a text.
        except OSError:
            return ""
    url = urlsplit(store.path)
    # In `https://` URLs the bucket stands in the path, and in `abfss://` ones before the account.
    bucket = "" if url.scheme in ("http", "https") else url.netloc.split("@")[0]
    return quote(f"{bucket}{url.path}".strip("/"))


#: Names a PEM file of certificates to trust beside the system's, for a coordinator served with one's own certificate.
TLS_ROOTS_VARIABLE = "SPARKQ_TLS_ROOTS"

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NETWORK_NAMESPACE = Path("/proc/self/ns/net")


@functools.cache
def user_and_host() -> tuple[str, str]:
    """Return the names of the user of this process and of its host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a number that no file names.
        user = str(os.getuid())
    return user, platform.node()


@functools.cache
def host_id() -> str:
    """Return the id that two processes share exactly when they reach each other over loopback.

    On Linux that is the boot id and the inode of the network namespace, so two containers on one machine differ; on macOS
    the hardware UUID; elsewhere one by the network card or the host's name.
    """
    if _BOOT_ID.exists() and _NETWORK_NAMESPACE.exists():
        return f"{_BOOT_ID.read_text().strip()}/{_NETWORK_NAMESPACE.stat().st_ino}"
    if platform.system() == "Darwin":
        return _hardware_uuid()
    return f"{platform.node()}/{uuid.getnode():012x}"


def _hardware_uuid() -> str:
    listing = subprocess.run(
        ["/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice"], capture_output=True, text=True, check=True, timeout=10
    ).stdout
    line = next(line for line in listing.splitlines() if "IOPlatformUUID" in line)
    return line.split('"')[-2]


def is_loopback(address: str) -> bool:
    """Return whether an address such as ``grpc://127.0.0.1:40123`` can only be reached from its own host; False for none."""
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def keeps_secrets(address: str) -> bool:
    """Return whether nobody on the way reads the messages to an address: they go over TLS, or stay on this host."""
    return address.partition(":")[0].lower() == "grpc+tls" or is_loopback(address)


def tells_no_address(refusal: ConfigError) -> bool:
    """Return whether a connection was refused for its address: a claim or an advertisement may say anything."""
    return str(refusal.facts["key"]) == "coordinator"


def normalise_address(address: str) -> str:
    """Return an address as a Flight URI: ``host:port`` means TLS, except on loopback."""
    if "://" in address:
        return address
    plain = f"grpc://{address}"
    try:
        urlsplit(plain)
    except ValueError:
        raise ConfigError("BAD_VALUE", key="coordinator", where="the caller", value=address, expected="host:port") from None
    return plain if is_loopback(plain) else f"grpc+tls://{address}"


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
        """Return the Flight location to bind."""
        scheme = "grpc" if self.tls_cert is None or self.tls_key is None else "grpc+tls"
        location = f"{scheme}://{self.host}:{self.port}"
        if scheme == "grpc" and not is_loopback(location):
            reason = "tokens and messages would cross the network unencrypted."
            raise CoordinatorError("ADDRESS_UNSAFE", address=f"{self.host}:{self.port}", reason=reason)
        return location


class MetricsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where a coordinator process is scraped for metrics."""

    host: str = "127.0.0.1"
    #: 0 lets the system choose.
    port: int
    #: Whether subscriptions have metrics of their own, too.
    per_subscription: bool = False
    #: File with the token that a scraper must give; None for none.
    token_file: str | None = None


class StartOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a coordinator process. Storage options hold secrets, so they travel on stdin only (DESIGN 15.14)."""

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
    """The address of the journal's coordinator that serves now, or the code and facts of the error that kept this process off."""

    address: str | None = None
    code: str | None = None
    facts: dict[str, object] = {}
