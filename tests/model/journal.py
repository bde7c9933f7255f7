"""A journal, message by message: what is published, its queues and their definitions, what people do, and retention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.model import batches, order, receiving
from tests.model.definitions import Rules
from tests.model.model import IN_QUEUE, WAITING, Queue
from tests.model.parts import Message, Subscription


class Journal:
    """All queues of one message type."""

    def __init__(self, now: int) -> None:
        self.now = now
        #: Body and time of every message, by bookmark.
        self.published: list[tuple[dict[str, Any], int]] = []
        #: Files as they stand: the bookmarks of each; and what retention let go.
        self.files: list[list[int]] = []
        self.retired: set[int] = set()
        self.retention_ms: int | None = None
        self.looked_at = 0
        self.queues: dict[str, Queue] = {}
        self.granted: dict[str, int] = {}

    def publish(self, bodies: Iterable[dict[str, Any]]) -> None:
        """Let a file of messages enter every queue that takes them."""
        first = len(self.published)
        self.published += [(body, self.now) for body in bodies]
        self.files.append(list(range(first, len(self.published))))
        letters = {queue.rules.letters for queue in self.queues.values()}
        for name, queue in self.queues.items():
            for bookmark in self.files[-1] if name not in letters else ():
                self._enter(queue, bookmark)
        self._enter_late()

    def _enter(self, queue: Queue, bookmark: int) -> None:
        body, at = self.published[bookmark]
        queue.enter(Message(bookmark, body, at, body["expires_at"], not_before=body["deliver_at"]))

    def _enter_late(self) -> None:
        """Remove what is too old as it enters."""
        for queue in self.queues.values():
            _expire(queue)
        self.settle_down()

    def settle_down(self) -> None:
        """Let every queue do what follows by itself."""
        for queue in self.queues.values():
            queue.activate()
            queue.release()

    def apply(self, wanted: Mapping[str, Rules], resets: Iterable[str] = ()) -> bool:
        """Replace all definitions, if nothing in flight forbids it; returns whether."""
        letters = {rules.letters for rules in wanted.values()}
        if any(self._forbids(name, wanted, resets) for name in self.queues):
            return False
        sources = self._sources()
        for name in [name for name in self.queues if name not in wanted]:
            self.granted[name] = self.queues.pop(name).granted
        for name, rules in wanted.items():
            old = self.queues.get(name)
            if old is not None and name not in resets:
                alter(old, rules)
                continue
            queue = self.queues[name] = Queue(self, rules)
            queue.granted = self.granted.get(name, 0) if old is None else old.granted
            if old is not None:
                # Subscriptions with their alarms, and a pause, outlive it; what was in flight does not.
                queue.subscriptions, queue.paused = old.subscriptions, old.paused
                for subscription in queue.subscriptions.values():
                    subscription.suspects, subscription.failed = {}, set()
                    subscription.leases, subscription.barriers, subscription.barrier_deliveries = [], [], 0
            for bookmark in range(len(self.published)) if name not in letters else ():
                if bookmark not in self.retired and bookmark >= self._start(rules):
                    self._enter(queue, bookmark)
        for letters_of, source in self._sources().items():
            if sources.get(letters_of) != source:
                # Letters of another source may have the bookmarks of those that are over.
                self.queues[letters_of].messages = {}
        self._enter_late()
        return True

    def _forbids(self, name: str, wanted: Mapping[str, Rules], resets: Iterable[str]) -> bool:
        """Return whether what a queue holds forbids new definitions."""
        queue, gets = self.queues[name], next((other for other, rules in wanted.items() if rules.letters == name), None)
        if name in resets and gets is not None and queue.having(*WAITING, "leased"):
            return True
        if forbids(queue, None if name in resets or name not in wanted else wanted[name]):
            return True
        is_other = gets is not None and self.queues.get(gets) is not self.source_of(queue)
        return is_other and bool(queue.having(*WAITING, "leased", "dead"))

    def _sources(self) -> dict[str, str]:
        """Return whose dead letters each dead-letter queue takes."""
        return {queue.rules.letters: name for name, queue in self.queues.items() if queue.rules.letters is not None}

    def end_letter(self, queue: Queue, bookmark: int, reason: str) -> None:
        """Let a dead letter be over that its dead-letter queue is done with."""
        source = self.source_of(queue)
        letter = None if source is None else source.messages.get(bookmark)
        if source is not None and letter is not None and letter.state == "dead":
            source.remove(letter, reason)

    def source_of(self, queue: Queue) -> Queue | None:
        """Return the queue whose dead letters come to a queue."""
        return next((each for each in self.queues.values() if each.letters is queue), None)

    def _start(self, rules: Rules) -> int:
        """Resolve a recovery point (R90)."""
        match rules.start:
            case "epoch":
                return 0
            case "now":
                return len(self.published)
            case ("at", at):
                return next(
                    (bookmark for bookmark, (_, entered) in enumerate(self.published) if entered >= at), len(self.published)
                )
        return int(rules.start)

    def tick(self, now: int) -> None:
        """Let time pass, and do what is due."""
        self.now = now
        for queue in self.queues.values():
            # The oldest first: who ends finds what others gave back before.
            held = [(lease.number, name, lease) for name, each in queue.subscriptions.items() for lease in each.leases]
            for _, name, lease in sorted(held, key=lambda each: each[0]):
                if queue.outstanding(lease) and lease.due <= now and not lease.in_doubt:
                    if queue.subscriptions[name].receives:
                        receiving.end_silently(queue, lease)
                    else:
                        lease.lapsed = not lease.held
                        batches.end(queue, name, lease)
            for name in list(receiving.forgotten(queue)):
                unsubscribe(queue, name)
        for queue in self.queues.values():
            _expire(queue)
        # Leases and ages end in every queue before a barrier behind them is released, and that before retention looks.
        self.settle_down()
        self._retire()

    def _retire(self) -> None:
        """Let whole files go that are old and that no queue needs, now and then."""
        if self.retention_ms is None or self.now < self.looked_at + min(60_000, self.retention_ms):
            return
        self.looked_at = self.now
        for file in self.files:
            if all(self.published[each][1] <= self.now - self.retention_ms and not self._is_needed(each) for each in file):
                self.retired |= set(file)

    def _is_needed(self, bookmark: int) -> bool:
        for queue in self.queues.values():
            message = queue.messages.get(bookmark)
            unproven = (each for each in queue.leases() if (queue.rules.at_most_once or each.landed) and not each.proven)
            pending = (subscription.barriers for subscription in queue.subscriptions.values())
            if message is not None and message.state != "removed":
                return True
            if any(bookmark in lease.rows for lease in unproven) or any(bookmark in barriers for barriers in pending):
                return True
        return False


def _expire(queue: Queue) -> None:
    """Remove the dead letters whose time is over, and what is too old."""
    kept = queue.rules.letters_kept_ms
    for message in queue.having("dead"):
        letter = None if queue.letters is None else queue.letters.messages.get(message.bookmark)
        if kept is not None and message.left_at + kept <= queue.now and (letter is None or letter.state != "leased"):
            if letter is not None and queue.letters is not None and letter.state in (*WAITING, "dead"):
                queue.letters.remove(letter, "purged")
            queue.remove(message, "purged")
    for message in queue.having(*WAITING):
        if queue.is_old(message):
            queue.remove(message, "time_limit")


def forbids(queue: Queue, wanted: Rules | None) -> bool:
    """Return whether what is in flight forbids new rules; None for a queue that goes or begins anew."""
    under_way = sum(map(queue.backlog, queue.subscriptions.values()))
    if wanted is None:
        return any(lease.held for lease in queue.leases())
    if wanted.at_most_once != queue.rules.at_most_once:
        open_ones = [each for known in queue.subscriptions.values() if known.receives for each in receiving.in_hand(queue, known)]
        proven = [each for known in queue.subscriptions.values() if not known.receives for each in known.leases]
        return bool(open_ones) or any(lease.held if lease.proven else lease.rows for lease in proven)
    return wanted.key is not queue.rules.key and bool(under_way)


def alter(queue: Queue, rules: Rules) -> None:
    """Replace the rules; with another depth the youngest that nobody has in hand wait again."""
    if rules.at_most_once != queue.rules.at_most_once:
        # Of what receivers had nothing counts any more, however late they say so.
        for known in queue.subscriptions.values():
            known.leases = [each for each in known.leases if not known.receives or each in receiving.in_hand(queue, known)]
    old, queue.rules = queue.rules, rules
    claimed = set[int]().union(*(lease.claim for lease in queue.leases()))
    if rules.depth and rules.depth != old.depth:
        free = [each for each in queue.having("available") if each.bookmark not in claimed]
        excess = len(queue.having(*IN_QUEUE)) - rules.depth
        for message in free[max(0, len(free) - max(0, excess)) :]:
            message.state = "inactive"


def subscribe(queue: Queue, name: str, planner: object, **wishes: Any) -> None:
    """Begin a subscription, or replace what it asks for and who asks (R118).

    What an older start of a receiver had ends; as the other kind it ends, and begins anew (R131, R137).
    """
    known = queue.subscriptions.get(name)
    if known is not None and known.receives != wishes.get("receives", False):
        unsubscribe(queue, name)
    elif known is not None and known.receives:
        for lease in known.leases:
            receiving.end_silently(queue, lease)
    known = queue.subscriptions.setdefault(name, Subscription())
    for wish, value in wishes.items():
        setattr(known, wish, value)
    known.planner, known.given, known.overrun = planner, set(), set()
    known.heard_at, known.left = queue.now, False


def unsubscribe(queue: Queue, name: str) -> None:
    """End a subscription; what it holds returns, and of what a receiver had nothing is marked, since nobody may have died."""
    for lease in queue.subscriptions[name].leases:
        if queue.subscriptions[name].receives:
            receiving.end_silently(queue, lease, marks=False)
        else:
            batches.end(queue, name, lease)
    del queue.subscriptions[name]


def settle_by_hand(queue: Queue, rows: Iterable[int], outcome: str, due: int | None) -> bool:
    """Settle messages by bookmark, whoever holds them (R36, R38, R83); returns whether that is allowed."""
    messages = [queue.messages[bookmark] for bookmark in rows]
    allowed = {"cancel": ("leased",), "expire": IN_QUEUE}.get(outcome)
    for message in messages:
        if message.state == "held" or (message.is_barrier and outcome != "acknowledge"):
            return False
        if not queue.rules.at_most_once and (
            (allowed is not None and message.state not in allowed) or (queue.rules.strict and message.state == "leased")
        ):
            return False
    _act(queue, messages, outcome, due)
    return True


def _act(queue: Queue, messages: list[Message], outcome: str, due: int | None) -> None:
    if queue.rules.at_most_once:
        return
    behind = order.behind(queue, messages, queue.having("leased")) if outcome == "cancel" else []
    for message in behind:
        order.go_back(queue, message, claimed=True)
    for message in [each for each in messages if each not in behind]:
        if message.state == "inactive":
            message.deferred = queue.now + queue.rules.deferral_ms
        elif message.state in IN_QUEUE:
            queue.settle(message, outcome, due, by_hand=True)


def settle_where(queue: Queue, matches: Callable[[dict[str, Any]], Any], outcome: str, due: int | None) -> None:
    """Settle what matches of the active part; a cancel finds what is leased, strict leasing leaves that alone (R37, R38)."""
    states = ("leased",) if outcome == "cancel" else IN_QUEUE
    found = [each for each in queue.having(*states) if matches(each.body) is True]
    _act(queue, [each for each in found if not (queue.rules.strict and each.state == "leased")], outcome, due)


def purge(queue: Queue, matches: Callable[[dict[str, Any]], Any] | None) -> None:
    """Remove what is not leased, or what of it matches, but barriers."""
    for message in queue.having(*WAITING):
        if matches is None or matches(message.body) is True:
            queue.remove(message, "purged")


def redrive(queue: Queue, rows: Iterable[int]) -> None:
    """Let dead letters come again that nobody has in hand, with nothing counted against them, as old as their redrive."""
    for message in [queue.messages[bookmark] for bookmark in rows]:
        letter = None if queue.letters is None else queue.letters.messages.get(message.bookmark)
        if message.state == "dead" and (letter is None or letter.state in WAITING):
            if letter is not None and queue.letters is not None:
                queue.letters.remove(letter, "redriven")
            message.state, message.deliveries, message.cancels = "available", 0, 0
            message.entered_at, message.expires_at = queue.now, None
            queue.let_go(message)
