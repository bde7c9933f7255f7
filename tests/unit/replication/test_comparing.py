"""The definitions of a peer, read by who only compares them (DESIGN 17.3, 17.7)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.errors import JournalError
from spark_queue.journal.store import Store
from spark_queue.replication.restored import read_definitions
from tests.unit.replication.attack import Attack


def _file(attack: Attack) -> Path:
    """Return the file of the definitions that hold."""
    number = attack.peer.number("definitions_applied")
    [file] = (attack.peer.path / "control").glob(f"{number:020d}-*.parquet")
    return file


def _pipe(attack: Attack) -> None:
    file = _file(attack)
    file.unlink()
    os.mkfifo(file)


def _records(attack: Attack, count: int) -> None:
    rows = pq.read_table(_file(attack))
    pq.write_table(rows.take(pa.array([0] * count)), _file(attack))


def _said(change: dict[str, Any], kind: str = "definitions_applied") -> Callable[[Attack], None]:
    return lambda attack: attack.peer.rewrite(attack.peer.number(kind), lambda row: row.update(change))


CASES: dict[str, tuple[Callable[[Attack], None], str, str]] = {
    "a pipe": (_pipe, "PEER_REFUSED", "it is no file, or a link"),
    "more records than its log says": (lambda attack: _records(attack, 100_000), "PEER_REFUSED", "it has no 1 records"),
    "definitions that are none": (_said({"detail": {"v": 1, "definitions": {"queues": 7}}}), "PEER_REFUSED", "its definitions"),
    "a record of another kind": (_said({"kind": "subscribed"}), "PEER_REFUSED", "it is not of kind definitions_applied"),
    "a journal that is none": (_said({"detail": {"v": 1, "journal": 7}}, "journal_created"), "PEER_REFUSED", "journal"),
    "newer software": (
        _said({"detail": {"v": 1, "journal": "0" * 32, "format": 2}}, "journal_created"),
        "PROTOCOL_NEWER",
        "format 2",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_definitions_that_no_peer_may_have_are_refused(attack: Attack, case: str) -> None:
    change, code, says = CASES[case]
    change(attack)
    with pytest.raises(JournalError) as refusal:
        read_definitions(Store(str(attack.peer.path)), "virginia")
    assert (refusal.value.code, says in str(refusal.value)) == (code, True), refusal.value


def test_the_newest_definitions_of_an_honest_peer_are_read(attack: Attack) -> None:
    journal, found = read_definitions(Store(str(attack.peer.path)), "virginia")
    assert journal == attack.peer.rows()[0]["detail"]["journal"]
    assert (found.journal.instance, sorted(found.queues)) == ("virginia", ["FAILED", "WORK"])
