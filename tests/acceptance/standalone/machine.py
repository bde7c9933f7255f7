"""A machine: a host with programs, and a disk that no other one sees; its power can be cut.

In namespaces it has a network, a name, processes and mounts of its own. Its disk is its `/tmp`, and it can write nothing else: the
rest of this system is there as software is on a machine, to be read. On a loopback address there are only processes and a folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from spark_queue import session
from spark_queue.session import worker_python
from tests.integration.hosts import Host
from tests.source_tree import ROOT

#: Where a machine in namespaces has its disk.
_DISK = "/tmp"

#: What the first process of a machine does: it ends with its standard input, and all others end with it.
_SWITCH_ON = """set -e
disk=$1 name=$2 root=$3 root_then=$4 hidden=$5
mount --make-rprivate /
mkdir -p "$root_then"
mount --bind "$root" "$root_then"
mount -o remount,bind,ro "$root_then"
mount --bind "$disk/hosts" /etc/hosts
for memory in /dev/shm /run; do mount -t tmpfs tmpfs "$memory"; done
mount --rbind "$disk" /tmp
mount -o remount,bind,rw /tmp
if [ -d "$hidden" ]; then mount -t tmpfs tmpfs "$hidden"; fi
mount -o remount,bind,ro /
hostname "$name"
echo on
exec cat
"""


class Machine:
    """A host of its own.

    Parameters
    ----------
    name
        What it calls itself.
    host
        Its place in the network.
    disk
        The folder that is its disk.
    hidden
        The folder of all disks, which it does not see.
    """

    def __init__(self, name: str, host: Host, disk: Path, hidden: Path) -> None:
        self.name = name
        self.host = host
        #: The disk, as those see it who run the machines.
        self.disk = disk
        self._hidden = hidden
        self._first: subprocess.Popen[str] | None = None
        self._started: list[subprocess.Popen[bytes]] = []
        for folder in ("run", "state", "home"):
            (disk / folder).mkdir(mode=0o700, parents=True)
        (disk / "log").touch()
        # As on any machine for Spark, Delta's jars are there; and they are where this user's are not to be seen.
        jars = session.jars()[0].parent
        shutil.copytree(jars, disk / "cache" / jars.parent.name / jars.name)

    @property
    def place(self) -> str:
        """The disk, as the programs of the machine see it."""
        return _DISK if self.host.prefix else str(self.disk)

    def switch_on(self) -> None:
        """Switch it on; its disk is as it was."""
        if not self.host.prefix:
            return
        unshared = ("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "--")
        # Where the software would be behind the disk, it is put in front of it.
        root_then = self.disk / ROOT.relative_to(_DISK) if ROOT.is_relative_to(_DISK) else ROOT
        given = (str(self.disk), self.name, str(ROOT), str(root_then), str(self._hidden))
        command = [*self.host.prefix, *unshared, "sh", "-c", _SWITCH_ON, "sh", *given]
        with (self.disk / "log").open("ab") as log:
            self._first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._first.stdout is not None
        assert self._first.stdout.readline() == "on\n", self.log()

    def switch_off(self) -> None:
        """Cut its power: whatever runs there ends at once."""
        if self._first is not None:
            for child in psutil.Process(self._first.pid).children():
                child.kill()
            self._first.communicate()
            self._first = None
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._started.clear()

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a program; what it says is in the file `log` of the disk."""
        with (self.disk / "log").open("ab") as log:
            process = subprocess.Popen(
                [*self._entered(), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd=self.disk, env={**os.environ, **self._environment(), **(environment or {})},
            )  # fmt: skip
        self._started.append(process)
        return process

    def python(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program of this repository."""
        return self.start([sys.executable, "-m", module, *arguments])

    def log(self) -> str:
        """Return the end of what its programs said."""
        return (self.disk / "log").read_text(errors="replace")[-6_000:]

    def _entered(self) -> list[str]:
        if self._first is None:
            return []
        [first] = psutil.Process(self._first.pid).children()
        return ["nsenter", "--target", str(first.pid), "--net", "--mount", "--pid", "--uts", "--"]

    def _environment(self) -> dict[str, str]:
        place = self.place
        return worker_python() | {
            "HOME": f"{place}/home",
            "TMPDIR": place,
            "XDG_CACHE_HOME": f"{place}/cache",
            "XDG_STATE_HOME": f"{place}/state",
            "XDG_RUNTIME_DIR": f"{place}/run",
            "SPARKQ_TOKEN_FILE": f"{place}/token",
            "SPARKQ_TLS_ROOTS": f"{place}/cert.pem",
            "SPARK_LOCAL_IP": self.host.address,
            "PYTHONPATH": str(ROOT),
        }


def in_namespaces(machine: Machine) -> bool:
    """Return whether a machine shares no disk with others."""
    return bool(machine.host.prefix)
