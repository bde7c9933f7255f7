"""The steps that act. Each takes its words and gives its answer as text."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from spark_queue.core.deciding.batch_runs import OutcomeOf
from spark_queue.core.deciding.manual_settlement import SettledCounts
from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.core.records import Outcome
from spark_queue.core.state.letters import dead_letters
from spark_queue.testing.scenario.attributes import number_or_text
from spark_queue.testing.scenario.facts import Published
from spark_queue.testing.scenario.script import Words, compare, rows_text
from spark_queue.testing.scenario.world import Planner, Run, World

#: What Spark asks for where nobody says otherwise.
_LIMIT = 100_000


def define(world: World, words: Words, block: str) -> str:
    """Replace the definitions by a block of TOML."""
    reset = words.option("reset")
    resets = () if reset is None else reset.split(",")
    world.engine.apply(definitions=tomllib.loads(block), reset=resets, now_ms=world.now_ms)
    return "done"


def _publish(world: World, words: Words) -> str:
    messages: list[Published] = []
    message_type = ""
    for clause in words.clauses():
        topic, kind = world.state.definitions.route(clause.take())
        message_type = message_type or kind.name
        rows, expires_ms = clause.rows(), clause.duration_ms("expires")
        attributes = {name: number_or_text(value) for name, value in clause.options().items()}
        clause.end()
        first = world.state.message_types[message_type].entered_until + len(messages)
        compare(list(rows), list(range(first, first + len(rows))), f"bookmark {first} is next")
        compare(kind.name, message_type, "one file holds one message type")
        expires_at_ms = None if expires_ms is None else world.now_ms + expires_ms
        messages.extend(Published(topic=topic, expires_at_ms=expires_at_ms, attributes=attributes) for _ in rows)
    world.publish(message_type, messages)
    return "done"


def _merge(world: World, words: Words) -> str:
    world.merge(words.take())
    return "done"


def _draw(world: World, words: Words) -> str:
    name, (queue, subscription) = words.take(), _place(words)
    world.planners[name] = Planner(
        queue=queue,
        subscription=subscription,
        incarnation=world.engine.draw_incarnation(),
        max_backlog=words.number("backlog", _LIMIT),
        ack_mode=words.option("mode") or "auto",
        filter_sql=words.option("filter"),
        available_now=words.flag("available_now"),
    )
    return "done"


def _attach(world: World, words: Words) -> str:
    planner = world.planners[words.take()]
    call = _call(planner, words)
    world.engine.attach(
        queue=planner.queue, subscription=planner.subscription, incarnation=planner.incarnation, call=call,
        ack_mode=planner.ack_mode, max_backlog=planner.max_backlog, filter_sql=planner.filter_sql,
        available_now=planner.available_now, now_ms=world.now_ms,
    )  # fmt: skip
    return "done"


def _planner(world: World, words: Words) -> str:
    name = words.take()
    words_of_draw = [name, words.take()]
    words_of_draw += [f"{key}={value}" for key in ("backlog", "mode", "filter") if (value := words.option(key)) is not None]
    if words.flag("available_now"):
        words_of_draw.append("available_now")
    _draw(world, Words(tuple(words_of_draw)))
    return _attach(world, Words((name,)))


def _next(world: World, words: Words) -> str:
    planner = world.planners[words.take()]
    place = (planner.queue, planner.subscription)
    finished, limit = words.number("finished", world.checkpoints.get(place, 0)), words.number("limit", _LIMIT)
    lost, call = words.flag("lost"), _call(planner, words)
    lease = world.engine.next(**_who(planner), call=call, finished=finished, limit=limit, now_ms=world.now_ms)
    if lease is None:
        return "nothing"
    if not lost:
        world.checkpoints[place] = lease.number
    return f"lease {lease.number}: {'barrier ' if lease.is_barrier else ''}{rows_text(lease.rows)}"


def _waits(world: World, words: Words) -> str:
    limit = words.number("limit", _LIMIT)
    world.engine.note_poll(**_who(world.planners[words.take()]), limit=limit, now_ms=world.now_ms)
    return "done"


def _checkpoint(world: World, words: Words) -> str:
    place = _place(words)
    world.checkpoints[place] = int(words.take())
    return "done"


def _rows(world: World, words: Words) -> str:
    planner = world.planners[words.take()]
    lease, call = _lease(world, planner, words), _call(planner, words)
    _, rows = world.engine.rows(**_who(planner), call=call, lease=lease, now_ms=world.now_ms)
    return rows_text(rows)


def _renew(world: World, words: Words) -> str:
    planner = world.planners[words.take()]
    world.engine.renew(**_who(planner), lease=_lease(world, planner, words), now_ms=world.now_ms)
    return "done"


def _leave(world: World, words: Words) -> str:
    world.engine.leave(**_who(world.planners[words.take()]), now_ms=world.now_ms)
    return "done"


def _unsubscribe(world: World, words: Words) -> str:
    queue, subscription = _place(words)
    world.engine.unsubscribe(queue=queue, subscription=subscription, now_ms=world.now_ms)
    return "done"


def _pause(world: World, words: Words) -> str:
    world.engine.pause(queue=words.take(), now_ms=world.now_ms)
    return "done"


def _unpause(world: World, words: Words) -> str:
    world.engine.unpause(queue=words.take(), now_ms=world.now_ms)
    return "done"


def _start(world: World, words: Words) -> str:
    name = words.take()
    planner = world.planners[name]
    known, lease = world.engine.start_run(queue=planner.queue, subscription=planner.subscription, now_ms=world.now_ms)
    run = words.take() if words.flag("as") else name
    number = 0 if lease is None else lease.number
    world.runs[run] = Run(queue=planner.queue, subscription=planner.subscription, incarnation=known.incarnation, lease=number)
    return "no lease" if lease is None else f"lease {number}"


def _end(world: World, words: Words) -> str:
    run = world.runs[words.take()]
    error, cancel, early = words.option("failed"), words.option("on_error") == "cancel", words.flag("early")
    outcomes = _outcomes(world, words)
    world.engine.end_run(**asdict(run), outcomes=outcomes, error=error, cancel=cancel, settle=early, now_ms=world.now_ms)
    return "done"


def _prove(world: World, words: Words) -> str:
    world.engine.prove(**asdict(world.runs[words.take()]), now_ms=world.now_ms)
    return "done"


def _settle(world: World, words: Words) -> str:
    queue, where = words.take(), words.option("where")
    if where is not None:
        return _counts_text(world.engine.settle_where(queue=queue, where=where, said=_said(world, words), now_ms=world.now_ms))
    lease = words.number("lease", 0) if words.peek().startswith("lease=") else 0
    clauses = [(clause.number("lease", lease) or None, clause) for clause in words.clauses()]
    outcomes = [replace(each, lease=under) for under, clause in clauses for each in _outcomes(world, clause)]
    return _counts_text(world.engine.settle(queue=queue, outcomes=outcomes, now_ms=world.now_ms))


def _counts_text(counts: SettledCounts) -> str:
    return " ".join(f"{name} {count}" for name, count in asdict(counts).items() if count) or "nothing"


def _purge(world: World, words: Words) -> str:
    purged, leased = world.engine.purge(queue=words.take(), where=words.option("where"), now_ms=world.now_ms)
    return f"purged {purged} leased {leased}"


def _redrive(world: World, words: Words) -> str:
    queue, rows, where = words.take(), words.rows(), words.option("where")
    rows = rows or dead_letters(world.state, queue, where)
    redriven = world.engine.redrive(queue=queue, rows=rows, now_ms=world.now_ms)
    counts = {"redriven": redriven, "skipped": len(rows) - redriven}
    return " ".join(f"{name} {count}" for name, count in counts.items() if count) or "nothing"


def _tick(world: World, words: Words) -> str:
    _wait(world, words)
    world.engine.tick(now_ms=world.now_ms)
    return "done"


def _wait(world: World, words: Words) -> str:
    world.clock.advance(parse_duration_ms(words.take()))
    return "done"


def _crash(world: World, _words: Words) -> str:
    world.recover()
    return "done"


def _route(world: World, words: Words) -> str:
    return world.state.definitions.route(words.take())[0]


def _outcomes(world: World, words: Words) -> list[OutcomeOf]:
    outcomes = []
    for clause in words.clauses():
        said = _said(world, clause)
        outcomes.append(replace(said, rows=clause.rows()))
        clause.end()
    return outcomes


def _said(world: World, words: Words) -> OutcomeOf:
    outcome, after_ms, error = Outcome(words.take()), words.duration_ms("after"), words.option("error")
    return OutcomeOf(outcome=outcome, due_at_ms=None if after_ms is None else world.now_ms + after_ms, error=error)


def _place(words: Words) -> tuple[str, str]:
    queue, _, subscription = words.take().partition("/")
    return queue, subscription


def _lease(world: World, planner: Planner, words: Words) -> int:
    return words.number("lease", world.checkpoints.get((planner.queue, planner.subscription), 0))


def _call(planner: Planner, words: Words) -> int:
    if words.flag("again"):
        return planner.call
    given = words.number("call", 0)
    if not given:
        planner.call += 1
    return given or planner.call


def _who(planner: Planner) -> dict[str, Any]:
    return {"queue": planner.queue, "subscription": planner.subscription, "incarnation": planner.incarnation}


VERBS: dict[str, Callable[[World, Words], str]] = {
    "publish": _publish,
    "merge": _merge,
    "draw": _draw,
    "attach": _attach,
    "planner": _planner,
    "next": _next,
    "waits": _waits,
    "checkpoint": _checkpoint,
    "rows": _rows,
    "renew": _renew,
    "leave": _leave,
    "unsubscribe": _unsubscribe,
    "pause": _pause,
    "unpause": _unpause,
    "start": _start,
    "end": _end,
    "prove": _prove,
    "settle": _settle,
    "purge": _purge,
    "redrive": _redrive,
    "tick": _tick,
    "wait": _wait,
    "crash": _crash,
    "route": _route,
}
