"""Odd values for every argument of the public methods: an error by name before anything is opened, or what they plainly mean."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spark_queue import Journal, Queue, SparkQueueError
from spark_queue.client.arguments import JUDGED_ELSEWHERE
from spark_queue.client.peer import Peer
from spark_queue.client.publisher import Publisher

DEFINITIONS = {
    "message_types": {"line": {"columns": "item STRING, amount BIGINT", "topics": ["LINES"]}},
    "queues": {"WORK": {"underlying_topic": "LINES"}},
}

#: A text with a byte that is no UTF-8, as Linux hands it over.
SURROGATE = "a\udcff"

ODD: tuple[Any, ...] = (
    5, -1, 1.5, math.nan, True, SURROGATE, "1", b"x", [], {"a": 1}, [SURROGATE], object(), date(2026, 1, 1), pd.NaT, np.int64(3),
    np.float64(2), np.bool_(1), np.datetime64("2026-01-01"), 2**70, pd.NA, (), lambda: None, Path("there"),
)  # fmt: skip

#: What an argument may be beside an odd value, so that the method gets as far as to judge that.
PLAIN: dict[str, Any] = {
    "data": [{"item": "a", "amount": 1}], "topic": "LINES", "name": "messages", "queue": "WORK", "bookmark": 0, "subscription": "s",
    "on": True, "message_type": "line", "definitions": DEFINITIONS, "checkpoint": "gone", "fn": lambda *_: None, "attempt": None,
    "rows": [0],
}  # fmt: skip

#: Where an odd value is plainly one: it is taken, or what the journal says of it is another matter.
METHODS: tuple[tuple[type, str], ...] = tuple(
    (kind, name)
    for kind in (Journal, Queue, Publisher, Peer)
    for name, value in inspect.getmembers(kind, callable)
    if not name.startswith("_") and name not in ("create", "decide", "publisher") and len(inspect.signature(value).parameters) > 1
)


def cases() -> list[Any]:
    return list(_cases())


def _cases() -> Iterator[Any]:
    for kind, name in METHODS:
        for parameter in inspect.signature(getattr(kind, name)).parameters:
            if parameter not in ("self", "attempt"):
                yield pytest.param(kind, name, parameter, id=f"{kind.__name__}.{name}-{parameter}")


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.chdir(tmp_path)
    made = Journal.create(str(tmp_path / "journal"), DEFINITIONS)
    made.publish([{"item": "a", "amount": 1}], topic="LINES")

    def ask(*_: Any, **__: Any) -> Any:
        raise AskedError

    # What would be asked was judged before: no coordinator is started.
    # First those that are loaded at first use: they would keep what stands in the client then.
    monkeypatch.setattr("spark_queue.client.catching_up.call_once", ask)
    monkeypatch.setattr("spark_queue.receiver.session.ReceiverSession.attach", ask)
    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", ask)
    return made


class AskedError(Exception):
    """The call would have gone to a coordinator."""


def told(call: Callable[[], Any]) -> SparkQueueError | None:
    """Return the error of a call; any other than ours is a failure."""
    try:
        found = call()
        if inspect.iscoroutine(found):
            asyncio.run(found)
    except SparkQueueError as refused:
        str(refused).encode()
        return refused
    except AskedError:
        return None
    return None


def holder(kind: type, journal: Journal) -> Any:
    if kind is Queue:
        return journal.queue("WORK")
    if kind is Peer:
        return journal.peer("there")
    return journal.publisher("p").__enter__() if kind is Publisher else journal


@pytest.mark.parametrize(("kind", "method", "parameter"), cases())
def test_odd_values_are_refused_by_name_or_are_what_they_plainly_mean(
    journal: Journal, kind: type, method: str, parameter: str
) -> None:
    asked = getattr(holder(kind, journal), method)
    known = inspect.signature(asked).parameters
    lacking = [name for name, each in known.items() if each.default is each.empty and name not in PLAIN]
    assert not lacking, f"PLAIN has no value that fits {lacking}"
    for value in ODD:
        given = {name: PLAIN[name] for name, each in known.items() if each.default is each.empty} | {parameter: value}
        told(functools.partial(asked, **given))
    if known[parameter].default is not None and parameter not in JUDGED_ELSEWHERE:
        rest = {name: PLAIN[name] for name, each in known.items() if each.default is each.empty}
        refused = told(lambda: asked(**rest | {parameter: None}))
        assert refused is not None
        assert (refused.code, refused.facts["key"]) == ("BAD_VALUE", parameter)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("explain", {"bookmark": "1"}),
        ("explain", {"bookmark": True}),
        ("explain", {"bookmark": 1.0}),
        ("explain", {"bookmark": 0, "as_of": "2026-01-01"}),
        ("status", {"as_of": date(2026, 1, 1)}),
        ("status", {"as_of": True}),
        ("status", {"as_of": pd.NaT}),
        ("redrive", {"per_second": "1"}),
        ("redrive", {"per_second": math.nan}),
        ("redrive", {"since": "2026-01-01"}),
        ("redrive", {"dry_run": "no"}),
        ("purge", {"where": SURROGATE}),
        ("purge", {"dry_run": None}),
        ("settle", {"rows": [0], "retry_after": 5}),
        ("settle", {"rows": [0], "error": SURROGATE}),
        ("unsubscribe", {"subscription": SURROGATE}),
        ("proxied_transfer", {"on": 1}),
        ("attempts_in_doubt", {"subscription": 5}),
        ("foreach_batch", {"fn": "fn", "subscription": "s"}),
        ("into", {"table": "t", "subscription": "s", "partition_by": "day"}),
    ],
)
def test_refusal_names_the_argument(journal: Journal, method: str, given: dict[str, Any]) -> None:
    refused = told(lambda: getattr(journal.queue("WORK"), method)(**given))
    assert refused is not None
    assert refused.code == "BAD_VALUE"
    assert refused.facts["key"] in given
    assert refused.facts["where"] == method


@pytest.mark.parametrize("names", ["WORK", [5], [SURROGATE], {"WORK": 1}])
@pytest.mark.parametrize("argument", ["reset", "remove", "leave"])
def test_one_name_is_no_list_of_names(journal: Journal, argument: str, names: Any) -> None:
    """The letters of a name are names, too, and none of them is a queue."""
    refused = told(lambda: journal.apply(DEFINITIONS, **{argument: names}))
    assert refused is not None
    assert (refused.code, refused.facts["key"]) == ("BAD_VALUE", argument)


def test_numbers_and_times_of_numpy_and_pandas_are_taken(journal: Journal) -> None:
    # Numbers of numpy are no int to a checker, and are given all the same.
    view: Any = journal.view
    queue: Any = journal.queue("WORK")
    assert queue.explain(np.int64(0)).bookmark == 0
    assert view("history", as_of=np.int32(1)).num_rows == journal.view("history", as_of=1).num_rows
    assert queue.status(pd.Timestamp(datetime.now(UTC))).queue == "WORK"
    assert view("messages", queue="WORK", limit=np.uint8(1), columns=pd.Index(["bookmark"])).num_rows == 1
