"""A receiver's calls: one start of a subscription, numbered polls, settlements, renewals, a goodbye (P1, R131)."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import uuid
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any, cast

from spark_queue.client.coordinator_client import CoordinatorClient, call_once
from spark_queue.core import commands, replies
from spark_queue.core.commands import OutcomeRows
from spark_queue.core.records import AckMode, Ranges
from spark_queue.errors import CoordinatorError, JournalError, SparkQueueError
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint

_LOG = logging.getLogger(__name__)

#: A receiver that ends waits no longer for the coordinator, in seconds; unheard, its leases end by themselves.
_LEAVE_S = 2.0

#: Most characters of each part of a made name.
_PART = 60


def made_name() -> str:
    """Return a name for the subscription of a receiver that was given none: of its program, host and process, and its alone."""
    # A program that Python is a part of has none.
    begun_as = sys.argv[0] if sys.argv else ""
    program = Path(begun_as).stem.lstrip("-") if begun_as != "-c" else ""
    parts = (re.sub(r"[^A-Za-z0-9_.-]", "_", each)[:_PART] for each in (program or "python", socket.gethostname()))
    return "-".join([*parts, str(os.getpid()), uuid.uuid4().hex[:6]])


def passes(trouble: SparkQueueError) -> bool:
    """Return whether time may mend a failure: the coordinator is away, or the store does not answer."""
    return (isinstance(trouble, CoordinatorError) and trouble.code != "UNAUTHENTICATED") or (
        isinstance(trouble, JournalError) and trouble.code == "STORE_FAILED"
    )


def begins_anew(trouble: SparkQueueError) -> bool:
    """Return whether another start may go on: the subscription has ended meanwhile, or its queue has other semantics (R140)."""
    return trouble.code in ("UNKNOWN_SUBSCRIPTION", "SEMANTICS_CHANGED")


class ReceiverSession:
    """One start of a receiver; may be used by several threads, but one polls at a time."""

    def __init__(
        self, store: Store, journal_id: str, endpoint: Endpoint, *, queue: str, subscription: str, max_backlog: int,
        filter_sql: str | None, ends: bool, available_now: bool,
    ) -> None:  # fmt: skip
        self._store, self._journal_id, self._endpoint = store, journal_id, endpoint
        self._client = CoordinatorClient(store, journal_id, endpoint=endpoint)
        self._about: dict[str, Any] = {"queue": queue, "subscription": subscription}
        self._asks: dict[str, Any] = {
            "max_backlog": max_backlog, "filter": filter_sql, "ends": ends, "available_now": available_now
        }  # fmt: skip
        self.attach()

    @property
    def drawn(self) -> replies.Drawn:
        """The present start; another object after each `attach`."""
        return self._start[0]

    def attach(self) -> None:
        """Begin a start of the subscription: the newest wins (P1)."""
        drawn, numbers = cast(replies.Drawn, self._client.call(commands.DrawIncarnation(**self._about))), count(1)
        attach = commands.Attach(
            **self._about, incarnation=drawn.incarnation, call=next(numbers), ack_mode=AckMode.RECEIVE, **self._asks
        )
        self._client.call(attach)
        self.lease_period_ms = drawn.lease_period_ms
        # In one step: another thread's call is of this start or of the one before, and never has a number of the other.
        self._start = (drawn, numbers)

    def next(self, poll: commands.ReceiverPoll, *, wait_ms: int) -> replies.Granted:
        """Ask for more messages, and wait for them at the coordinator."""
        asked = poll.to_next(**self._about, wait_ms=min(wait_ms, self.lease_period_ms // 3), asks_again=True)
        return self._heed(cast(replies.Granted, self._client.call(asked)))

    def poll(self, *, newest: int, limit: int, overrun: Ranges = ()) -> commands.ReceiverPoll:
        """Return the next poll of this start; `newest` is the newest lease that arrived (R135).

        None of the messages comes that `overrun` the limit of their lease, and are worked on still (R136).
        """
        drawn, numbers = self._start
        return commands.ReceiverPoll(
            incarnation=drawn.incarnation, call=next(numbers), finished=newest, limit=limit, overrun=overrun,
            at_most_once=drawn.at_most_once,
        )  # fmt: skip

    def settle(
        self, outcomes: Iterable[OutcomeRows], *, request: str, poll: commands.ReceiverPoll | None = None
    ) -> replies.HeldSettled:
        """Settle messages, and ask for more by a poll that does not wait, if one comes with them.

        A repeat under the same id is answered as the first was (R134).
        """
        command = commands.SettleHeld(**self._about, outcomes=tuple(outcomes), request=request, poll=poll)
        settled = cast(replies.HeldSettled, self._client.call(command))
        if settled.granted is not None:
            self._heed(settled.granted)
        return settled

    def _heed(self, granted: replies.Granted) -> replies.Granted:
        self.lease_period_ms = granted.lease_period_ms or self.lease_period_ms
        return granted

    def renew(self, newest: int) -> dict[int, float]:
        """Extend all leases in hand, up to one; returns for how long each stands that does, in seconds (R136)."""
        command = commands.Renew(**self._about, incarnation=self.drawn.incarnation, call=0, lease=newest)
        renewed = cast(replies.Renewed, self._client.call(command, timeout_s=max(0.5, self.lease_period_ms / 3_000)))
        self.lease_period_ms = renewed.lease_period_ms
        return {number: stands_ms / 1_000 for number, stands_ms in renewed.leases}

    def leave(self, *, begun: Ranges = (), keeps: Ranges = ()) -> None:
        """Give back what is in hand, if a coordinator runs (R137)."""
        leave = commands.Leave(**self._about, incarnation=self.drawn.incarnation, call=0, begun=begun, keeps=keeps)
        try:
            # None is started to hear this, so it does not go by the session's own client.
            call_once(self._store, self._journal_id, leave, endpoint=self._endpoint, start=False, timeout_s=_LEAVE_S)
        except SparkQueueError as reason:
            _LOG.info("leaving was not reported, so the leases end by themselves: %s", reason)

    def end(self) -> None:
        """Let go of the connection, and try no call again that is under way."""
        self._client.end()
