"""The steps that look: each compares what stands with what its line says, and raises where they differ."""

from __future__ import annotations

from collections.abc import Callable

from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.numbers import Counts
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.core.records import Kind, Removal
from spark_queue.core.state.dead_letter import DeadLetter
from spark_queue.core.state.findings import alarms
from spark_queue.core.state.letters import standing_letters
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.status import queue_status
from tests.scenario.script import Words, compare, rows_text
from tests.scenario.world import World


def _state(world: World, words: Words) -> str:
    ledger = world.state.ledger(words.take())
    wanted = _rows_by_name(words, [state.value for state in State])
    for state in State:
        rows = wanted.get(state.value, BitMap64())
        if state is State.REMOVED and state.value not in wanted:
            continue
        compare(ledger.rows[state], rows, f"{state} are {rows_text(ledger.rows[state])}")
    return "so"


def _counts(world: World, words: Words) -> str:
    ledger, rows = world.state.ledger(words.take()), words.rows()
    _check_count("deliveries", ledger.delivered, rows, words)
    _check_count("cancels", ledger.cancelled, rows, words)
    return "so"


def _check_count(name: str, counts: Counts, rows: BitMap64, words: Words) -> None:
    wanted = words.option(name)
    found = [count for count, _ in counts.split(rows)]
    if wanted is not None:
        compare(found, [int(wanted)], f"{name} are {found}")


def _lease(world: World, words: Words) -> str:
    ledger, number = world.state.ledger(words.take()), int(words.take())
    lease = ledger.leases[number]
    due_ms = lease.due_at_ms - world.now_ms
    compare(words.duration_ms("due") or due_ms, due_ms, f"is due in {due_ms} ms")
    wanted = _rows_by_name(words, ["held", "claim"])
    compare(wanted.get("held", lease.leased), lease.leased, f"holds {rows_text(lease.leased)}")
    compare(wanted.get("claim", lease.recoverable), lease.recoverable, f"claims {rows_text(lease.recoverable)}")
    return "so"


def _doubts(world: World, words: Words) -> str:
    found = world.decide(commands.FindAttempts(queue=words.take())).attempts
    text = ", ".join(f"{each.subscription} {each.attempt} {each.table}{f' {each.error}' if each.error else ''}" for each in found)
    wanted = ", ".join(" ".join(clause.rest()) for clause in words.clauses())
    compare(text, wanted, f"are {text or 'none'}")
    return "so"


def _barriers(world: World, words: Words) -> str:
    queue, _, name = words.take().partition("/")
    subscription = world.state.ledger(queue).subscriptions[name]
    compare(subscription.barriers, words.rows(), f"are {rows_text(subscription.barriers)}")
    deliveries = words.number("deliveries", subscription.barrier_deliveries)
    compare(subscription.barrier_deliveries, deliveries, f"deliveries are {subscription.barrier_deliveries}")
    return "so"


def _given_up(world: World, words: Words) -> str:
    found = world.state.ledger(words.take()).barriers_given_up
    compare(found, int(words.take()), f"are {found}")
    return "so"


def _failed(world: World, words: Words) -> str:
    found = world.state.ledger(words.take()).failed_expressions
    compare(found, int(words.take()), f"are {found}")
    return "so"


def _standing(world: World, words: Words) -> str:
    queue, wanted = words.take(), words.rows()
    found = BitMap64.union(BitMap64(), *(letter.rows for letter in standing_letters(world.state, queue)))
    compare(rows_text(found), rows_text(wanted), "these stand")
    return "done"


def _letters(world: World, words: Words) -> str:
    letters = list(world.state.ledger(words.take()).dead_letters)
    wanted = list(words.clauses())
    compare(len(letters), len(wanted), f"there are {len(letters)}: {letters}")
    for letter, clause in zip(letters, wanted, strict=True):
        _check_letter(letter, clause)
    return "so"


def _check_letter(letter: DeadLetter, clause: Words) -> None:
    rows, reason, error = clause.rows(), clause.take(), clause.option("error")
    deliveries, cancels = clause.number("deliveries", letter.deliveries), clause.number("cancels", letter.cancels)
    found = (letter.rows, letter.reason, letter.error, letter.deliveries, letter.cancels)
    compare(found, (rows, reason, error, deliveries, cancels), f"is {letter}")
    clause.end()


