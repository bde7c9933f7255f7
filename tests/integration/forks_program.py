"""A program that has used a journal and then forks, as `multiprocessing` does by default on Linux; it prints what its children met.

Run by `test_forks.py`, in a process of its own: a test's process has used everything, and has threads.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

from spark_queue import Journal, Queue

#: How long a child may take, in seconds: one that waits for a thread that it does not have waits for ever.
CHILD_S = 60

_DEFINITIONS = {
    "message_types": {"t": {"columns": "id BIGINT", "topics": ["T"]}},
    "queues": {"W": {"underlying_topic": "T"}},
}


def calls(journal: Journal, queue: Queue, publisher: Any) -> dict[str, Callable[[], Any]]:
    """Return what a child may do first of all, by its name."""
    row = [{"id": 9}]
    peer = journal.peer("other")
    batch_function: Any = queue.foreach_batch(lambda *_: None, subscription="s")
    return {
        "publish": partial(journal.publish, row, topic="T"),
        "publish by name": partial(journal.publish, row, topic="T", publisher="q"),
        "publish_async": lambda: asyncio.run(journal.publish_async(row, topic="T")),
        "publisher.publish": partial(publisher.publish, row, topic="T"),
        "publisher.publish_async": lambda: asyncio.run(publisher.publish_async(row, topic="T")),
        "publisher": journal.publisher("p").__enter__,
        "create": partial(Journal.create, f"{journal.path}-other", _DEFINITIONS),
        "journal_id": journal.journal_id,
        "definitions": journal.definitions,
        "apply": partial(journal.apply, _DEFINITIONS),
        "apply dry": partial(journal.apply, _DEFINITIONS, dry_run=True),
        "mark_restored": journal.mark_restored,
        "follow": partial(journal.follow, "json"),
        "catch_up": journal.catch_up,
        "give_up_files": partial(journal.give_up_files, "json"),
        "forget_lost": partial(journal.forget_lost, "json"),
        "prove": partial(journal.prove, f"{journal.path}-checkpoint"),
        "check_peers": journal.check_peers,
        "peer_status": journal.peer_status,
        "view": partial(journal.view, "messages", queue="W"),
        "view_schema": partial(journal.view_schema, "messages", queue="W"),
        "receive": lambda: queue.receive(until_empty=True).__enter__(),
        "process": partial(queue.process, print, until_empty=True),
        "settle": partial(queue.settle, [0]),
        "settle where": partial(queue.settle, where="id = 1", dry_run=True),
        "settle later": partial(queue.settle, [0], "cancel", retry_after=timedelta(seconds=1)),
        "purge": queue.purge,
        "redrive": queue.redrive,
        "letter_kinds": queue.letter_kinds,
        "status": queue.status,
        "check": queue.check,
        "explain": partial(queue.explain, 0),
        "pause": queue.pause,
        "unpause": queue.unpause,
        "revive": queue.revive,
        "proxied_transfer": partial(queue.proxied_transfer, on=True),
        "unsubscribe": partial(queue.unsubscribe, "s"),
        "attempts_in_doubt": queue.attempts_in_doubt,
        "foreach_batch": partial(batch_function, None, 0),
        "into": partial(queue.into, f"{journal.path}-table", subscription="s"),
        "into topic": partial(queue.into, topic="T", subscription="s"),
        "peer.drain": peer.drain,
        "peer.forget": peer.forget,
        "peer.skip_lost": peer.skip_lost,
        "peer.reset": peer.reset,
        "peer.return_without": peer.return_without,
    }


def met(call: Callable[[], Any]) -> str:
    """Return the code of the error that a call ends with, or what else became of it."""
    try:
        call()
    except Exception as reason:  # noqa: BLE001 - as a user's program does.
        return str(getattr(reason, "code", repr(reason)))
    except BaseException as reason:  # noqa: BLE001 - a library's panic is one.
        return f"no Exception: {reason!r}"
    return "done"


def in_child(call: Callable[[], Any]) -> str:
    """Return what a call in a forked child met, once the child has ended."""
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    child = context.Process(target=lambda: writing.send(met(call)))
    child.start()
    writing.close()
    child.join(CHILD_S)
    if child.exitcode is None:
        child.kill()
        return "waits for ever"
    return str(reading.recv()) if child.exitcode == 0 else f"ended with {child.exitcode}"


def at_exit_of_a_child(leave: Callable[[], Any]) -> int:
    """Return how a child ends that leaves by the interpreter's own end, as programs do that fork by themselves."""
    child = os.fork()
    if child == 0:
        signal.alarm(CHILD_S)
        leave()
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(path: str) -> dict[str, Any]:
    """Use a journal in every way, fork, and return what the children and this process met."""
    journal = Journal.create(path, _DEFINITIONS)
    queue = journal.queue("W")
    with journal.publisher("p") as publisher:
        publisher.publish([{"id": 1}], topic="T")
        # From now on a coordinator runs, and the publisher has called it.
        queue.pause()
        publisher.publish([{"id": 2}], topic="T")
        found = {name: in_child(call) for name, call in calls(journal, queue, publisher).items()}
        left = in_child(partial(publisher.__exit__, None, None, None))
        ended = at_exit_of_a_child(lambda: met(queue.status))
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            raised = pool.submit(journal.publish, [{"id": 3}], topic="T").exception(CHILD_S)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            spawned = met(pool.submit(journal.publish, [{"id": 3}], topic="T").result)
        goes_on = met(partial(publisher.publish, [{"id": 4}], topic="T"))
    return {
        "found": found, "left": left, "ended": ended, "raised": f"{type(raised).__name__}: {raised}",
        "spawned": spawned, "goes on": goes_on, "rows": journal.view("messages", queue="W").column("id").to_pylist(),
    }  # fmt: skip


def main_unused(path: str) -> dict[str, Any]:
    """Fork before anything was used, though everything is imported, and return what the children met."""
    import spark_queue.client.coordinator_client
    import spark_queue.client.publisher
    import spark_queue.journal.open
    import spark_queue.views

    journal, row = Journal(path), [{"id": 5}]
    queue = journal.queue("W")
    assert spark_queue.client.coordinator_client.CoordinatorClient is not None
    return {
        "publish": in_child(partial(journal.publish, row, topic="T")),
        "unpause": in_child(queue.unpause),
        "view": in_child(partial(journal.view, "messages", queue="W")),
    }


def main_stranger(path: str) -> dict[str, Any]:
    """Use delta-rs without this package, fork, and return what the child met."""
    from deltalake import DeltaTable

    DeltaTable(f"{path}/control").version()
    return {"publish": in_child(partial(Journal(path).publish, [{"id": 6}], topic="T"))}


if __name__ == "__main__":
    program = {"used": main, "unused": main_unused, "stranger": main_stranger}[sys.argv[1]]
    sys.stdout.write(json.dumps(program(sys.argv[2])))
