"""The steps that act. Each takes its words and gives its answer as text."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict, replace

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.commands import OutcomeRows
from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.core.records import Ranges
from spark_queue.core.replies import Settled, SinkTold
from spark_queue.core.state.letters import dead_letters
from tests.scenario.attributes import number_or_text
from tests.scenario.script import Words, compare, rows_text
from tests.scenario.traits import PublishedMessage
from tests.scenario.world import Planner, World

#: What Spark asks for where nobody says otherwise.
_LIMIT = 100_000


def define(world: World, words: Words, block: str) -> str:
    """Replace the definitions by a block of TOML."""
    reset = names(words, "reset") or ()
    world.decide(commands.Apply(definitions=defined(words, block), reset=tuple(reset)))
    return "done"


def defined(words: Words, block: str) -> dict[str, Any]:
    """Read a block of TOML, but for the queues that its step leaves out, and with the keys of queues that it names."""
    without, definitions = names(words, "without") or (), tomllib.loads(block)
    queues = {name: queue for name, queue in definitions.get("queues", {}).items() if name not in without}
    for place, value in words.options().items():
        queue, _, key = place.partition(".")
        queues[queue][key] = number_or_text(value)
    return {**definitions, "queues": queues}


def names(words: Words, option: str) -> list[str] | None:
    """Take an option that is a list of names, or ``none``; None where it is not there."""
    value = words.option(option)
    return None if value is None else [each for each in value.split(",") if each != "none"]


def _publish(world: World, words: Words) -> str:
    messages: list[PublishedMessage] = []
    message_type, waited_ms, delay_ms = "", 0, None
    for clause in words.clauses():
        topic, kind = world.state.definitions.route(clause.take())
        message_type = message_type or kind.name
        rows, expires_ms = clause.rows(), clause.duration_ms("expires")
        waited_ms, delay_ms = max(waited_ms, clause.duration_ms("ago") or 0), clause.duration_ms("after") or delay_ms
        attributes = {name: number_or_text(value) for name, value in clause.options().items()}
        clause.end()
        first = world.state.message_types[message_type].entered_until + len(messages)
        compare(list(rows), list(range(first, first + len(rows))), f"bookmark {first} is next")
        compare(kind.name, message_type, "one file holds one message type")
        expires_at_ms = None if expires_ms is None else world.now_ms + expires_ms
        messages.extend(PublishedMessage(topic=topic, expires_at_ms=expires_at_ms, attributes=attributes) for _ in rows)
    world.publish(message_type, messages, waited_ms=waited_ms, delay_ms=delay_ms)
    return "done"


def _merge(world: World, words: Words) -> str:
    world.merge(words.take())
    return "done"


def _draw(world: World, words: Words) -> str:
    name, (queue, subscription) = words.take(), _place(words)
    drawn = world.decide(commands.DrawIncarnation(queue=queue, subscription=subscription))
    world.planners[name] = Planner(
        queue=queue,
        subscription=subscription,
        incarnation=drawn.incarnation,
        at_most_once=drawn.at_most_once,
        max_backlog=words.number("backlog", _LIMIT),
        ack_mode=words.option("mode") or "auto",
        filter_sql=words.option("filter"),
        available_now=words.flag("available_now"),
        ends=words.flag("ends"),
    )
    return "done"


def _attach(world: World, words: Words) -> str:
    planner = world.planners[words.take()]
    call = _call(planner, words)
    wishes: dict[str, Any] = {"ack_mode": planner.ack_mode, "max_backlog": planner.max_backlog, "filter": planner.filter_sql}
    wishes["ends"] = planner.ends
    world.decide(commands.Attach(**_who(planner), call=call, **wishes, available_now=planner.available_now))
    return "done"


def _planner(world: World, words: Words) -> str:
    name = words.take()
    words_of_draw = [name, words.take()]
    words_of_draw += [f"{key}={value}" for key in ("backlog", "mode", "filter") if (value := words.option(key)) is not None]
    words_of_draw += [flag for flag in ("available_now", "ends") if words.flag(flag)]
    _draw(world, Words(tuple(words_of_draw)))
    return _attach(world, Words((name,)))


def _next(world: World, words: Words) -> str:
    planner = world.planners[words.take()]
    place = (planner.queue, planner.subscription)
    finished, limit = words.number("finished", world.checkpoints.get(place, 0)), words.number("limit", _LIMIT)
    lost, call, overrun = words.flag("lost"), _call(planner, words), _overrun(words)
    poll = commands.Next(
        **_who(planner), call=call, finished=finished, limit=limit, overrun=overrun, at_most_once=planner.at_most_once
    )
    is_nothing_there = planner.ack_mode == "receive" and world.engine.has_nothing_for(
        poll, world.state.ledger(planner.queue).backlogs(), now_ms=world.now_ms
    )
    granted = world.decide(poll)
    assert granted is None or not is_nothing_there, "a poll that waits would not be answered"
    if granted is None:
        world.engine.ask_owners(poll, now_ms=world.now_ms)
        return "nothing"
    lease = world.state.ledger(planner.queue).leases[granted.lease]
    assert granted.remaining_ms == lease.due_at_ms - world.now_ms, "a consumer believes in another end of its lease"
    if not lost:
        world.checkpoints[place] = lease.number
    kind = "barrier " if lease.is_barrier else "alone " if granted.alone else ""
    return f"lease {lease.number}: {kind}{rows_text(lease.rows)}"


def _waits(world: World, words: Words) -> str:
    limit, overrun = words.number("limit", _LIMIT), _overrun(words)
    poll = commands.Next(**_who(world.planners[words.take()]), call=0, finished=0, limit=limit, overrun=overrun)
    world.engine.note_poll(poll, now_ms=world.now_ms)
    return "has ended" if world.engine.has_ended(poll, now_ms=world.now_ms) else "done"


def _overrun(words: Words) -> Ranges:
    row = words.option("overrun")
    return () if row is None else ((int(row), int(row) + 1),)


def _checkpoint(world: World, words: Words) -> str:
    place = _place(words)
    world.checkpoints[place] = int(words.take())
    return "done"


def _rows(world: World, words: Words) -> str:
    planner = world.planners[words.take()]
    lease, call = _lease(world, planner, words), _call(planner, words)
    return rows_text(world.decide(commands.Rows(**_who(planner), call=call, lease=lease)).rows)


def _taken(world: World, words: Words) -> str:
    planner = world.planners[words.take()]
    lease, call = _lease(world, planner, words), _call(planner, words)
    world.decide(commands.RowsTaken(**_who(planner), call=call, lease=lease))
    return "done"


def _renew(world: World, words: Words) -> str:
    planner = world.planners[words.take()]
    renewed = world.decide(commands.Renew(**_who(planner), call=0, lease=_lease(world, planner, words)))
    standing = " ".join(str(number) for number, _ in renewed.leases)
    return f"stand {standing or 'none'}" if planner.ack_mode == "receive" else "done"


def _leave(world: World, words: Words) -> str:
    planner = world.planners[words.take()]
    taken = words.number("taken", 0)
    said: dict[str, Any] = {clause.take(): tuple(to_ranges(clause.rows())) for clause in words.clauses()}
    world.decide(commands.Leave(**_who(planner), call=0, taken=taken, **said))
    return "done"


def _held(world: World, words: Words) -> str:
    planner, request = world.planners[words.take()], words.option("request") or ""
    newest, outcomes = world.checkpoints.get((planner.queue, planner.subscription), 0), []
    for clause in words.clauses():
        lease, failed = clause.number("lease", newest), clause.flag("failed")
        outcomes += [replace(each, lease=lease, failed=failed) for each in _outcomes(clause)]
    about: dict[str, Any] = {"queue": planner.queue, "subscription": planner.subscription, "request": request}
    refused = world.decide(commands.SettleHeld(**about, outcomes=tuple(outcomes))).refused
    texts = (f"{rows_text(to_bitmap(each.ranges))} {each.reason}{f' {each.holder}' if each.holder else ''}" for each in refused)
    return ", ".join(texts) or "done"


def _unsubscribe(world: World, words: Words) -> str:
    queue, subscription = _place(words)
    world.decide(commands.Unsubscribe(queue=queue, subscription=subscription))
    return "done"


def _pause(world: World, words: Words) -> str:
    world.decide(commands.Pause(queue=words.take()))
    return "done"


def _unpause(world: World, words: Words) -> str:
    world.decide(commands.Unpause(queue=words.take()))
    return "done"


def _start(world: World, words: Words) -> str:
    name = words.take()
    planner = world.planners[name]
    common: dict[str, Any] = {"queue": planner.queue, "subscription": planner.subscription}
    started = world.decide(commands.StartRun(**common, sink=words.flag("sink")))
    world.runs[words.take() if words.flag("as") else name] = {**common, "run": started.run}
    answer = f"lease {started.run.lease}" if started.run.lease else "no lease"
    answer += "" if started.messages or not started.run.lease else " without messages"
    return answer if started.sink is None else f"{answer}{_sink_text(started.sink)}"


def _sink_text(told: SinkTold) -> str:
    in_doubt = [each for each in (told.own, *told.others) if each is not None]
    return "".join([" appends" if told.messages else "", *(f" in doubt {each.subscription} {each.attempt}" for each in in_doubt)])


def _end(world: World, words: Words) -> str:
    run = world.runs[words.take()]
    error, cancel, early = words.option("failed"), words.option("on_error") == "cancel", words.flag("early")
    stopped, outcomes = words.flag("stopped"), _outcomes(words)
    world.decide(commands.EndRun(**run, outcomes=outcomes, error=error, cancel=cancel, stopped=stopped, settle=early))
    return "done"


def _prepare(world: World, words: Words) -> str:
    run, table, version = world.runs[words.take()], words.option("into") or "booked", words.number("version", -1)
    request, outcomes = words.option("request") or "", _outcomes(words)
    prepared = world.decide(
        commands.Prepare(
            **run, request=request, table=table, table_id=f"id of {table}", transaction_version=version, outcomes=outcomes
        )
    )
    return f"attempt {prepared.attempt}"


def _landed(world: World, words: Words) -> str:
    queue, subscription = _place(words)
    version, forced, attempt = words.number("version", 7), words.flag("forced"), int(words.take())
    world.decide(commands.Landed(queue=queue, subscription=subscription, attempt=attempt, forced=forced, table_version=version))
    return "done"


def _fenced(world: World, words: Words) -> str:
    queue, subscription = _place(words)
    world.decide(commands.Fenced(queue=queue, subscription=subscription, attempt=int(words.take()), forced=words.flag("forced")))
    return "done"


def _unreadable(world: World, words: Words) -> str:
    (queue, subscription), error = _place(words), words.option("error") or ""
    who: dict[str, Any] = {"queue": queue, "subscription": subscription, "attempt": int(words.take())}
    world.decide(commands.SinkUnreadable(**who, error=error, read=words.flag("read")))
    return "done"


def _prove(world: World, words: Words) -> str:
    world.decide(commands.Prove(**world.runs[words.take()]))
    return "done"


def _settle(world: World, words: Words) -> str:
    queue, where, of_owner = words.take(), words.option("where"), words.flag("of_owner")
    if where is not None:
        said = _said(words)
        same: dict[str, Any] = {"outcome": said.outcome, "retry_after_ms": said.retry_after_ms, "error": said.error}
        return _counts_text(world.decide(commands.SettleWhere(queue=queue, where=where, of_owner=of_owner, **same)))
    lease = words.number("lease", 0) if words.peek().startswith("lease=") else 0
    clauses = [(clause.number("lease", lease) or None, clause) for clause in words.clauses()]
    outcomes = tuple(replace(each, lease=under) for under, clause in clauses for each in _outcomes(clause))
    return _counts_text(world.decide(commands.Settle(queue=queue, outcomes=outcomes, of_owner=of_owner)))


def _counts_text(settled: Settled) -> str:
    return " ".join(f"{name} {count}" for name, count in asdict(settled).items() if count) or "nothing"


def _purge(world: World, words: Words) -> str:
    done = world.decide(commands.Purge(queue=words.take(), where=words.option("where")))
    return f"purged {done.purged} leased {done.leased}"


def _redrive(world: World, words: Words) -> str:
    queue, rows, where = words.take(), words.rows(), words.option("where")
    rows = rows or dead_letters(world.state, queue, where)
    done = world.decide(commands.Redrive(queue=queue, ranges=tuple(to_ranges(rows))))
    counts = {"redriven": done.redriven, "skipped": done.skipped}
    return " ".join(f"{name} {count}" for name, count in counts.items() if count) or "nothing"


def _tick(world: World, words: Words) -> str:
    if words.peek():
        _wait(world, words)
    world.engine.tick(now_ms=world.now_ms)
    return "done"


def _wait(world: World, words: Words) -> str:
    world.clock.advance(parse_duration_ms(words.take()))
    return "done"


def _crash(world: World, _words: Words) -> str:
    world.recover()
    return "done"


def _set_aside(world: World, words: Words) -> str:
    world.engine.set_aside(words.take(), "a bug", now_ms=world.now_ms)
    return "done"


def _revive(world: World, words: Words) -> str:
    world.decide(commands.Revive(queue=words.take()))
    world.begin_again()
    return "done"


def _route(world: World, words: Words) -> str:
    return world.state.definitions.route(words.take())[0]


def _outcomes(words: Words) -> tuple[OutcomeRows, ...]:
    outcomes = []
    for clause in words.clauses():
        said = _said(clause)
        outcomes.append(replace(said, ranges=tuple(to_ranges(clause.rows()))))
        clause.end()
    return tuple(outcomes)


def _said(words: Words) -> OutcomeRows:
    return OutcomeRows(outcome=words.take(), retry_after_ms=words.duration_ms("after"), error=words.option("error"))


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
    "taken": _taken,
    "renew": _renew,
    "leave": _leave,
    "held": _held,
    "unsubscribe": _unsubscribe,
    "pause": _pause,
    "unpause": _unpause,
    "start": _start,
    "end": _end,
    "prepare": _prepare,
    "landed": _landed,
    "fenced": _fenced,
    "unreadable": _unreadable,
    "prove": _prove,
    "settle": _settle,
    "purge": _purge,
    "redrive": _redrive,
    "tick": _tick,
    "wait": _wait,
    "crash": _crash,
    "set_aside": _set_aside,
    "revive": _revive,
    "route": _route,
}
