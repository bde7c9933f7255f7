"""Host identity and addresses (DESIGN 15.16)."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from spark_queue.errors import ConfigError
from spark_queue.protocol import host
from spark_queue.protocol.host import host_id, is_loopback, normalise_address

_PRINT_HOST = "from spark_queue.protocol.host import host_id; print(host_id())"


def test_processes_of_one_host_agree() -> None:
    other = subprocess.run([sys.executable, "-c", _PRINT_HOST], capture_output=True, text=True, check=True).stdout.strip()
    assert other == host_id()


@pytest.mark.skipif(platform.system() != "Linux", reason="asks Linux")
def test_host_is_known_by_its_boot_and_its_network() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert host_id() == f"{boot}/{Path('/proc/self/ns/net').stat().st_ino}"


@pytest.mark.parametrize("lacking", ["_BOOT_ID", "_NETWORK_NAMESPACE"])
def test_host_without_proc_is_known_by_its_name_and_card(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    monkeypatch.setattr(host, lacking, Path("/nowhere"))
    monkeypatch.setattr(platform, "system", lambda: "Plan 9")
    assert host_id.__wrapped__() == f"{platform.node()}/{uuid.getnode():012x}"


def test_a_process_in_another_network_namespace_is_on_another_host() -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-n", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("making a network namespace needs Linux and root")
    other = subprocess.run(
        [unshare, "-n", sys.executable, "-c", _PRINT_HOST], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert other != host_id()
    assert other.split("/")[0] == host_id().split("/")[0]


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("grpc://127.0.0.1:5", True),
        ("grpc://127.9.9.9:5", True),
        ("grpc://[::1]:5", True),
        ("grpc://localhost:5", True),
        ("grpc+tls://10.1.2.3:5", False),
        ("grpc://0.0.0.0:5", False),
        ("grpc://queue.example.com:5", False),
    ],
)
def test_only_loopback_addresses_are_loopback(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("127.0.0.1:5", "grpc://127.0.0.1:5"),
        ("queue.example.com:5", "grpc+tls://queue.example.com:5"),
        ("grpc+tls://queue:5", "grpc+tls://queue:5"),
    ],
)
def test_a_bare_address_means_tls_beyond_this_host(given: str, uri: str) -> None:
    assert normalise_address(given) == uri


def test_what_is_no_address_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*coordinator.*\[::1"):
        normalise_address("[::1")
