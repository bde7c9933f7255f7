"""A coordinator that strangers flood: it goes on for its callers, and writes its log (R12)."""

from __future__ import annotations

import contextlib
import socket

import psutil

from spark_queue.protocol.discovery import read_advertisement
from tests.http2 import Stranger
from tests.integration.coordinator_world import MakeWorld, Planner

#: As a host limits a process that nobody has given more.
DESCRIPTORS = 128


def test_connections_of_strangers_leave_descriptors_for_the_journal(make_world: MakeWorld) -> None:
    """Descriptors that are all taken would keep the coordinator from its log, and so from deciding."""
    world = make_world()
    process = world.started(within=("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh"), ends_idle=False)
    planner = Planner(world)
    advertised = read_advertisement(world.store, world.journal_id)
    assert advertised is not None
    port = int(advertised.address.rpartition(":")[2])
    with contextlib.ExitStack() as strangers:
        for number in range(2 * DESCRIPTORS):
            with contextlib.suppress(OSError):
                # Half of them speak; further ones than there is room for are sent away.
                kind = Stranger(port) if number % 2 else socket.create_connection(("127.0.0.1", port), timeout=10.0)
                strangers.enter_context(contextlib.closing(kind))
        assert psutil.Process(process.pid).num_fds() < DESCRIPTORS - 20
        world.publish(6)
        assert sorted(planner.consume()) == list(range(6))
    assert world.ping().pid == process.pid
