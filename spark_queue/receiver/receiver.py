"""`Receiver`: a consumer in plain Python, as users hold it (R131 to R140, DESIGN 9)."""

from __future__ import annotations

import _thread
import logging
import math
import os
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from spark_queue import tracing
from spark_queue.client.arguments import checked
from spark_queue.clock import SystemClock, steady_s
from spark_queue.core import commands
from spark_queue.core.commands import ERROR_TEXT_LIMIT
from spark_queue.core.definitions.keys import parse_duration_ms, parse_pause_ms
from spark_queue.core.records import Outcome, Ranges
from spark_queue.core.replies import Drawn, Granted
from spark_queue.errors import STOPPING_CODES, CallerError, SparkQueueError, counted, parsed
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.protocol.wire import LONG_POLL_LIMIT_MS
from spark_queue.receiver.batch import MessageBatch
from spark_queue.receiver.bodies import MessageBodies
from spark_queue.receiver.hand import Hand, to_outcomes
from spark_queue.receiver.message import Message, Settlement, teller
from spark_queue.receiver.session import ReceiverSession, begins_anew, made_name, passes
from spark_queue.settings.timestamps import to_text

_LOG = logging.getLogger(__name__)

#: Longest pause before the coordinator is asked again that did not answer, in seconds.
_PAUSE_S = 1.0

#: How long a poll waits at the coordinator while something is in hand, in milliseconds: where `stop` is called meanwhile, that goes
#: back after it; and so for messages that are granted at most once, which are handed out after `stop`.
_BUSY_POLL_MS = 1_000

#: How often a coordinator that does not answer is worth a warning, in seconds.
_WARNED_S = 60.0

#: How long nothing may be settled, while all that is in hand is in work, until that is worth a warning, in seconds.
_QUIET_S = 60.0

#: How long a receiver that ends waits for the answers to its last outcomes, in seconds.
_LAST_ANSWERS_S = 30.0

#: How long it waits for calls that are under way after that, in seconds.
_LAST_CALLS_S = 5.0

#: Text of a message that was handed out, and not settled when its receiver ended.
_UNSETTLED = "its receiver ended before it was settled"


