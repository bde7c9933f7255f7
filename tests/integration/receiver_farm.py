"""Programs of the farm of receivers: a worker, and a stream without Spark. Each writes what it does to a file, line by line.

``python -m tests.integration.receiver_farm worker|stream JOURNAL QUEUE STORAGE_OPTIONS FILE``
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from spark_queue import Journal, Message
from spark_queue.errors import LeaseError, SparkQueueError
from spark_queue.receiver.message import Settlement


def work(journal: Journal, queue: str, told: TextIO) -> None:
    """Receive messages in three threads, for ever."""
    lock = threading.Lock()

    def tell(what: str, bookmark: int, lease: int) -> None:
        with lock:
            told.write(f"{what} {bookmark} {lease}\n")
            told.flush()

    def watch(message: Message, settlement: Settlement) -> None:
        try:
            settlement.result()
        except LeaseError as refused:
            tell("lost" if refused.code == "MESSAGE_LOST" else refused.code, message.bookmark, message.lease)
        except SparkQueueError as refused:
            tell(refused.code, message.bookmark, message.lease)
        else:
            tell("acknowledged", message.bookmark, message.lease)

    def handle(message: Message) -> None:
        tell("begun", message.bookmark, message.lease)
        threading.Event().wait(random.choice((0, 0, 0.05, 0.5, 1)))
        if message.value() == "bad":
            _ = message.expire(error="bad")
            return
        tell("done", message.bookmark, message.lease)
        watch(message, message.acknowledge())

    journal.queue(queue).process(handle, concurrency=3, max_backlog=12)


def stream(journal: Journal, queue: str, told: TextIO) -> None:
    """Take batches as a stream does, for ever; a batch is done when the next is asked for."""
    from tests.acceptance.plain_consumer import PlainConsumer

    consumer = PlainConsumer(journal, queue, "stream", None)
    while True:
        told.writelines(f"done {row['bookmark']} {row['lease']}\n" for row in consumer.take(8))
        told.flush()


PROGRAMS: dict[str, Callable[[Journal, str, TextIO], None]] = {"worker": work, "stream": stream}

if __name__ == "__main__":
    program, path, queue_name, options, file = sys.argv[1:]
    with Path(file).open("a", encoding="utf-8") as output:
        PROGRAMS[program](Journal(path, storage_options=json.loads(options)), queue_name, output)
