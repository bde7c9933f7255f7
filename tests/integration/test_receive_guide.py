"""The examples of the guide to consumers in plain Python, and README's worker, as they stand there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_queue import Expire, Journal
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.protocol import wire
from tests.docs import pages

DEFINITIONS: dict[str, Any] = {
    "message_types": {
        "mail": {"columns": "address STRING", "topics": ["MAIL"]},
        "order": {"columns": "item STRING, quantity BIGINT", "topics": ["ORDERS"]},
    },
    "queues": {"MAIL": {"underlying_topic": "MAIL"}, "WORK": {"underlying_topic": "ORDERS"}},
}

ADDRESSES = ["ann@shop.test", None, "bob@slow.example", "eve@shop.test"]


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_user: None) -> Iterator[Journal]:
    """Return the journal of the examples, in the working directory, with four mails."""
    monkeypatch.chdir(tmp_path)
    made = Journal.create("shop", DEFINITIONS)
    made.publish([{"address": address} for address in ADDRESSES], topic="MAIL")
    yield made
    CoordinatorClient(made.store, made.journal_id(), start=False).call(wire.Stop())


def outcomes(journal: Journal) -> tuple[int, int, int]:
    """Return how many mails were acknowledged, are dead letters, and are still there."""
    status = journal.queue("MAIL").status()
    return status.acknowledged, status.dead_letters, status.queue_depth


def test_a_function_is_run_on_each_message(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    exec(pages.example("processing"), {})
    assert sorted(capsys.readouterr().out.splitlines()) == ["2 sent", "mail to ann@shop.test", "mail to eve@shop.test"]
    assert outcomes(journal) == (2, 1, 1)


def test_a_loop_settles_each_message(journal: Journal) -> None:
    exec(pages.example("receiving"), {"journal": journal})
    assert outcomes(journal) == (3, 1, 0)


def test_an_event_loop_settles_each_message(journal: Journal) -> None:
    called: list[int] = []

    async def call(message: Any) -> None:
        called.append(message.bookmark)

    names: dict[str, Any] = {"call": call}
    exec(pages.example("receiving_async"), names)
    asyncio.run(names["consume"](journal.queue("MAIL")))
    assert (called, outcomes(journal)) == ([0, 1, 2, 3], (4, 0, 0))


def test_batches_are_settled_but_for_exceptions(journal: Journal) -> None:
    def load(table: pa.Table) -> pa.Table:
        return table.filter(table.column("address").is_null()).select(["bookmark"]).append_column("outcome", pa.array(["expire"]))

    exec(pages.example("receiving_batches"), {"journal": journal, "load": load})
    assert outcomes(journal) == (3, 1, 0)


def test_a_receiver_of_dead_letters_reads_why_they_died_from_the_view(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    work = {"underlying_topic": "ORDERS", "dead_letter_queue": "FAILED"}
    journal.apply({**DEFINITIONS, "queues": {**DEFINITIONS["queues"], "WORK": work, "FAILED": {"message_type": "order"}}})
    journal.publish([{"item": "kettle", "quantity": 0}, {"item": "lamp", "quantity": 1}], topic="ORDERS")

    def check(message: Any) -> None:
        if not message["quantity"]:
            raise Expire("no quantity")

    assert journal.queue("WORK").process(check, until_empty=True).expired == 1
    exec(pages.example("letters_received"), {"journal": journal})
    assert capsys.readouterr().out == "kettle forced_expire no quantity 1\n"
    assert journal.queue("WORK").status().dead_letters == 0


def test_the_worker_of_the_readme_takes_what_is_there(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    journal.publish([{"item": "kettle", "quantity": 2}], topic="ORDERS")
    exec(pages.example("worker"), {})
    assert capsys.readouterr().out == "pack 2 kettle\n"
    assert journal.queue("WORK").status().acknowledged == 1
