"""A Spark standalone cluster on machines of its own, with a journal on an S3 server: what is started, killed and waited for."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from spark_queue import Journal
from spark_queue.journal.open import open_journal
from spark_queue.session import spark_home
from tests import waiting
from tests.acceptance.standalone.driver import JAVA, QUEUE, STOPPED, TOPIC, Orders
from tests.acceptance.standalone.machine import Machine
from tests.integration.hosts import NAMESPACES, Hosts, hosts_of
from tests.integration.s3_gateway import s3_server_of
from tests.integration.s3_server import BUCKET, S3Server
from tests.records import detail_of

#: How long one thing may take before the run is given up, in seconds: several starts of Spark on a busy machine.
PATIENCE_S = 180.0

DEFINITIONS = {
    "message_types": {"reading": {"columns": "id BIGINT, body STRING", "topics": [TOPIC]}},
    "queues": {QUEUE: {"underlying_topic": TOPIC}},
}

QUEUE_HOSTS, WORKERS, DRIVERS = ("queue-a", "queue-b"), ("worker-1", "worker-2"), ("driver-1", "driver-2")
MASTER = "master"
NAMES = (*QUEUE_HOSTS, MASTER, *WORKERS, *DRIVERS)

MASTER_PORT, QUEUE_PORT = 7077, 7337


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much work there is."""

    messages: int
    #: Messages of one publish.
    at_once: int
    max_backlog: int


