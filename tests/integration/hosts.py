"""Hosts for tests: network namespaces where this user may make them, loopback addresses everywhere.

A namespace counts as a host of its own: its loopback leads nowhere else, callers need TLS, and its cable can be cut.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import make_certificate


def ip(*arguments: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


@dataclass(frozen=True, kw_only=True)
class Host:
    """Where programs may run."""

    address: str
    #: What stands before a command, so that it runs there.
    prefix: tuple[str, ...] = ()
    #: The end of its cable that can be pulled out; None for an address of this host.
    cable: str | None = None

    def connect(self, *, connected: bool) -> None:
        """Pull the cable out, or put it back."""
        if self.cable is not None:
            ip("link", "set", self.cable, "up" if connected else "down")


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """Hosts that reach each other, and how coordinators and callers speak there."""

    all: tuple[Host, ...]
    #: An address of the tests' own host that all of them reach.
    here: str = "127.0.0.1"
    #: Arguments of `sparkq serve`.
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str]


def _can_make_namespaces() -> bool:
    name = f"sq-try-{os.getpid()}"
    if shutil.which("ip") is None or shutil.which("openssl") is None:
        return False
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    if made:
        ip("netns", "del", name)
    return made


NAMESPACES, LOOPBACK = "network namespaces", "loopback addresses"

#: The kinds of hosts that this user can make.
KINDS = (NAMESPACES, LOOPBACK) if _can_make_namespaces() else (LOOPBACK,)


@contextmanager
def hosts_of(kind: str, directory: Path, count: int = 2) -> Iterator[Hosts]:
    """Have so many hosts, until the end of the block."""
    if kind == LOOPBACK:
        yield Hosts(all=tuple(Host(address=f"127.0.0.{last}") for last in range(1, count + 1)), environment={})
        return
    number = os.getpid()
    subnet = f"10.{100 + number % 150}.{number // 150 % 250}"
    bridge = f"sq{number}"
    with ExitStack() as stack:
        ip("link", "add", bridge, "type", "bridge")
        stack.callback(ip, "link", "del", bridge)
        ip("addr", "add", f"{subnet}.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        made = [_namespace(stack, f"{bridge}{chr(ord('a') + at)}", bridge, f"{subnet}.{at + 2}") for at in range(count)]
        certificate, key = make_certificate(directory, *(f"IP:{host.address}" for host in made))
        yield Hosts(
            all=tuple(made),
            here=f"{subnet}.1",
            arguments=("--tls-cert", str(certificate), "--tls-key", str(key)),
            environment={"SPARKQ_TLS_ROOTS": str(certificate)},
        )


def _namespace(stack: ExitStack, name: str, bridge: str, address: str) -> Host:
    ip("netns", "add", name)
    stack.callback(ip, "netns", "del", name)
    ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
    # A namespace that is deleted lives on until its last process is gone, and so would its cable.
    stack.callback(ip, "link", "del", name)
    ip("link", "set", name, "master", bridge, "up")
    ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up")
    ip("-n", name, "link", "set", "lo", "up")
    return Host(address=address, prefix=("ip", "netns", "exec", name), cable=name)
