"""The expressions of queues: checked against their message type, and evaluated over its messages (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.numbers import from_array, to_array
from spark_queue.core.commands import AnyCommand
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.message_files.segment import EntryFacts, FactRequest, Segment
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import ConfigError
from spark_queue.expression import BARRIER, FILTER, ORDER_KEY, PRIORITY, Found, Program, Wanted, translate
from spark_queue.journal.schema import stored_schema

#: The keys of a queue that hold expressions, and what each is for.
EXPRESSION_KEYS = {"filter": FILTER, "barrier": BARRIER, "priority": PRIORITY, "order_key": ORDER_KEY}


def check_expressions(definitions: Definitions) -> None:
    """Check the expressions of all queues against the columns of their message types.

    Raises
    ------
    ConfigError
        EXPRESSION_INVALID or EXPRESSION_UNSUPPORTED.
    """
    for queue in definitions.queues.values():
        for key, wanted in _wanted_by_key(FactRequest(queue=queue)).items():
            _check(wanted, queue.columns, f"{key} of [queues.{queue.name}]")


def check_command(state: JournalState, command: AnyCommand) -> None:
    """Refuse a command with an expression that cannot be; a command that took effect before, and comes again, may say anything.

    Raises
    ------
    ConfigError
        EXPRESSION_INVALID or EXPRESSION_UNSUPPORTED, or what is wrong with the definitions around it; UNKNOWN_QUEUE.
    """
    if state.has_done(command.request):
        return
    match command:
        case commands.Apply():
            check_expressions(parsing.parse(command.definitions))
        case commands.Attach(filter=str(expression)):
            _check_filter_of(state, command.queue, expression, f"subscription '{command.subscription}'")
        case commands.SettleWhere(where=str(expression)):
            _check_filter_of(state, command.queue, expression, "a settlement")
        case commands.Purge(where=str(expression)):
            _check_filter_of(state, command.queue, expression, "a purge")
        case commands.FindDeadLetters(where=str(expression)):
            _check_filter_of(state, command.queue, expression, "a redrive")


def _check_filter_of(state: JournalState, queue: str, expression: str, what: str) -> None:
    _check(Wanted(expression, FILTER), state.ledger(queue).definition.columns, f"filter of {what}")


def _check(wanted: Wanted, columns: str, what: str) -> None:
    """Check an expression over a message type's columns; `what` says which it is, for the error."""
    try:
        program([wanted], columns)
    except ConfigError as refusal:
        raise ConfigError(refusal.code, **{**refusal.facts, "what": what}) from None


def program(wanted: Iterable[Wanted], columns: str) -> Program:
    """Translate expressions over a message type's columns, given in Spark DDL; each set of them once."""
    return translate(tuple(sorted(set(wanted))), stored_schema(columns))


def wanted_of(request: FactRequest) -> set[Wanted]:
    """Return all expressions that a queue needs of entering messages."""
    return {*_wanted_by_key(request).values(), *(Wanted(text, FILTER) for text in request.filters)}


def entry_facts(
    segment: Segment, request: FactRequest, rows: BitMap64, expires: Mapping[int, BitMap64], found: Mapping[Wanted, Found]
) -> EntryFacts:
    """Return the facts of a queue from what its expressions found.

    Parameters
    ----------
    segment : Segment
        The messages.
    request : FactRequest
        What the queue asks.
    rows : BitMap64
        The messages of its topics.
    expires : Mapping of int to BitMap64
        Those of `rows` that carry an expiration, by time.
    found : Mapping of Wanted to Found
        For every row of the segment.
    """
    by_key = {key: found[wanted] for key, wanted in _wanted_by_key(request).items()}
    inside = _mask(rows, segment)
    failed = np.zeros(segment.rows, dtype=np.bool_)
    if (admitted := by_key.pop("filter", None)) is not None:
        failed |= inside & admitted.failed
        inside &= admitted.values
        rows = bitmap_of(inside, segment.first)
        expires = {at_ms: part & rows for at_ms, part in expires.items() if part.intersect(rows)}
    matches = {text: found[Wanted(text, FILTER)] for text in request.filters}
    for each in (*by_key.values(), *matches.values()):
        failed |= inside & each.failed
    barrier = by_key.get("barrier")
    ranked, priorities = _numbers(by_key.get("priority"), inside, segment.first)
    keyed, keys = _numbers(by_key.get("order_key"), inside, segment.first)
    return EntryFacts(
        rows=rows,
        expires=expires,
        barriers=BitMap64() if barrier is None else bitmap_of(inside & barrier.values, segment.first),
        matches={text: bitmap_of(inside & each.values, segment.first) for text, each in matches.items()},
        ranked=ranked,
        priorities=priorities,
        keyed=keyed,
        keys=keys,
        failed=bitmap_of(failed, segment.first),
    )


def bitmap_of(mask: NDArray[np.bool_], first: int) -> BitMap64:
    """Return the bookmarks of the rows where `mask` holds, the first of which is `first`."""
    return from_array(np.flatnonzero(mask) + first)


def _wanted_by_key(request: FactRequest) -> dict[str, Wanted]:
    texts = {key: getattr(request.queue, key) for key in EXPRESSION_KEYS if key != "barrier" or request.barriers}
    return {key: Wanted(text, EXPRESSION_KEYS[key]) for key, text in texts.items() if text is not None}


def _mask(rows: BitMap64, segment: Segment) -> NDArray[np.bool_]:
    if len(rows) == segment.rows:
        return np.ones(segment.rows, dtype=np.bool_)
    mask = np.zeros(segment.rows, dtype=np.bool_)
    mask[to_array(rows) - segment.first] = True
    return mask


def _numbers(found: Found | None, inside: NDArray[np.bool_], first: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    if found is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    there = inside & found.valid
    return np.flatnonzero(there) + first, found.values[there].astype(np.uint64)