def _removals(world: World, words: Words) -> str:
    ledger = world.state.ledger(words.take())
    found = {reason: count for reason, count in ledger.removed_counts.items() if count}
    wanted = {reason.value: int(value) for reason in Removal if (value := words.option(reason)) is not None}
    compare(found, wanted, f"are {found}")
    return "so"


def _alarm(world: World, words: Words) -> str:
    queue, _, name = words.take().partition("/")
    subscription = world.state.ledger(queue).subscriptions[name]
    compare(BitMap64(subscription.suspects), words.rows(), f"suspects {rows_text(BitMap64(subscription.suspects))}")
    probe_ms = words.duration_ms("probe")
    probe_at_ms = None if subscription.alarm is None else subscription.alarm.probe_at_ms
    compare(probe_at_ms, None if probe_ms is None else world.now_ms + probe_ms, f"is {subscription.alarm} at {world.now_ms}")
    tells = words.option("tells")
    if tells is not None:
        error = "nothing" if subscription.alarm is None else subscription.alarm.error
        compare([error] if tells in error else [], [error], f"tells {error}")
    return "so"


def _lone(world: World, words: Words) -> str:
    ledger = world.state.ledger(words.take())
    rows = ledger.lone_failures.at_least(1, ledger.entered)
    compare(rows, words.rows(), f"are {rows_text(rows)}")
    return "so"


def _age(world: World, words: Words) -> str:
    word, found = words.take(), words.take()
    age_s = queue_status(world.state, word, now_ms=world.now_ms).seconds_behind
    compare(age_s, None if found == "none" else parse_duration_ms(found) / 1_000, f"is {age_s} s")
    return "so"


def _due(world: World, words: Words) -> str:
    word, due_ms = words.take(), world.engine.next_due_ms()
    if word == "now":
        compare(max(due_ms or world.now_ms + 1, world.now_ms), world.now_ms, f"is at {due_ms} ms")
        return "so"
    wanted_ms = None if word == "never" else world.now_ms + parse_duration_ms(word)
    compare(due_ms, wanted_ms, "is never" if due_ms is None else f"is in {due_ms - world.now_ms} ms")
    return "so"


def _status(world: World, words: Words) -> str:
    status, wanted = queue_status(world.state, words.take(), now_ms=world.now_ms), words.options()
    found = {name: str(getattr(status, name)).lower() for name in wanted}
    compare(found, wanted, f"are {found}")
    return "so"


def _alarms(world: World, words: Words) -> str:
    found = alarms(world.state, world.state.ledger(words.take()))
    wanted = {clause.take(): clause.take() for clause in words.clauses()}
    compare(list(found), list(wanted), f"are {found}")
    for subject, text in wanted.items():
        error = found[subject].text
        compare([error] if text in error else [], [error], f"says {error}")
    return "so"


def _records(world: World, words: Words) -> str:
    kind = Kind(words.take())
    count = sum(record.kind == kind for record in world.committed)
    compare(count, int(words.take()), f"are {count}")
    return "so"


def _retired(world: World, words: Words) -> str:
    segments = world.state.message_types[words.take()].segments
    found = to_bitmap([(segment.first, segment.until) for segment in segments if segment.retired])
    compare(rows_text(found), rows_text(words.rows()), f"are {rows_text(found)}")
    return "so"


def _rows_by_name(words: Words, names: list[str]) -> dict[str, BitMap64]:
    rows: dict[str, BitMap64] = {}
    while (name := words.peek()) in names:
        words.take()
        rows[name] = words.rows()
    return rows


VERBS: dict[str, Callable[[World, Words], str]] = {
    "state": _state,
    "counts": _counts,
    "lease": _lease,
    "doubts": _doubts,
    "barriers": _barriers,
    "given_up": _given_up,
    "failed": _failed,
    "letters": _letters,
    "standing": _standing,
    "removals": _removals,
    "alarm": _alarm,
    "age": _age,
    "lone": _lone,
    "due": _due,
    "retired": _retired,
    "status": _status,
    "alarms": _alarms,
    "records": _records,
}
