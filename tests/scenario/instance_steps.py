"""The steps of several instances, each with a journal of its own: at one of them, or together.

A step at an instance is given all of them, that one, and its words; a step together all of them and its words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.core.state.ownership import MessageValue, Stage
from tests.fake_clock import FakeClock
from tests.scenario.acts import defined, names
from tests.scenario.instances import Instance, ask, exchange
from tests.scenario.script import Words, compare, rows_text

#: Instances by name.
Instances = Mapping[str, Instance]


def begin(words: Words, clock: FakeClock) -> dict[str, Instance]:
    """Begin instances: each pulls from those that its word names, or from all others."""
    said = {name: (arrow, peers) for name, arrow, peers in (word.partition("<-") for word in words.rest())}
    return {
        name: Instance(name, [each for each in (peers.split(",") if arrow else said) if each not in {name, ""}], clock, queues={})
        for name, (arrow, peers) in said.items()
    }


def define(at: Instance, words: Words, block: str) -> str:
    """Replace the definitions of an instance by a block of TOML."""
    reset, pulled = names(words, "reset") or (), names(words, "pulls")
    at.redefine(defined(words, block), pulled=pulled, reset=reset)
    return "done"


def _exchange(instances: Instances, _words: Words) -> str:
    exchange(*instances.values())
    return "done"


def _wait(instances: Instances, words: Words) -> str:
    # They have one clock.
    next(iter(instances.values())).world.clock.advance(parse_duration_ms(words.take()))
    return "done"


def _tick(instances: Instances, words: Words) -> str:
    if words.peek():
        _wait(instances, words)
    for each in instances.values():
        each.tick()
    return "done"


def _pull(instances: Instances, at: Instance, words: Words) -> str:
    peer = words.take()
    if words.flag("again"):
        at.read_again(peer)
    at.pull(instances[peer])
    return "done"


def _ask(_instances: Instances, at: Instance, words: Words) -> str:
    queue, requester, owner = words.take(), words.option("requester") or "virginia", words.option("owner") or at.name
    limit, life = words.number("limit", 500_000), words.number("life", 0)
    asked = {f"uuid-of-{clause.take()}": clause.rows() for clause in words.clauses()}
    ask(at, asked, queue=queue, requester=requester, owner=owner, limit=limit, life=life)
    return "done"


def _send(_instances: Instances, at: Instance, words: Words) -> str:
    publisher, numbers, body = words.take(), words.rows(), words.option("body") or ""
    sent = at.publish_as(publisher, numbers, body=body)
    return rows_text(to_bitmap([(number, number + 1) for number in sent]))


def _look(_instances: Instances, at: Instance, words: Words) -> str:
    is_level = not words.flag("behind")
    at.look({name: int(number) for name, number in words.options().items()}, is_level=is_level)
    return "done"


def _miss(_instances: Instances, at: Instance, words: Words) -> str:
    is_level = not words.flag("behind")
    at.miss(parse_duration_ms(words.take()), is_level=is_level)
    return "done"


def _proxied(_instances: Instances, at: Instance, words: Words) -> str:
    queue, switch = words.take(), words.take()
    at.decide(commands.ProxiedTransfer(queue=queue, on={"on": True, "off": False}[switch], owner=words.option("owner")))
    return "done"


def _forget(_instances: Instances, at: Instance, words: Words) -> str:
    done = at.decide(commands.ForgetPeer(peer=words.take()))
    return f"claimed {done.claimed}{_left_text(done.left)}"


def _drain(_instances: Instances, at: Instance, words: Words) -> str:
    done = at.decide(commands.DrainTo(peer=words.take(), record=words.number("record", -1)))
    stuck = "".join(f" {queue} is stuck: {reason}" for queue, reason in done.stuck.items())
    over = "" if done.left else f" at record {done.record}{'' if done.is_pulled else ', not pulled'}"
    return f"transferred {done.transferred}{_left_text(done.left)}{stuck}{over}"


def _came(_instances: Instances, at: Instance, words: Words) -> str:
    return _check_counts(at.ownership(words.take()).came_from, words)


def _gave(_instances: Instances, at: Instance, words: Words) -> str:
    return _check_counts(at.ownership(words.take()).given_to, words)


def _check_counts(found: Mapping[str, int], words: Words) -> str:
    wanted = {name: int(count) for name, count in words.options().items()}
    compare(dict(found), wanted, f"are {dict(found)}")
    return "so"


def _forgotten(_instances: Instances, at: Instance, words: Words) -> str:
    found = at.world.state.peer_changes.forgotten
    compare(found, set(words.rest()), f"are {sorted(found)}")
    return "so"


def _left_text(left: Mapping[str, int]) -> str:
    return "".join(f" left {queue} {count}" for queue, count in left.items())


def _crash(_instances: Instances, at: Instance, _words: Words) -> str:
    at.crash()
    return "done"


def _owner(_instances: Instances, at: Instance, words: Words) -> str:
    queue, rows, wanted = words.take(), words.rows(), words.take()
    found = {row: at.value(queue, row).owner for row in rows}
    compare(found, dict.fromkeys(rows, wanted), f"are {found}")
    return "so"


def _value(_instances: Instances, at: Instance, words: Words) -> str:
    queue, rows, stage = words.take(), words.rows(), Stage[words.take().upper()]
    life, term, owner = words.number("life", 0), words.number("term", 0), words.option("owner") or ""
    found = {row: at.value(queue, row) for row in rows}
    compare(found, dict.fromkeys(rows, MessageValue(life, stage, term, owner)), f"are {found}")
    return "so"


def _named(_instances: Instances, at: Instance, words: Words) -> str:
    queue, state = words.take(), words.take()
    found = at.ids(at.rows(state, queue))
    told = {f"uuid-of-{clause.take()}": clause.rows() for clause in words.clauses()}
    compare(found, {(origin, row) for origin, rows in told.items() for row in rows}, f"are {sorted(found)}")
    return "so"


def _names(_instances: Instances, at: Instance, words: Words) -> str:
    found = at.ids(words.rows())
    wanted = {(f"uuid-of-{origin}", int(row)) for origin, _, row in (word.partition("/") for word in words.rest())}
    compare(found, wanted, f"are {sorted(found)}")
    return "so"


def _claims(_instances: Instances, at: Instance, words: Words) -> str:
    claimed = at.ownership(words.take()).claimed_rows
    compare(rows_text(claimed), rows_text(words.rows()), f"are {rows_text(claimed)}")
    return "so"


def _requests(_instances: Instances, at: Instance, words: Words) -> str:
    requests = at.ownership(words.take()).requests
    found = {owner: rows_text(request.rows) for owner, request in requests.items()}
    wanted = {clause.take(): rows_text(clause.rows()) for clause in words.clauses()}
    compare(found, wanted, f"are {found}")
    return "so"


#: Steps at one instance; `crash` stands in the place of that of a journal alone.
VERBS: dict[str, Callable[[Instances, Instance, Words], str]] = {
    "pull": _pull,
    "ask": _ask,
    "send": _send,
    "look": _look,
    "miss": _miss,
    "proxied": _proxied,
    "forget": _forget,
    "drain": _drain,
    "crash": _crash,
    "owner": _owner,
    "value": _value,
    "named": _named,
    "names": _names,
    "claims": _claims,
    "requests": _requests,
    "came": _came,
    "gave": _gave,
    "forgotten": _forgotten,
}

#: Steps of all instances.
TOGETHER: dict[str, Callable[[Instances, Words], str]] = {
    "exchange": _exchange,
    "wait": _wait,
    "tick": _tick,
}