def size_of(messages: int) -> Size:
    """Return how so many messages are cut: into as many pieces whatever their number, up to what a batch holds by default."""
    piece = min(max(messages // 40, 1), 100_000)
    # Each of two drivers publishes half of them.
    return Size(messages=messages // 2 * 2, at_once=piece, max_backlog=piece)


class Cluster:
    """Machines, and what runs on them."""

    def __init__(self, folder: Path, hosts: Hosts, server: S3Server, names: tuple[str, ...], size: Size) -> None:
        self.size = size
        self.journal = Journal.create(f"s3://{BUCKET}/journal", DEFINITIONS, storage_options=server.options)
        self._hosts = hosts
        self._disks = folder / "disks"
        self.machines = {
            name: Machine(name, host, self._disks / name, self._disks) for name, host in zip(names, hosts.all, strict=True)
        }
        token = secrets.token_hex(32)
        names_of_all = "".join(f"{machine.host.address} {name}\n" for name, machine in self.machines.items())
        for name, machine in self.machines.items():
            (machine.disk / "hosts").write_text(f"127.0.0.1 localhost\n{names_of_all}")
            (machine.disk / "token").touch(mode=0o600)
            (machine.disk / "token").write_text(token)
            for part in ("cert.pem", "key.pem") if hosts.arguments else ():
                if part == "cert.pem" or name in QUEUE_HOSTS:
                    shutil.copy(folder / part, machine.disk)

    def switch_on(self, name: str) -> None:
        """Switch a machine on, and start what it is for."""
        machine = self.machines[name]
        machine.switch_on()
        if name in QUEUE_HOSTS:
            self._serve(machine)
        elif name == MASTER:
            self._spark(machine, "master.Master", "--host", machine.host.address, "--port", str(MASTER_PORT), "--webui-port", "0")
        elif name in WORKERS:
            given = ("--host", machine.host.address, "--cores", "2", "--memory", "2g", "--webui-port", "0")
            self._spark(machine, "worker.Worker", *given, "--work-dir", f"{machine.place}/work", self.master)
        else:
            machine.python("tests.acceptance.standalone.driver", f"{machine.place}/orders.json")

    def kill(self, name: str, off_s: float) -> None:
        """Kill all that runs on a machine, and start it again after a while.

        Spark is told of the end of its parts, as the system tells all who are connected. Of a coordinator nothing is heard, as
        of a host without power: what that costs is for this software to answer, while Spark has waits of its own, of minutes.
        """
        machine = self.machines[name]
        machine.host.connect(connected=name not in QUEUE_HOSTS)
        machine.switch_off()
        threading.Event().wait(off_s)
        machine.host.connect(connected=True)
        self.switch_on(name)

    @property
    def master(self) -> str:
        """Where the cluster is; Spark on one machine where there is none."""
        return f"spark://{self.machines[MASTER].host.address}:{MASTER_PORT}" if MASTER in self.machines else "local[2]"

    @property
    def addresses(self) -> list[str]:
        """Where coordinators serve, or wait."""
        return [f"{self.machines[name].host.address}:{QUEUE_PORT}" for name in QUEUE_HOSTS if name in self.machines]

    @property
    def drivers(self) -> list[Machine]:
        """The machines of drivers."""
        return [machine for name, machine in self.machines.items() if name in DRIVERS]

    def order(self) -> None:
        """Tell each driver what is its share."""
        share = self.size.messages // len(self.drivers)
        for number, machine in enumerate(self.drivers):
            orders = Orders(
                name=machine.name, place=machine.place, master=self.master, journal=self.journal.path,
                storage=dict(self.journal.store.storage_options), coordinator=",".join(self.addresses) or None,
                first=number * share, until=(number + 1) * share, at_once=self.size.at_once, max_backlog=self.size.max_backlog,
            )  # fmt: skip
            (machine.disk / "orders.json").write_bytes(msgspec.json.encode(orders))

    def allow(self, part: float) -> None:
        """Let the drivers publish so much of their shares."""
        share = self.size.messages // len(self.drivers)
        for number, machine in enumerate(self.drivers):
            partial = machine.disk / "allowed.partial"
            partial.write_text(str(number * share + int(share * part)))
            partial.rename(machine.disk / "allowed")

    def serving(self) -> str:
        """Name the machine whose coordinator serves."""
        claims = [record for record in open_journal(self.journal.store).records() if record.kind == "epoch_claimed"]
        address = str(detail_of(claims[-1])["address"]).partition("//")[2].rpartition(":")[0]
        return next(name for name in QUEUE_HOSTS if self.machines[name].host.address == address)

    def acknowledged(self) -> int:
        """Count the messages that are done."""
        return self.journal.queue(QUEUE).status().acknowledged

    def wait_until(self, what: str, is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Wait for something that the run cannot go on without."""
        told = f"{what} did not happen within {patience_s:.0f} s"
        waiting.wait_until(is_so, lambda: f"{told}\n{self.logs()}", deadline_s=patience_s)

    def says(self, name: str, text: str) -> None:
        """Wait until a machine's log has a text."""
        self.wait_until(f"'{text}' on {name}", lambda: text in (self.machines[name].disk / "log").read_text(errors="replace"))

    def stop_drivers(self) -> None:
        """Let the drivers end as people end them."""
        for machine in self.drivers:
            (machine.disk / "stop").touch()
        for machine in self.drivers:
            self.says(machine.name, STOPPED)

    def logs(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(f"--- {machine.name}\n{machine.log()}" for machine in self.machines.values())

    def _serve(self, machine: Machine) -> subprocess.Popen[bytes]:
        storage = [part for pair in self.journal.store.storage_options.items() for part in ("-o", "=".join(pair))]
        bind = ("--bind", f"{machine.host.address}:{QUEUE_PORT}")
        files = {"--tls-cert": "cert.pem", "--tls-key": "key.pem"} if self._hosts.arguments else {}
        tls = [part for option, file in files.items() for part in (option, f"{machine.place}/{file}")]
        return machine.python("spark_queue.cli", "serve", self.journal.path, "--standby", *bind, *tls, *storage)

    def _spark(self, machine: Machine, name: str, *arguments: str) -> None:
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        machine.start(command, {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": JAVA, "SPARK_NO_DAEMONIZE": "1"})


@contextmanager
def cluster_of(
    names: tuple[str, ...], folder: Path, size: Size, *, kind: str = NAMESPACES, server: str = "moto"
) -> Iterator[Cluster]:
    """Have machines of these names, and an S3 server that they reach, until the end of the block."""
    with ExitStack() as stack:
        hosts = stack.enter_context(hosts_of(kind, folder, len(names)))
        store = stack.enter_context(s3_server_of(server, folder / "s3", host=hosts.here))
        cluster = Cluster(folder, hosts, store, names, size)
        for machine in cluster.machines.values():
            stack.callback(machine.switch_off)
        yield cluster
