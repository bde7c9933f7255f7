"""One run: messages are published and consumed while machines are killed; then the books are balanced."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.acceptance.standalone.books import Books, balance
from tests.acceptance.standalone.cluster import DRIVERS, MASTER, QUEUE_HOSTS, WORKERS, Cluster

#: For how long a machine is away that was killed, in seconds.
OFF_S = 3.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run came to."""

    books: Books
    #: From the first acknowledgement to the last.
    took_s: float
    #: From the first acknowledgement to each kill, in seconds, by the machine.
    killed_at_s: dict[str, float]


def start(cluster: Cluster) -> None:
    """Start everything, in the order in which it is needed."""
    cluster.order()
    for name in (each for each in cluster.machines if each in QUEUE_HOSTS):
        cluster.switch_on(name)
    if MASTER in cluster.machines:
        cluster.switch_on(MASTER)
        cluster.says(MASTER, "I have been elected leader")
        for name in WORKERS:
            cluster.switch_on(name)
        for name in WORKERS:
            cluster.says(name, "Successfully registered with master")
    for machine in cluster.drivers:
        cluster.switch_on(machine.name)


def run(cluster: Cluster, *, kills: bool, say: Callable[[str], None]) -> Outcome:
    """Publish and consume everything; in a run with kills a worker, a driver and the serving coordinator are killed on the way."""
    messages = cluster.size.messages
    victims = [lambda: WORKERS[0], lambda: DRIVERS[0], cluster.serving] if kills else []
    quarter = 1 / (len(victims) + 1)
    start(cluster)
    cluster.allow(quarter)
    cluster.wait_until("the first acknowledgement", lambda: cluster.acknowledged() > 0)
    say("the first messages are acknowledged")
    began_s, killed_at_s = time.monotonic(), {}
    for number, victim in enumerate(victims):
        wait_for(cluster, int(messages * quarter * (number + 0.5)))
        # There is work to do when it is killed, and after that.
        cluster.allow(quarter * (number + 2))
        name = victim()
        killed_at_s[name] = time.monotonic() - began_s
        cluster.kill(name, OFF_S)
        say(f"{name} was killed")
    cluster.allow(1)
    wait_for(cluster, messages)
    took_s = time.monotonic() - began_s
    say("everything is acknowledged")
    cluster.stop_drivers()
    books = balance(cluster.journal, [machine.disk / "sink" for machine in cluster.drivers], messages)
    return Outcome(books=books, took_s=took_s, killed_at_s=killed_at_s)


def wait_for(cluster: Cluster, messages: int) -> None:
    """Wait until so many messages are acknowledged, as long as they become more."""
    while (now := cluster.acknowledged()) < messages:
        cluster.wait_until(f"that more than {now:,} messages are acknowledged", partial(_more_than, cluster, now))


def _more_than(cluster: Cluster, messages: int) -> bool:
    return cluster.acknowledged() > messages
