"""The life of a message in one queue, as one table.

Two rules: every change of a message's state goes through `TRANSITIONS`, and a pair that is not in it changes nothing and
raises. The documentation's table of moves is made from this one.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a message of a queue is."""

    #: May be granted.
    AVAILABLE = "available"
    #: Held by a lease.
    LEASED = "leased"
    #: Returned, and not available before a due time.
    DELAYED = "delayed"
    #: A barrier that waits until nothing stands before it (R68).
    HELD = "held"
    #: Beyond the target depth of its queue: neither granted nor shown until there is room (R79, R80).
    INACTIVE = "inactive"
    #: In the queue, and owned by another instance: neither granted nor aged out here (DESIGN 17.4).
    REMOTE = "remote"
    #: Removed with a reason that makes it a dead letter, and neither redriven nor taken back.
    DEAD = "dead"
    #: Left the queue for good.
    REMOVED = "removed"


#: Where the messages are that count towards the target depth of a queue.
ACTIVE = (State.AVAILABLE, State.LEASED, State.DELAYED)

#: Where a message is that is in its queue no more; from some of them it may come back.
LEFT = frozenset({State.DEAD, State.REMOVED})

#: Where a message is that is in its queue.
IN_QUEUE = tuple(state for state in State if state not in LEFT)

#: Where a message is that is in its queue and that this instance owns.
OWNED_HERE = tuple(state for state in IN_QUEUE if state is not State.REMOTE)


class Event(StrEnum):
    """Everything that can happen to a message of a queue."""

    GRANTED = "granted"
    RESUMED = "resumed"
    RETURNED = "returned"
    POSTPONED = "postponed"
    REMOVED = "removed"
    DEAD_LETTERED = "dead_lettered"
    #: Its body is gone for good, with the file of a followed table; a lease keeps it until its end (R155).
    LOST = "lost"
    #: A barrier that nothing stands before any more leaves the queue, for every subscription at once (R70, R71).
    RELEASED = "released"
    #: The active part of the queue has room for it again; or, under a new target depth, no more.
    ACTIVATED = "activated"
    DEACTIVATED = "deactivated"
    #: A dead letter goes back to its queue; its letter in the dead-letter queue leaves.
    REDRIVEN = "redriven"
    #: Only in a dead-letter queue: the message comes (again) by reference.
    REENTERED = "reentered"
    #: Another instance owns it by now, in this life or in the next; or this one does.
    DISOWNED = "disowned"
    OWNED = "owned"
    #: This one does, and the message waits for its turn (R79).
    LINED_UP = "lined_up"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.AVAILABLE, Event.GRANTED): State.LEASED,
    (State.DELAYED, Event.GRANTED): State.LEASED,
    # A resume extends rows still held, and leases those again that came back meanwhile (P2).
    (State.LEASED, Event.RESUMED): State.LEASED,
    (State.AVAILABLE, Event.RESUMED): State.LEASED,
    (State.DELAYED, Event.RESUMED): State.LEASED,
    # A late proof may cancel messages that the end of its lease had already returned (P5).
    (State.LEASED, Event.RETURNED): State.AVAILABLE,
    (State.AVAILABLE, Event.RETURNED): State.AVAILABLE,
    (State.DELAYED, Event.RETURNED): State.AVAILABLE,
    (State.LEASED, Event.POSTPONED): State.DELAYED,
    (State.AVAILABLE, Event.POSTPONED): State.DELAYED,
    (State.DELAYED, Event.POSTPONED): State.DELAYED,
    (State.AVAILABLE, Event.REMOVED): State.REMOVED,
    (State.LEASED, Event.REMOVED): State.REMOVED,
    (State.DELAYED, Event.REMOVED): State.REMOVED,
    # A late proof takes back the dead letter that the end of its lease made (P5).
    (State.DEAD, Event.REMOVED): State.REMOVED,
    (State.AVAILABLE, Event.DEAD_LETTERED): State.DEAD,
    (State.LEASED, Event.DEAD_LETTERED): State.DEAD,
    (State.DELAYED, Event.DEAD_LETTERED): State.DEAD,
    (State.AVAILABLE, Event.LOST): State.DEAD,
    (State.DELAYED, Event.LOST): State.DEAD,
    (State.HELD, Event.LOST): State.DEAD,
    (State.INACTIVE, Event.LOST): State.DEAD,
    # A letter whose body is gone cannot be redriven any more.
    (State.DEAD, Event.LOST): State.DEAD,
    (State.HELD, Event.RELEASED): State.REMOVED,
    (State.AVAILABLE, Event.DEACTIVATED): State.INACTIVE,
    (State.INACTIVE, Event.ACTIVATED): State.AVAILABLE,
    (State.INACTIVE, Event.REMOVED): State.REMOVED,
    # Records win: granted messages were active, even if the traits of today would leave no room for them.
    (State.INACTIVE, Event.GRANTED): State.LEASED,
    (State.INACTIVE, Event.RESUMED): State.LEASED,
    (State.DEAD, Event.REDRIVEN): State.AVAILABLE,
    (State.AVAILABLE, Event.REDRIVEN): State.REMOVED,
    (State.DELAYED, Event.REDRIVEN): State.REMOVED,
    (State.INACTIVE, Event.REDRIVEN): State.REMOVED,
    (State.REMOVED, Event.REENTERED): State.AVAILABLE,
    # Deeds of other instances, wherever the message was here; an open lease loses it.
    (State.REMOTE, Event.REMOVED): State.REMOVED,
    (State.REMOTE, Event.DEAD_LETTERED): State.DEAD,
    (State.INACTIVE, Event.DEAD_LETTERED): State.DEAD,
    (State.REMOVED, Event.DEAD_LETTERED): State.DEAD,
    (State.REMOTE, Event.REDRIVEN): State.REMOVED,
    (State.LEASED, Event.REDRIVEN): State.REMOVED,
    **{(state, Event.DISOWNED): State.REMOTE for state in State if state not in (State.HELD, State.REMOTE)},
    **{(state, Event.OWNED): State.AVAILABLE for state in State if state is not State.HELD},
    (State.REMOTE, Event.LINED_UP): State.INACTIVE,
}
