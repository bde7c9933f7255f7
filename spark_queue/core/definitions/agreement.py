"""What must hold between the definitions of instances that share queues, by rule (R106, R113, R116; DESIGN 17.7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Rule(StrEnum):
    """A rule between the definitions of instances."""

    BOTH_WAYS = "R113.1"
    SAME_QUEUES = "R113.2"
    SAME_DEFINITION = "R113.3"
    TOPICS = "R113.4"
    PATHS = "R113.5"


#: What each rule asks for, in a sentence.
TEXTS = {
    Rule.BOTH_WAYS: "A queue that is pulled from a peer is pulled by that peer, too.",
    Rule.SAME_QUEUES: "A queue here is a queue there; a group_local one of the same domain (R116).",
    Rule.SAME_DEFINITION: "It has the same topic, filter, barrier, columns, semantics, ownership, initial owner, dead letters.",
    Rule.TOPICS: "Its topics are pulled with it. `sparkq apply` refuses definitions that break this.",
    Rule.PATHS: "What any instance publishes and settles reaches every other one, through whichever peers (R106).",
}

#: Where one of these is broken, news about the queue would mean something else here, so they wait.
WITHHOLDING = frozenset({Rule.SAME_QUEUES, Rule.SAME_DEFINITION})


@dataclass(frozen=True, slots=True, order=True)
class Disagreement:
    """How the definitions of two instances break a rule about a queue."""

    rule: str
    queue: str
    reason: str
    #: Since when it is known.
    since_ms: int = field(default=0, compare=False)