def text_of(failure: BaseException) -> str:
    """Return an exception as the error text of an outcome, whatever its own text is."""
    try:
        text = f"{type(failure).__name__}: {failure}".removesuffix(": ")
    except Exception:  # noqa: BLE001 - it is the user's, and must not be the end of what reports it.
        text = type(failure).__name__
    return text[:ERROR_TEXT_LIMIT].encode(errors="replace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """Messages that a receiver leaves in the queue at its end."""

    #: Those of an `until_empty` run that wait for their time, by `deliver_after`, `retry_after` or `retry_backoff`.
    delayed: int = 0
    #: When the first of them comes, in milliseconds since 1970.
    due_at_ms: int | None = None
    #: Why nothing more was granted, where the queue is paused, or an alarm pauses the subscription, and the next step.
    pause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverStatus:
    """Counts of the messages that a receiver has in hand."""

    subscription: str
    #: Messages that wait to be handed out, and those that were, and are not settled.
    waiting: int
    in_work: int
    #: Outcomes without an answer.
    unanswered: int
    #: Outcomes that were recorded, and messages that were lost.
    settled: int
    lost: int
    #: Messages that it leaves in the queue, as far as it knows; nothing before it is at its end.
    left: LeftBehind


def log_lost(message: Message) -> None:
    """Warn of a message whose outcome was refused, or whose lease is over."""
    _LOG.warning("message %d was lost: its lease %d is over, and others may have it", message.bookmark, message.lease)


@dataclass(slots=True, kw_only=True)
class _Asked:
    """A poll that was begun."""

    #: The start that made it.
    drawn: Drawn
    poll: commands.ReceiverPoll
    #: By the receiver's clock, and by that of the host.
    began_s: float
    began_ms: int
    #: Whether nothing was in hand.
    was_empty: bool
    #: Its answer, which came with that to outcomes.
    answer: Granted | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverOptions:
    """How a receiver wants its messages; see `Queue.receive`."""

    store: Store
    endpoint: Endpoint
    queue: str
    subscription: str | None
    max_backlog: int
    filter_sql: str | None
    wait: str | None
    until_empty: bool
    on_lost: Callable[[Message], None] | None


class Receiver:
    """Messages of a queue, one by one; use it in a ``with`` statement, or an ``async with``.

    Made by `Queue.receive`. Iterate over it, also with ``async for``, or call `get` or `batches`. Its threads ask for messages,
    send outcomes and renew leases; no function of the user's runs on them but `on_lost`.
    """

    def __init__(self, wanted: ReceiverOptions, journal_id: Callable[[], str]) -> None:
        self._wanted = wanted
        self._journal_id = journal_id
        self._wait_ms = None if wanted.wait is None else parsed(parse_duration_ms, wanted.wait, key="wait", where="receive")
        # An empty text is a name, if none that is allowed: what stands in its place would not end with this receiver.
        self.subscription = made_name() if wanted.subscription is None else wanted.subscription
        self._process = os.getpid()
        self._session: ReceiverSession | None = None
        self._hand = Hand(wanted.queue, max_backlog=wanted.max_backlog)
        self._bodies: MessageBodies | None = None
        self._threads: list[threading.Thread] = []
        #: No more messages are asked for; those in work go on.
        self._is_stopping = False
        #: Everything is over.
        self._is_closed = False
        self._is_at_end = False
        #: Whether messages may still come.
        self._is_polling = False
        #: The poll that is under way, or whose messages are read, under the hand's lock; outcomes may carry it.
        self._asked: _Asked | None = None
        #: Held while it begins anew, so that one thread does.
        self._beginning = threading.Lock()
        #: Whether whoever began it has gone meanwhile, and whether it had begun by then.
        self._is_unwanted = self._has_begun = False
        self._giving_up = threading.Lock()
        #: How many messages were cancelled since they were not settled when it ended.
        self.unsettled = 0
        self._came_s = 0.0
        self._left = LeftBehind()
        #: What no time mends.
        self._trouble: SparkQueueError | None = None
        #: Whether outcomes are refused for good: whoever has the subscription now leaves this one those of what it has in hand.
        self._is_refused = False
        self._warned_s = -_WARNED_S

    # ------------------------------------------------------------- beginning and end

    def __enter__(self) -> Self:
        self._check_process()
        if self._session is not None:
            raise self._closed("was begun before", "beginning it again", "Make another one with Queue.receive().")
        wanted = self._wanted
        self._session = session = ReceiverSession(
            wanted.store, self._journal_id(), wanted.endpoint, queue=wanted.queue, subscription=self.subscription,
            max_backlog=wanted.max_backlog, filter_sql=wanted.filter_sql, ends=wanted.subscription is None,
            available_now=wanted.until_empty,
        )  # fmt: skip
        drawn = session.drawn
        self._hand = Hand(wanted.queue, max_backlog=wanted.max_backlog)
        try:
            self._bodies = MessageBodies(wanted.store, drawn.message_type, drawn.columns)
            self._came_s, self._is_polling = time.monotonic(), True
            for name, run in (("poll", self._poll), ("settle", self._settle), ("renew", self._renew)):
                # Daemons: a program that ends must not wait for them.
                thread = threading.Thread(target=self._run, args=(run,), name=f"sparkqueue-{name}", daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:
            # No block is left where none was entered, and threads that nobody ends would keep messages for ever.
            self._end(_UNSETTLED)
            raise
        with self._giving_up:
            self._has_begun = True
        if self._is_unwanted:
            self._end(_UNSETTLED)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if os.getpid() != self._process or self._session is None:
            # The child of a fork has a dead copy; the messages are its parent's.
            return
        self._end(_UNSETTLED if value is None else text_of(value))

    def _end(self, reason: str) -> None:
        """Give back what is in hand, and end the threads."""
        begun = self._hand.begun()
        try:
            self._is_stopping = True
            self._hand.notify()
            self._cancel_rest(reason)
        finally:
            # Also where somebody interrupts the wait: threads that nobody ends would keep messages for ever.
            self._close(begun)

    def _cancel_rest(self, reason: str) -> None:
        """Cancel what was handed out and not settled, and wait for the answers."""
        for each in self._hand.messages_in_work():
            try:
                _ = self._hand.say(each, Outcome.CANCEL, error=reason)
            except CallerError:
                # Settled at this moment by another thread.
                continue
            self.unsettled += 1
        with self._hand.answered:
            self._hand.answered.wait_for(lambda: not self._hand.unanswered or self._settles_no_more(), _LAST_ANSWERS_S)

    def _close(self, begun: Ranges) -> None:
        assert self._session is not None
        self._is_closed = True
        self._hand.notify()
        # Also after a failure: in silence its messages would come back late, and marked. To a newer start it says nothing.
        self._session.leave(begun=self._hand.kept() if self._trouble is None else begun)
        self._hand.fail(self._closed("has ended", "settling", "Its leases end by themselves."))
        self._session.end()
        until_s = time.monotonic() + _LAST_CALLS_S
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415 - who has an event loop has loaded it.

        try:
            return await asyncio.to_thread(self.__enter__)
        except asyncio.CancelledError:
            # The thread goes on, and no block will be left that ends what it begins.
            with self._giving_up:
                self._is_unwanted, has_begun = True, self._has_begun
            if has_begun:
                threading.Thread(target=self._end, args=(_UNSETTLED,), daemon=True).start()
            raise

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        import asyncio  # noqa: PLC0415 - who has an event loop has loaded it.

        await asyncio.to_thread(self.__exit__, kind, value, trace)

    def stop(self) -> None:
        """Ask for no more messages, and give back those that were not handed out; iteration ends. It does not wait.

        At most once, where nothing can go back, those that have come are still handed out. May be called from any thread, and from
        a signal handler.
        """
        self._is_stopping = True
        # The lock may be this thread's own, where a signal came inside of it, and so may one of the module threading.
        _thread.start_new_thread(self._note_stop, ())

    def _note_stop(self) -> None:
        self._hand.notify()
        if self._session is not None and self._session.drawn.at_most_once:
            # What is under way is handed out still, but a coordinator that is away is not waited for.
            with self._hand.changed:
                self._hand.changed.wait_for(lambda: self._is_closed or not self._is_polling, _LAST_CALLS_S)
                self._is_polling = False
                self._hand.notify()

    @property
    def is_stopping(self) -> bool:
        """Whether no more messages are asked for."""
        return self._is_stopping or self._trouble is not None

    # ------------------------------------------------------------- messages

    def __iter__(self) -> Iterator[Message]:
        while (message := self.get()) is not None:
            yield message

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.get_async()) is not None:
            yield message

    def get(self, timeout: float | None = None) -> Message | None:
        """Return the next message; None where none came in time, or the receiver is at its end.

        Parameters
        ----------
        timeout
            Most seconds to wait; default: until a message comes, or the receiver ends.

        Raises
        ------
        CallerError
            RECEIVER_CLOSED or RECEIVER_FORKED.
        SparkQueueError
            What no time mends: SUBSCRIPTION_TAKEN, ACCESS_DENIED, UNKNOWN_QUEUE, a damaged message file.
        """
        self._check_open("getting a message")
        deadline_s = None if timeout is None else time.monotonic() + timeout
        with self._hand.lock:
            while True:
                if (message := self._take()) is not None or self._is_over():
                    return message
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return None
                self._hand.ask_renewal()
                self._hand.changed.wait(left_s)

    async def get_async(self, timeout: float | None = None) -> Message | None:
        """Return the next message, as `get` does, without blocking the event loop."""
        import asyncio  # noqa: PLC0415 - who has an event loop has loaded it.

        self._check_open("getting a message")
        told = asyncio.Event()
        end_watch = self._hand.watch(teller(asyncio.get_running_loop(), told))
        deadline_s = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                told.clear()
                if (message := self._take()) is not None or self._is_over():
                    return message
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return None
                self._hand.ask_renewal()
                try:
                    # `wait_for` of Python 3.11 forgets that it was cancelled where the event comes with that.
                    async with asyncio.timeout(left_s):
                        await told.wait()
                except TimeoutError:
                    continue
        finally:
            end_watch()

    @checked
    def batches(self, max_messages: int, *, linger: str = "0s") -> Iterator[MessageBatch]:
        """Yield messages by the batch, as Arrow tables; each is settled as a whole, but for the exceptions that it is given.

        Parameters
        ----------
        max_messages
            Most messages of a batch; no batch has more than `max_backlog`.
        linger
            How long a batch that is not full waits for more messages; by default it is what is there.

        Raises
        ------
        ConfigError
            BAD_VALUE.
        """
        # Judged here, and not where the first batch is asked for.
        linger_s = parsed(parse_pause_ms, linger, key="linger", where="batches") / 1_000
        # More never come before some of these are settled.
        return self._batches(min(max_messages, self._wanted.max_backlog), linger_s)

    def _batches(self, max_messages: int, linger_s: float) -> Iterator[MessageBatch]:
        while (first := self.get()) is not None:
            batch, until_s = [first], time.monotonic() + linger_s
            # A barrier is a batch of its own.
            while len(batch) < max_messages and not first.is_barrier:
                try:
                    message = self.get(max(0.0, until_s - time.monotonic()))
                except SparkQueueError:
                    # These are in work already; the next step raises it again.
                    break
                except BaseException:
                    self._hand.put_back(batch)
                    raise
                if message is None:
                    break
                if message.is_barrier:
                    self._hand.put_back([message])
                    break
                batch.append(message)
            yield MessageBatch(self, batch)

    @property
    def ends_by_itself(self) -> bool:
        """Whether it ends without being stopped."""
        return self._wanted.until_empty or self._wait_ms is not None

    @property
    def status(self) -> ReceiverStatus:
        """Counts of the messages in hand now."""
        hand = self._hand
        return ReceiverStatus(
            subscription=self.subscription, waiting=hand.waiting, in_work=hand.in_work, unanswered=hand.unanswered,
            settled=hand.settled, lost=hand.lost, left=self._left,
        )  # fmt: skip

    # ------------------------------------------------------------- for messages

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._wanted.queue

    def settle(
        self, message: Message, outcome: str, *, retry_after_ms: int | None = None, error: str | None = None, failed: bool = False
    ) -> Settlement:
        """Say what becomes of a message; see `Message`."""
        self._check_open("settling a message")
        text = None if error is None else error[:ERROR_TEXT_LIMIT]
        return self._hand.say(message, outcome, retry_after_ms=retry_after_ms, error=text, failed=failed)

    # ------------------------------------------------------------- threads

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as fault:  # noqa: BLE001 - a thread that dies unseen would leave its receiver waiting for ever.
            self._fail(fault)

    def _poll(self) -> None:
        try:
            self._ask_for_messages()
        finally:
            with self._hand.changed:
                self._is_polling = False
                self._hand.notify()

    def _ask_for_messages(self) -> None:
        session, hand = self._begun, self._hand
        while (asked := self._next_poll()) is not None:
            try:
                granted = asked.answer or session.next(asked.poll, wait_ms=self._patience_ms())
                if granted.messages:
                    # Only now: polls that find nothing are no news.
                    with self._span(
                        "receive", begun_ms=asked.began_ms, batch__message_count=granted.messages, spark_queue__lease=granted.lease
                    ):
                        pass
                    messages = list(self._messages(granted))
                    until_s = asked.began_s + granted.remaining_ms / 1_000
                    with self._beginning:
                        # Another thread may have begun anew meanwhile: but at most once, these have gone back with the old start.
                        if session.drawn is asked.drawn or asked.drawn.at_most_once:
                            hand.add(
                                granted.lease, messages, until_s=until_s, alone=granted.alone, at_most_once=asked.drawn.at_most_once
                            )  # fmt: skip
                    self._came_s = time.monotonic()
                else:
                    self._note_nothing(granted, was_empty=asked.was_empty)
            except SparkQueueError as trouble:
                if trouble.code in STOPPING_CODES and not asked.was_empty:
                    # Nothing more comes, and what is in hand is as good as before: it is told once all of that is settled.
                    with hand.changed:
                        hand.changed.wait_for(lambda: hand.is_empty or self._asks_no_more(), _PAUSE_S / 5)
                else:
                    self._meet(trouble, asked.drawn)
        if not self._is_over_for_all():
            # What was not handed out goes back at once; what is in work is kept until it ends.
            hand.drop_waiting()
            if not session.drawn.at_most_once and (keeps := hand.kept()):
                session.leave(begun=keeps, keeps=keeps)

    def _next_poll(self) -> _Asked | None:
        """Wait until more messages are wanted, or have come with the answer to outcomes; None once neither will be."""
        hand = self._hand
        with hand.has_room:
            self._asked = None
            hand.has_room.wait_for(self._may_ask)
            return self._own_or_carried()

    def _may_ask(self) -> bool:
        """Return whether the polling thread has something to do; a poll that outcomes carry, or could carry, goes before."""
        if self._asked is not None:
            return self._asked.answer is not None or self._is_over_for_all()
        return (self._hand.wants_more and not self._hand.waits_to_settle) or self._asks_no_more()

    def _own_or_carried(self) -> _Asked | None:
        if self._is_over_for_all():
            return None
        if self._asked is None and not self._asks_no_more():
            self._asked = self._ask()
        return self._asked

    def _ask(self) -> _Asked:
        """Return a poll for what is wanted now: there is one at a time (P1)."""
        hand, session = self._hand, self._begun
        # In this order: a start that another thread begins meanwhile is not taken for the one that asks.
        drawn, poll = session.drawn, session.poll(newest=hand.newest, limit=hand.limit, overrun=hand.overrun())
        return _Asked(drawn=drawn, poll=poll, began_s=steady_s(), began_ms=SystemClock().wall_ms(), was_empty=hand.is_empty)

    def _patience_ms(self) -> int:
        """Return how long the next poll waits at the coordinator, in milliseconds: no longer than the silence that ends it."""
        is_idle = self._hand.is_empty and not self._begun.drawn.at_most_once
        most_ms = LONG_POLL_LIMIT_MS if is_idle else _BUSY_POLL_MS
        left_ms = 0 if self._wait_ms is None else self._wait_ms - self._silent_ms()
        return math.ceil(min(left_ms, most_ms)) if left_ms > 0 else most_ms

    def _silent_ms(self) -> float:
        return (time.monotonic() - self._came_s) * 1_000

    def _is_over_for_all(self) -> bool:
        return self._is_closed or self._trouble is not None

    def _settles_no_more(self) -> bool:
        """Return whether no outcome is sent any more: those of an older start count until somebody else has the message (R133)."""
        return self._is_closed or self._is_refused

    def _asks_no_more(self) -> bool:
        return self._is_stopping or self._is_at_end or self._is_over_for_all()

    def _note_nothing(self, granted: Granted, *, was_empty: bool) -> None:
        is_silent = self._wait_ms is not None and self._silent_ms() >= self._wait_ms
        if granted.ended or (is_silent and was_empty):
            self._left = LeftBehind(
                delayed=granted.delayed, due_at_ms=granted.due_at_ms, pause=self._pause_of(granted) if granted.paused else None
            )
            if self._left.pause is not None:
                _LOG.warning("%s This receiver ends.", self._left.pause)
            self._is_at_end = True
            self._hand.notify()

    def _pause_of(self, granted: Granted) -> str:
        """Return why nothing is granted, and the next step."""
        unpause = f"`sparkq unpause {self._wanted.store.path} {self._wanted.queue}`"
        if granted.alarm is None:
            return f"Queue '{self._wanted.queue}' is paused by hand, so whatever waits there stays. {unpause} lets it grant again."
        return (
            f"Queue '{self._wanted.queue}' is paused by an alarm, so whatever waits there stays: "
            f"{granted.alarm.removesuffix('.')}. A message is tried next at {to_text(granted.probe_at_ms)}; {unpause} ends the "
            "pause before."
        )

    def _messages(self, granted: Granted) -> Iterator[Message]:
        assert self._bodies is not None
        if (granted.message_type, granted.columns) != (self._bodies.message_type, self._bodies.columns):
            # Its message type has got some since, and these messages may have values there; or the queue was reset to another type.
            self._bodies = MessageBodies(self._wanted.store, granted.message_type, granted.columns)
        for place in granted.places:
            number = 0
            for part in self._bodies.rows(place.path, place.first_row, place.rows, place.columns):
                for row in range(part.table.num_rows):
                    yield Message(
                        self, part, row, bookmark=place.bookmark + number, lease=granted.lease, delivery_count=place.delivery_count,
                        cancel_count=place.cancel_count, is_barrier=place.is_barrier,
                        key=None if place.keys is None else place.keys[number],
                        priority=None if place.priorities is None else place.priorities[number],
                    )  # fmt: skip
                    number += 1

    def _settle(self) -> None:
        session, hand = self._begun, self._hand
        while True:
            with hand.has_outcomes:
                hand.has_outcomes.wait_for(lambda: hand.waits_to_settle or self._settles_no_more())
                if self._settles_no_more():
                    return
                said, request, asked = hand.take_said(), uuid.uuid4().hex, None
                if self._asked is None and hand.wants_more and not self._asks_no_more():
                    asked = self._asked = self._ask()
            outcomes = list(to_outcomes(said))
            while not self._settles_no_more():
                drawn = session.drawn
                try:
                    with self._span("settle", batch__message_count=len(said)):
                        settled = session.settle(outcomes, request=request, poll=None if asked is None else asked.poll)
                except SparkQueueError as trouble:
                    if asked is not None:
                        self._put_down(asked, None)
                        asked = None
                    self._meet(trouble, drawn)
                    continue
                self._tell_lost(hand.answer(said, settled.refused))
                if asked is not None:
                    self._put_down(asked, settled.granted)
                break

    def _put_down(self, asked: _Asked, answer: Granted | None) -> None:
        """Let the polling thread go on after a poll that outcomes carried, with its answer if there is one."""
        with self._hand.has_room:
            asked.answer = answer
            if answer is None:
                self._asked = None
            self._hand.has_room.notify_all()

    def _renew(self) -> None:
        session, hand = self._begun, self._hand
        renewed_s = quiet_since_s = steady_s()
        settled, has_warned = 0, False
        while True:
            due_s = renewed_s + session.lease_period_ms / 3_000
            with hand.renewal_wanted:
                hand.renewal_wanted.wait_for(lambda: self._is_closed or hand.wants_renewal, max(0.0, due_s - steady_s()))
                if self._is_over_for_all():
                    return
                newest, is_wanted = hand.newest, hand.wants_renewal
            if not hand.has_leases:
                renewed_s = quiet_since_s = steady_s()
                continue
            drawn, began_s = session.drawn, steady_s()
            try:
                standing_s = session.renew(newest)
            except SparkQueueError as trouble:
                self._meet(trouble, drawn)
                continue
            renewed_s = began_s
            self._tell_lost(hand.renewed(newest, standing_s, asked_s=began_s, period_s=session.lease_period_ms / 1_000))
            if hand.waiting or hand.unanswered or hand.settled != settled:
                settled, quiet_since_s = hand.settled, began_s
            elif not has_warned and began_s - quiet_since_s > _QUIET_S:
                # Somebody who forgets to settle would wait for the next one for ever, and so would a run that is to end.
                quiet = counted(f"nothing was settled for {_QUIET_S:.0f} s, with {hand.in_work:,} message(s) in work")
                _LOG.warning("queue '%s': %s. Settle each message: acknowledge(), cancel() or expire().", self.queue, quiet)
                has_warned = True
            if is_wanted and hand.wants_renewal:
                # A lease that came meanwhile, or one that lasts too short a time to be begun.
                time.sleep(0.01)

    def _span(self, operation: str, **about: Any) -> AbstractContextManager[bool]:
        return tracing.span(operation, self._wanted.queue, destination__subscription__name=self.subscription, **about)

    def _meet(self, trouble: SparkQueueError, drawn: Drawn) -> None:
        """Wait where time may mend a failure, begin anew where the subscription has ended, and end otherwise.

        `drawn` is the start that made the call.
        """
        failure: SparkQueueError | None = trouble
        if begins_anew(trouble) or trouble.code == "SUBSCRIPTION_TAKEN":
            with self._beginning:
                if self._is_closed or self._begun.drawn is not drawn:
                    # Its subscription ended with its goodbye, or another thread has begun anew: what is newer is its own.
                    return
                lost = self._hand.lose_all()
                if begins_anew(trouble):
                    failure = self._begin_anew()
            self._tell_lost(lost)
        if failure is None:
            return
        if passes(failure):
            now_s = time.monotonic()
            if now_s >= self._warned_s + _WARNED_S:
                self._warned_s = now_s
                _LOG.warning("queue '%s' is asked again: %s", self._wanted.queue, failure)
            with self._hand.changed:
                self._hand.changed.wait_for(lambda: self._is_closed, _PAUSE_S / 5)
        else:
            self._fail(failure)

    def _begin_anew(self) -> SparkQueueError | None:
        """Attach again: the subscription has ended, since nothing was heard of it for long, or its queue is another by now (R140).

        Returns why that failed.
        """
        try:
            self._begun.attach()
        except SparkQueueError as trouble:
            return trouble
        return None

    def _fail(self, trouble: BaseException) -> None:
        if self._trouble is None:
            if not isinstance(trouble, SparkQueueError):
                _LOG.exception("A thread of the receiver of queue '%s' failed.", self._wanted.queue, exc_info=trouble)
            self._trouble = trouble  # type: ignore[assignment]  # Whatever it is, the next step raises it.
        self._is_refused |= not (isinstance(trouble, SparkQueueError) and trouble.code == "SUBSCRIPTION_TAKEN")
        if self._settles_no_more():
            self._hand.fail(trouble)
        else:
            self._hand.notify()

    def _tell_lost(self, messages: list[Message]) -> None:
        told = self._wanted.on_lost or log_lost
        for each in messages:
            try:
                told(each)
            except BaseException:  # noqa: BLE001 - a user's function ends none of our threads.
                _LOG.exception("on_lost of queue '%s' failed.", self._wanted.queue)

    # ------------------------------------------------------------- checks

    @property
    def _begun(self) -> ReceiverSession:
        assert self._session is not None
        return self._session

    def _take(self) -> Message | None:
        """Hand out the next message, unless what waits goes back, or is another's by now."""
        return self._hand.take(only_removed=self.is_stopping)

    def _is_over(self) -> bool:
        """Return whether no message comes any more; raises what no time mends."""
        if self._trouble is not None:
            raise self._trouble
        if self._is_stopping and (self._begun.drawn.at_most_once or self._hand.has_removed):
            # Nobody would ever deliver what waits here, or is under way.
            return self._is_closed or not (self._hand.has_removed or self._is_polling)
        return self._is_stopping or self._is_closed or (self._is_at_end and not self._hand.waiting)

    def _check_process(self) -> None:
        here = os.getpid()
        if here != self._process:
            raise CallerError("RECEIVER_FORKED", pid=here, parent=self._process, queue=self._wanted.queue)

    def _check_open(self, what: str) -> None:
        # Twice for each message, so it looks at all that refuses at once.
        if os.getpid() == self._process and self._session is not None and not self._is_closed:
            return
        self._check_process()
        if self._session is None:
            raise self._closed("was not begun", what, "Use it in a `with` statement.")
        raise self._closed("has ended", what, "What it had in hand is back in the queue.")

    def _closed(self, reason: str, what: str, next_step: str) -> CallerError:
        return CallerError("RECEIVER_CLOSED", queue=self._wanted.queue, reason=reason, what=what, next_step=next_step)
