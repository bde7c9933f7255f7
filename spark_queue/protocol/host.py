"""Which host this is: two processes on one host share its loopback (DESIGN 15.16)."""

from __future__ import annotations

import functools
import ipaddress
import platform
import subprocess
import uuid
from pathlib import Path
from urllib.parse import urlsplit

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NETWORK_NAMESPACE = Path("/proc/self/ns/net")


@functools.cache
def host_id() -> str:
    """Return what two processes share exactly when they reach each other over loopback.

    On Linux that is the boot id and the inode of the network namespace, so two containers on one machine differ; on macOS
    the hardware UUID; elsewhere what the network card or the host's name tells.
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
    """Return whether an address such as ``grpc://127.0.0.1:40123`` can only be reached from its own host; what is none, not."""
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def keeps_secrets(address: str) -> bool:
    """Return whether what is sent to an address is read by nobody on the way: it goes over TLS, or stays on this host."""
    return address.partition(":")[0].lower() == "grpc+tls" or is_loopback(address)
