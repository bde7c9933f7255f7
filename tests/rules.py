"""The rules of a queue, and which tests prove each: ``python -m tests.rules`` (``make rules``) writes ``tests/RULES.md``.

A test proves a rule by naming it, as ``R52`` or ``R22 to R31``: in its name, docstring, parameters or body, or in the title of a
scenario. R117 is planned, and nothing obeys it yet.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache

from tests.source_tree import ROOT, python_files

RULES_MD = ROOT / "tests" / "RULES.md"

#: What each rule is about, in a few words.
RULES: Mapping[int, str] = {
    1: "a queue is a view over one topic or several, without a copy of any message",
    2: "what a queue is made of and what happened to it stand in a log",
    3: "publishers need not know of queues",
    4: "a message is available, leased, or done with",
    5: "that a message was processed is in the log, so a restart keeps it",
    6: "any number of queues over one topic, each with its own progress and policy",
    7: "a reader chooses between the queue and its topic",
    8: "a read of the topic is a replay without leases",
    9: "only published messages enter",
    10: "a queue can be looked into without taking anything",
    11: "memory does not grow with the size of messages",
    12: "each call needs a right; read includes to acknowledge, write is on the name alone, a filter hides",
    13: "expiring is an ordinary way to leave",
    14: "at-least-once is the default; a message goes to one subscription at a time",
    15: "at-least-once: settled within the lease, or available again",
    16: "at-most-once: removed when granted, never delivered again",
    17: "at-most-once: acknowledging only frees backlog",
    18: "a lease begins with its grant, and its end is told with the message",
    19: "what a reader held comes back when it leaves",
    20: "a sink that knows bookmarks takes each message once",
    21: "the recommended patterns work: idempotent sink, dead letters, transactional sink",
    22: "messages come when there is room, without polling in vain",
    23: "backlog is what a subscription was given and has not acknowledged",
    24: "the smaller of the queue's and the subscription's backlog counts",
    25: "the subscription's backlog has a default",
    26: "the queue's limit for each subscription has a default",
    27: "a subscription asks for its backlog by an option",
    28: "more than one message may be under way",
    29: "a backlog of 0 receives barriers only",
    30: "a subscription is of one queue; each has a backlog of its own",
    31: "max_backlog caps what is leased from the whole queue",
    32: "three ways to be fair: fast, round-robin, proportional",
    33: "proportional: the lowest ratio of unacknowledged to backlog is served, the first of equals",
    34: "proportional is the default, round-robin for at-most-once",
    35: "fairness concerns the subscriptions that ask",
    36: "messages are settled by bookmark, several at once",
    37: "messages are settled by a filter, leased or not",
    38: "strict leasing: another's lease cannot be settled; sublet: it can",
    39: "acknowledge, cancel, expire",
    40: "at-most-once: outcomes change nothing",
    41: "what is cancelled comes again if it may, and is dead otherwise",
    42: "a batch is acknowledged when its function has returned; what it raises gives it back",
    43: "acknowledging what needs none does nothing",
    44: "acknowledgements go together, with the batch",
    45: "cancels and failures are told at once",
    46: "a function says itself when a message is done with",
    47: "at-most-once delivers the oldest matching message to who has room and whose turn it is",
    48: "at-least-once leases under the same conditions",
    49: "a filter lets a subscription skip older messages that it does not match",
    50: "at-most-once: what nobody asked for expires by age",
    51: "at-least-once: what is not leased expires by age",
    52: "at the end of a lease: back, unless too old or delivered too often",
    53: "nothing expires while it is leased",
    54: "max_deliveries",
    55: "max_cancels",
    56: "both counts outlive a restart",
    57: "what expires is told, with its reason",
    58: "the reasons: time_limit, forced_expire, max_cancels, max_deliveries",
    59: "dead letters can go to a queue of their own",
    60: "a message's own expiration wins over the queue's",
    61: "a queue takes a topic or a pattern, of one message type",
    62: "a publish to the queue's name goes to its default target",
    63: "the worked table of two queues and three topics",
    64: "one publish feeds several queues from the same place in the log",
    65: "only what matches its filter enters a queue",
    66: "priority: highest first, oldest first within one, no number lowest",
    67: "an expression says which messages are barriers",
    68: "a barrier waits until everything before it has left",
    69: "nothing after a barrier is delivered before its release",
    70: "a released barrier goes to all current subscriptions",
    71: "a released barrier is gone at once and counts in no backlog",
    72: "a barrier comes to a full backlog, and to one of 0",
    73: "a filter may keep a barrier from a subscription, which pauses all the same",
    74: "barriers are released by the queue that holds them",
    75: "what is a barrier is decided when it enters",
    76: "barriers close a day",
    77: "priority, barrier and target_queue_depth: which exclude one another",
    78: "expired and removed messages hold no barrier",
    79: "target_queue_depth keeps only so many messages active",
    80: "inactive messages are not delivered, shown, or settled by filter",
    81: "as messages leave, others become active",
    82: "a subscription that matches nothing active gets nothing",
    83: "an acknowledgement before activation is remembered",
    84: "what is asked for beyond the target depth is reached, and handed over",
    85: "memory stays small without target_queue_depth",
    86: "the state of a queue may be kept beside the log",
    87: "recovery uses it when it fits the log, and the log otherwise",
    88: "a new or reset queue starts at its recovery point",
    89: "recovery replays the log from where it has to",
    90: "recovery points: epoch, now, creation, a bookmark, a time",
    91: "a publisher numbers its messages, ascending",
    92: "published means in the log",
    93: "one answer covers all messages before it",
    94: "a publisher may send again after a failure",
    95: "numbers at or below the highest seen are duplicates",
    96: "every message has a bookmark, and its publisher's number",
    97: "a name is one publisher's",
    98: "the newest holder of a name wins",
    99: "without numbers the journal makes them",
    100: "messages and what becomes of them are replicated, also through instances between",
    101: "one instance owns a message, the others know it",
    102: "a message belongs to where it was published first, or to a configured instance",
    103: "an owner prefers its own subscriptions",
    104: "who waits asks the owner",
    105: "the owner gives what nobody of its own can take",
    106: "what is settled reaches every instance",
    107: "the messages of a lost owner wait",
    108: "somebody may allow to act for a lost owner",
    109: "what a lost owner has is claimed, or given on its behalf",
    110: "only what is about to be delivered is claimed",
    111: "what a lost owner had delivered may be delivered again",
    112: "a lost site is served by one survivor, and comes back without clients",
    130: "who was away hears its peers before it delivers",
    131: "a receiver is a start of a subscription with any number of open leases; nothing of it is proven or resumed",
    132: "to settle is the proof, and acts at once, each message by itself",
    133: "an acknowledgement counts while nobody else was granted the message; to cancel or expire, while it is leased",
    134: "a call that settles is repeated under its id, and gets the first answer",
    135: "a poll proves nothing; a lease whose answer was lost is given again",
    136: "one renewal extends all that a receiver has in hand, and tells what stands",
    137: "a goodbye returns everything at once, and what was not begun counts no delivery",
    138: "a silent end takes the delivery back and marks; a message that kills receivers is granted alone, and then counted",
    139: "of an order key one message is handed out at a time, and those behind a cancelled one are let go",
    140: "a made subscription ends with its receiver; a barrier comes to an empty hand",
    141: "a message type may follow a table: appended rows are its messages",
    142: "the columns of a followed table: all, or some, never with a loss",
    143: "a table is followed from now, its beginning, a version or a time",
    144: "an append enters whole; files that are not new do not",
    145: "what brings no new rows passes",
    146: "a change stops the type, or passes without a row",
    147: "a type is set aside where its table cannot be followed further",
    148: "a type that was set aside goes on where somebody says so",
    149: "nobody publishes to a followed topic, or sinks into its table",
    150: "a file is read by the names that held when it entered",
    151: "messages that nobody needs are let go once their table removed the file",
    152: "needed ones are copied before VACUUM may take the file, and keep their places",
    153: "of a type that is set aside every file counts as removed",
    154: "where a type goes on, it is noted what its table has no more",
    155: "what the store says to be gone is lost: a dead letter of its own reason, and an alarm until somebody has seen it",
    156: "what a vector had deleted at the beginning is no message",
    157: "files that nobody copies are an alarm in time, and a catch-up copies them",
    113: "definitions agree between instances",
    114: "an archive pulls messages alone",
    115: "only a group-local queue has a configured owner, and needs one",
    116: "a group-local queue is told by its name and its domain or group",
    118: "a subscription may be replaced at once, without breaking leases",
    119: "statistics of a queue",
    120: "the state of a queue can be written out",
    121: "the log can be read as a table",
    122: "a fault sets its queue aside, loses nothing of it, and reaches no other; it can be revived",
    123: "a batch and its acknowledgement are one commit of the sink; until that is known, nothing becomes of its messages",
    124: "an attempt needs a current run and all of its messages; one at a time, with numbers that rise for ever",
    125: "what is in doubt is decided by who reads the table; the first word counts, what nobody can read is an alarm",
    126: "what has landed is settled as prepared, whatever ends the lease, and read again until the proof",
    127: "what is fenced stands nowhere: its lease is an ordinary one, and its run is over",
    128: "a publish may say that its messages are delivered later",
    129: "what a message is, its origin says once",
}

_NAMED = re.compile(r"\bR(\d{1,3})\b(?: to R(\d{1,3})\b)?")


@cache
def proofs() -> Mapping[int, list[str]]:
    """Return, for each rule, the tests that name it, as they are called."""
    found: dict[int, list[str]] = defaultdict(list)
    for test, text in [*_python_tests(), *_scenarios()]:
        for rule in sorted(_rules_in(text)):
            found[rule].append(test)
    return dict(found)


def document() -> str:
    """Return the text of ``tests/RULES.md``."""
    known = proofs()
    lines = ["# The rules, and the tests that prove them", "", "Written by `make rules`; a test fails when it is out of date.", ""]
    for rule, about in RULES.items():
        lines += [f"## R{rule}: {about}", "", *(f"- {test}" for test in known.get(rule, [])), ""]
    return "\n".join(lines)


def _python_tests() -> Iterator[tuple[str, str]]:
    # Most files name no rule: to parse all of them, and to walk their trees, took seconds.
    for file in filter(lambda file: _NAMED.search(file.text), python_files("tests/")):
        lines = file.text.splitlines(keepends=True)
        for node in ast.walk(file.tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
                text = f"{decorators}\n{''.join(lines[node.lineno - 1 : node.end_lineno])}"
                yield f"`{file.path}`: {node.name.removeprefix('test_').replace('_', ' ')}", text


def _scenarios() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "tests").rglob("*.scenario")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("== "):
                yield f"`{path.relative_to(ROOT).as_posix()}`: {line[3:]}", line


def _rules_in(text: str) -> set[int]:
    return {rule for first, last in _NAMED.findall(text) for rule in range(int(first), int(last or first) + 1)}


if __name__ == "__main__":
    RULES_MD.write_text(document(), encoding="utf-8")
    sys.stdout.write(f"{RULES_MD.relative_to(ROOT)} is written.\n")
