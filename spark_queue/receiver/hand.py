"""The hand of a receiver: messages that wait, messages in work, and outcomes on their way (R133, R135 to R139).

It knows neither the coordinator nor a thread of its own; the receiver's threads bring it answers and take outcomes from it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from spark_queue.clock import steady_s
from spark_queue.core.commands import OutcomeRows
from spark_queue.core.records import Outcome, Ranges, TooLate
from spark_queue.core.replies import RefusedRows
from spark_queue.errors import CallerError, LeaseError
from spark_queue.receiver.message import Message, Settlement

#: Most messages that one call asks for, most outcomes of one, and about how many characters their texts may have: no call and no
#: answer may exceed 64 MiB.
_ASKED_AT_ONCE = 10_000
_SAID_AT_ONCE = 10_000
_CHARACTERS_AT_ONCE = 4_000_000

_REASONS = {
    TooLate.LEASED: "subscription '{holder}' was leased it since",
    TooLate.RETURNED: "its lease was over, and it is back in the queue",
    TooLate.BEHIND: "an older message of its order key was cancelled",
    TooLate.DEAD_LETTER: "it is a dead letter",
    TooLate.REMOVED: "it has left the queue: it was settled or purged by somebody else",
    TooLate.REMOTE: "another instance owns it",
}


@dataclass(slots=True)
class _Held:
    """A lease in hand."""

    #: By the receiver's clock, in seconds: until then nobody else can have its messages.
    until_s: float
    #: Whether they have left the queue when they were granted: whatever becomes of the lease, or of the queue's definition, nobody
    #: else ever gets them.
    at_most_once: bool = False
    #: Whether its message may begin only after a renewal that names it (R138).
    alone: bool = False
    #: Whether it ends, or has ended, although this receiver is heard: at the limit of renewals, or by hand.
    is_last: bool = False


@dataclass(slots=True)
class Said:
    """An outcome of a message, and where its answer goes."""

    message: Message
    outcome: str
    settlement: Settlement
    retry_after_ms: int | None = None
    error: str | None = None
    failed: bool = False
    #: The lease under which it is said.
    lease: int = 0


class Hand:
    """The messages of one receiver; every method may be called from any thread."""

    def __init__(self, queue: str, *, max_backlog: int, clock_s: Callable[[], float] = steady_s) -> None:
        self._queue = queue
        self._max_backlog = max_backlog
        #: Fetched anew once so much is free.
        self._refill = max(1, max_backlog // 2)
        self._clock_s = clock_s
        #: Held by itself, it costs a third of what it costs by way of one of its conditions.
        self.lock = lock = threading.RLock()
        #: Told of messages that may be handed out, and of the end.
        self.changed = threading.Condition(lock)
        #: Told of answers to outcomes.
        self.answered = threading.Condition(lock)
        #: Told of room for more messages, of outcomes to send, and of a message that waits for a renewal. Each has one listener: to
        #: wake all of them for every outcome would take as long as the rest.
        self.has_room = threading.Condition(lock)
        self.has_outcomes = threading.Condition(lock)
        self.renewal_wanted = threading.Condition(lock)
        self._leases: dict[int, _Held] = {}
        self._newest = 0
        #: Not settled: those that wait, and those in work.
        self._held: dict[int, Message] = {}
        self._in_work: dict[int, Message] = {}
        #: In the order in which they are handed out; with a priority the highest first, whatever lease they came with.
        self._ready: deque[Message] = deque()
        #: By order key with a message that may be handed out or is in work: those behind it.
        self._behind: dict[int, deque[Message]] = {}
        #: By bookmark: outcomes that wait for the next call.
        self._said: dict[int, Said] = {}
        #: Under way to the coordinator, by bookmark; and messages that were granted again meanwhile.
        self._sent: dict[int, Said] = {}
        self._again: dict[int, Message] = {}
        #: By order key: the bookmark of one of these, while nothing of its key may be handed out before it.
        self._reserved: dict[int, int] = {}
        #: Why nothing is settled any more.
        self._error: BaseException | None = None
        self._watchers: list[Callable[[], None]] = []
        self.lost = self.settled = 0

    # ------------------------------------------------------------- what is there

    @property
    def newest(self) -> int:
        """The newest lease that was in hand."""
        return self._newest

    @property
    def waiting(self) -> int:
        """How many messages wait to be handed out."""
        return len(self._held) - len(self._in_work)

    @property
    def has_removed(self) -> bool:
        """Whether a message waits that was removed as it was granted: it can go to nobody else."""
        with self.lock:
            return any(map(self._is_removed, self._waiting()))

    def _waiting(self) -> list[Message]:
        return [each for each in self._held.values() if each.bookmark not in self._in_work]

    @property
    def in_work(self) -> int:
        """How many messages are handed out and not settled."""
        return len(self._in_work)

    @property
    def unanswered(self) -> int:
        """How many outcomes have no answer yet."""
        return len(self._said) + len(self._sent)

    @property
    def waits_to_settle(self) -> bool:
        """Whether there are outcomes to send."""
        return bool(self._said)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in hand, not even an outcome without an answer."""
        return not (self._held or self._said or self._sent or self._again)

    @property
    def room(self) -> int:
        """How many more messages there is room for."""
        return self._max_backlog - len(self._held) - len(self._again)

    @property
    def limit(self) -> int:
        """How many more messages to ask for at once: the coordinator counts what is leased (R135), but not what is lost."""
        return min(self.room if self._has_lost else self._max_backlog, _ASKED_AT_ONCE)

    @property
    def _has_lost(self) -> bool:
        return any(each.is_lost for each in self._held.values())

    @property
    def wants_more(self) -> bool:
        """Whether to ask for more messages: enough room is free, or some is, and nothing is left to hand out."""
        return self.room >= (1 if not self._ready else self._refill)

    @property
    def wants_renewal(self) -> bool:
        """Whether the next message waits for a renewal: its lease may be over, or it has to be named in one first."""
        with self.lock:
            return bool(self._ready) and not self._may_begin(self._ready[0])

    @property
    def has_leases(self) -> bool:
        """Whether there is something to renew."""
        with self.lock:
            return any(not each.is_barrier for each in self._held.values())

    def ask_renewal(self) -> None:
        """Let the renewing thread look whether the next message waits for it."""
        with self.lock:
            if self.wants_renewal:
                self.renewal_wanted.notify_all()

    def overrun(self) -> Ranges:
        """Return the messages in work whose lease ends, or has ended, although their receiver lives (R136).

        Beforehand, too: a poll that waits when such a lease ends would get them.
        """
        with self.lock:
            return ranges_of(row for row, each in self._in_work.items() if self._leases[each.lease].is_last)

    def begun(self) -> Ranges:
        """Return the messages in work."""
        with self.lock:
            return ranges_of(self._in_work)

    def kept(self) -> Ranges:
        """Return the messages in work, and those whose outcomes have no answer: a goodbye must not overtake these."""
        with self.lock:
            return ranges_of({*self._in_work, *self._said, *self._sent})

    def messages_in_work(self) -> list[Message]:
        """Return the messages in work."""
        with self.lock:
            return list(self._in_work.values())

    def watch(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call something at every change, under the lock, until the function that this returns is called."""
        with self.lock:
            self._watchers.append(told)

        def end() -> None:
            with self.lock:
                self._watchers.remove(told)

        return end

    def notify(self) -> None:
        """Let everybody look again."""
        with self.lock:
            self._notify()
            for each in (self.answered, self.has_room, self.has_outcomes, self.renewal_wanted):
                each.notify_all()

    def _notify(self) -> None:
        """Let those look again that wait for messages."""
        self.changed.notify_all()
        for told in self._watchers:
            told()

    def _notify_room(self) -> None:
        if self.wants_more:
            self.has_room.notify_all()

    # ------------------------------------------------------------- messages come and go

    def add(
        self, lease: int, messages: Iterable[Message], *, until_s: float, alone: bool = False, at_most_once: bool = False
    ) -> None:
        """Take a new lease in hand."""
        with self.lock:
            self._leases[lease] = _Held(until_s, at_most_once=at_most_once, alone=alone)
            self._newest = max(self._newest, lease)
            for each in messages:
                known = self._held.get(each.bookmark)
                if known is not None:
                    # What is granted again to those that work on it, or are about to, goes on under the new lease (R136).
                    self.lost -= known.is_lost
                    known.lease, known.is_lost = lease, False
                elif each.bookmark in self._sent or each.bookmark in self._said:
                    self._again[each.bookmark] = each
                    if each.key is not None and each.key not in self._behind:
                        # What comes behind it must not be handed out before it is known what becomes of it (R139).
                        self._behind[each.key] = deque()
                        self._reserved[each.key] = each.bookmark
                else:
                    self._add(each)
            self._rank()
            self._notify()

    def _add(self, message: Message) -> None:
        self._held[message.bookmark] = message
        if message.key is None or self._reserved.get(message.key) == message.bookmark:
            self._free(message)
            self._ready.append(message)
        elif message.key in self._behind:
            self._behind[message.key].append(message)
        else:
            self._behind[message.key] = deque()
            self._ready.append(message)

    def _rank(self) -> None:
        """Let the highest priority be handed out first, and the oldest first within one (R66)."""
        if any(each.priority is not None for each in self._ready):
            self._ready = deque(sorted(self._ready, key=_rank_of))

    def _free(self, message: Message) -> bool:
        """Let a message that came again keep its key for itself no more; returns whether it did."""
        if message.key is None or self._reserved.get(message.key) != message.bookmark:
            return False
        del self._reserved[message.key]
        return True

    def take(self, *, only_removed: bool = False) -> Message | None:
        """Hand out the next message, with `only_removed` one that was removed as it was granted; None where none may begin now."""
        with self.lock:
            if not self._ready or not self._may_begin(self._ready[0]):
                return None
            if only_removed and not self._is_removed(self._ready[0]):
                return None
            message = self._ready.popleft()
            self._in_work[message.bookmark] = message
            if not self._ready:
                self._notify_room()
            return message

    def _may_begin(self, message: Message) -> bool:
        if message.is_barrier or self._is_removed(message):
            # It is nobody else's any more.
            return True
        lease = self._leases[message.lease]
        return not lease.alone and self._clock_s() < lease.until_s

    def _is_removed(self, message: Message) -> bool:
        """Return whether a message was removed from the queue as it was granted, at most once."""
        return self._leases[message.lease].at_most_once

    def put_back(self, messages: Iterable[Message]) -> None:
        """Take back messages that were handed out and not begun."""
        with self.lock:
            for each in reversed(list(messages)):
                if self._in_work.pop(each.bookmark, None) is not None:
                    self._ready.appendleft(each)
            self._notify()

    def say(
        self, message: Message, outcome: str, *, retry_after_ms: int | None = None, error: str | None = None, failed: bool = False
    ) -> Settlement:
        """Note the outcome of a message.

        Raises
        ------
        CallerError
            OUTCOME_INVALID: it was settled before.
        """
        with self.lock:
            if message.said is not None:
                reason, next_step = (
                    f"bookmark {message.bookmark} was settled before, as '{message.said}'.",
                    "Settle each message once.",
                )
                raise CallerError("OUTCOME_INVALID", queue=self._queue, reason=reason, next_step=next_step)
            message.said = outcome
            said = Said(message, outcome, Settlement(self.answered), retry_after_ms, error, failed)
            self._let_go(message, cancels=outcome == Outcome.CANCEL)
            if self._error is not None:
                # Nobody would ever answer it.
                said.settlement.answer(self._error)
                return said.settlement
            if not self._said:
                # Whoever sends has heard of the others. The room that this makes is asked for by the same call.
                self.has_outcomes.notify()
            self._said[message.bookmark] = said
            return said.settlement

    def _let_go(self, message: Message, *, cancels: bool) -> None:
        if self._held.get(message.bookmark) is message:
            del self._held[message.bookmark]
            self._in_work.pop(message.bookmark, None)
        self._pass_key(message, cancels=cancels)

    def _pass_key(self, message: Message, *, cancels: bool) -> None:
        """Let those go on that are behind a message of their key, or let go of them where it is cancelled."""
        behind = None if message.key is None else self._behind.get(message.key)
        if behind is None:
            return
        assert message.key is not None
        if cancels:
            # The coordinator gives them back with it (R139).
            for each in behind:
                self._held.pop(each.bookmark, None)
            behind.clear()
        if behind:
            self._ready.appendleft(behind.popleft())
            self._notify()
        else:
            del self._behind[message.key]

    # ------------------------------------------------------------- outcomes

    def take_said(self) -> list[Said]:
        """Take the outcomes that wait, and remember them as under way."""
        with self.lock:
            taken: list[Said] = []
            characters = 0
            for each in islice(self._said.values(), _SAID_AT_ONCE):
                characters += len(each.error or "")
                if taken and characters > _CHARACTERS_AT_ONCE:
                    break
                taken.append(each)
            for each in taken:
                del self._said[each.message.bookmark]
                each.lease = each.message.lease
                self._sent[each.message.bookmark] = each
            return taken

    def answer(self, said: Iterable[Said], refused: Collection[RefusedRows]) -> list[Message]:
        """Give outcomes their answer; returns the messages of those that came too late."""
        late = {
            (each.lease, row): each for each in refused for first, until in each.ranges for row in range(first, until)
        }  # fmt: skip
        lost = []
        with self.lock:
            for each in said:
                message = each.message
                if self._sent.pop(message.bookmark, None) is None:
                    # All were answered, since this receiver has ended.
                    continue
                again, trouble = self._again.pop(message.bookmark, None), late.get((each.lease, message.bookmark))
                if trouble is None:
                    self.settled += 1
                    # What is acknowledged after the end of its lease is not lost after all.
                    self.lost -= message.is_lost
                    each.settlement.answer()
                    if again is not None:
                        self._add(again)
                        self._rank()
                elif again is not None:
                    # It is this receiver's again: the outcome holds under the new lease.
                    self.lost -= message.is_lost
                    message.lease, message.is_lost = again.lease, False
                    self._said[message.bookmark] = each
                    if self._free(again):
                        self._pass_key(again, cancels=each.outcome == Outcome.CANCEL)
                else:
                    if not message.is_lost:
                        self.lost += 1
                        message.is_lost = True
                        lost.append(message)
                    each.settlement.answer(self._lost(each, trouble))
            self._forget_leases()
            self.answered.notify_all()
            if self._said:
                self.has_outcomes.notify()
            self._notify_room()
            if self._ready:
                self._notify()
        return lost

    def fail(self, error: BaseException) -> None:
        """Answer all outcomes with an error: nothing more will be settled."""
        with self.lock:
            self._error = error
            for each in (*self._sent.values(), *self._said.values()):
                each.settlement.answer(error)
            self._sent.clear()
            self._said.clear()
            self._again.clear()
            self.notify()

    def _lost(self, said: Said, refused: RefusedRows) -> LeaseError:
        reason = _REASONS[TooLate(refused.reason)].format(holder=refused.holder)
        facts = {"outcome": said.outcome, "bookmark": said.message.bookmark, "lease": said.lease}
        return LeaseError("MESSAGE_LOST", queue=self._queue, reason=reason, **facts)

    # ------------------------------------------------------------- leases

    def renewed(self, newest: int, standing_s: Mapping[int, float], *, asked_s: float, period_s: float) -> list[Message]:
        """Note for how long each of the leases up to one stands, in seconds; returns the messages in work that are lost."""
        with self.lock:
            for number, stands_s in standing_s.items():
                if number in self._leases:
                    at_most_once = self._leases[number].at_most_once
                    self._leases[number] = _Held(asked_s + stands_s, at_most_once=at_most_once, is_last=stands_s < period_s)
            gone = [number for number in self._leases if number <= newest and number not in standing_s]
            for held in map(self._leases.__getitem__, gone):
                # Somebody has ended it before its time: not the silence of this receiver.
                held.is_last |= self._clock_s() < held.until_s
            lost = self._lose(gone)
            self._notify()
            self._notify_room()
            return lost

    def lose_all(self) -> list[Message]:
        """Note that no lease stands any more; returns the messages in work."""
        with self.lock:
            lost = self._lose(self._leases)
            self._newest = 0
            self.notify()
            return lost

    def drop_waiting(self) -> None:
        """Let go of the messages that wait, which go back; those that were removed as they were granted stay."""
        with self.lock:
            for each in self._waiting():
                if not self._is_removed(each):
                    self._drop(each)
            self._notify()

    def _lose(self, leases: Iterable[int]) -> list[Message]:
        gone, lost = {number for number in leases if not self._leases[number].at_most_once}, []
        for each in [each for each in self._held.values() if each.lease in gone and not each.is_barrier]:
            if each.bookmark not in self._in_work:
                self._drop(each)
            elif not each.is_lost:
                each.is_lost = True
                self.lost += 1
                lost.append(each)
        for again in [again for again in self._again.values() if again.lease in gone]:
            del self._again[again.bookmark]
            if self._free(again):
                self._pass_key(again, cancels=False)
        self._forget_leases()
        return lost

    def _drop(self, message: Message) -> None:
        """Let go of a message that waits."""
        del self._held[message.bookmark]
        if message in self._ready:
            self._ready.remove(message)
            behind = None if message.key is None else self._behind.get(message.key)
            if behind:
                self._ready.appendleft(behind.popleft())
            elif behind is not None:
                del self._behind[message.key]  # type: ignore[arg-type]  # It has a key, since something may be behind it.
        elif message.key is not None:
            self._behind[message.key].remove(message)

    def _forget_leases(self) -> None:
        """Forget leases of which nothing is in hand."""
        known = {each.lease for each in self._held.values()} | {each.lease for each in self._again.values()}
        self._leases = {number: held for number, held in self._leases.items() if number in known}


def _rank_of(message: Message) -> tuple[int, int]:
    """Return a key that sorts as messages are granted (R66)."""
    return (1 if message.priority is None else -message.priority, message.bookmark)


def to_outcomes(said: Iterable[Said]) -> Iterator[OutcomeRows]:
    """Yield outcomes as they travel, those that are alike together."""
    alike: dict[tuple[int, str, int | None, str | None, bool], list[int]] = {}
    for each in said:
        alike.setdefault((each.lease, each.outcome, each.retry_after_ms, each.error, each.failed), []).append(each.message.bookmark)
    for (lease, outcome, retry_after_ms, error, failed), bookmarks in alike.items():
        yield OutcomeRows(
            outcome=outcome, ranges=ranges_of(bookmarks), retry_after_ms=retry_after_ms, error=error, lease=lease, failed=failed
        )


def ranges_of(bookmarks: Iterable[int]) -> Ranges:
    """Return bookmarks as half-open ranges."""
    found: list[list[int]] = []
    for each in sorted(bookmarks):
        if found and found[-1][1] == each:
            found[-1][1] = each + 1
        else:
            found.append([each, each + 1])
    return tuple((first, until) for first, until in found)
