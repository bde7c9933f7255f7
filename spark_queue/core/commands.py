"""The commands: requests of callers to the core, each as one value from the caller's hand to its handler.

They travel as they are (`protocol.wire`), so a name of a class or a field here is a name on the wire. The class of a kind
of commands (`Command`) describes them all, `core.deciding.handlers` names their handlers. Each is answered with a reply of
`core.replies`; repeated after a lost reply, a command gets the same answer.

The caller: a principal of the journal, and its host (R12).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from spark_queue.core.definitions.keys import ADMINISTER, CHANGE, READ
from spark_queue.core.records import Incarnation, Ranges
from spark_queue.core.replies import Run

#: Longest error text that is kept with a message, in characters.
ERROR_TEXT_LIMIT = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The principal of a call's token; where there are none, the user of a host by its own word."""

    #: None where there are no principals.
    principal: str | None
    #: The address that the call came from, or the name of the user's host.
    host: str
    #: Whether records name the caller: for acts of people, not for those of streams for their subscription.
    signs: bool = False
    #: The user of the operating system; empty where a principal asks.
    user: str = ""

    def signature(self) -> Mapping[str, str]:
        """Return the caller, as records keep it."""
        return (
            {"user": self.user, "host": self.host} if self.principal is None else {"principal": self.principal, "host": self.host}
        )


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """The user of an operating system, and its host, that ask, by the word of the calling side."""

    user: str
    host: str


#: Version of the form of commands and replies.
COMMAND_VERSION = 1


class Command(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all commands.

    Attributes
    ----------
    journal : str
        Id of the journal that its caller means; empty for a caller that holds the engine itself.
    request : str
        Id of this call, the same when it is made again because its reply was lost; empty for one that is made once.
    version : int
        Version of its form; the coordinator refuses another by name.
    asker : Asker or None
        The asker of a change, for the log of a journal without principals.
    """

    #: The right that its caller needs; None for a command that every caller with a known token may give.
    right: ClassVar[str | None] = ADMINISTER
    #: The field with the subject of the right; None for the whole journal.
    subject: ClassVar[str | None] = None
    #: Whether the user who runs the coordinator may ask it, too.
    is_hosts: ClassVar[bool] = False
    #: The field of its filter, how errors name that one, and whether it is asked of dead letters; None for as its queue is.
    filter_field: ClassVar[str | None] = None
    filter_of: ClassVar[str] = ""
    of_letters: ClassVar[bool | None] = None
    #: Whether the answer may take long, since its work grows with the journal.
    is_long: ClassVar[bool] = False

    journal: str = ""
    request: str = ""
    version: int = COMMAND_VERSION
    asker: Asker | None = None


class ChangeCommand(Command, frozen=True, kw_only=True):
    """Base of changes of a queue by hand."""

    right = CHANGE
    subject = "queue"

    queue: str


class SubscriptionCommand(Command, frozen=True, kw_only=True):
    """Base of the commands of a subscription."""

    right = READ
    subject = "queue"
    #: Whether it begins a subscription, and so needs none that is the caller's own.
    begins: ClassVar[bool] = False

    queue: str
    subscription: str


class PlannerCommand(SubscriptionCommand, frozen=True, kw_only=True):
    """Base of the commands of a planner: each names its incarnation and the number of the call, from 1 (P1)."""

    incarnation: Incarnation
    call: int


class OutcomeRows(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome for some bookmarks: the verdict of a batch function or a person, all the way to the core."""

    outcome: str
    ranges: Ranges = ()
    #: With cancel: how long to wait before the next delivery.
    retry_after_ms: int | None = None
    #: With cancel and expire: why, as a dead letter keeps it.
    error: str | None = None
    #: Settling by hand, and by a receiver: the lease under which the caller received the rows; None without one.
    lease: int | None = None
    #: From a receiver, with cancel: its function failed on each of them, which may be the fault of the function (DESIGN 15.12).
    failed: bool = False


class DrawIncarnation(SubscriptionCommand, frozen=True, kw_only=True):
    """A planner's first call; changes nothing. Answered with `Drawn`."""

    begins = True


class Attach(PlannerCommand, frozen=True, kw_only=True):
    """The planner becomes the owner of the subscription; the newest incarnation wins (P1). Answered with `Done`."""

    begins = True
    filter_field, filter_of, of_letters = "filter", "subscription '{0.subscription}'", False

    ack_mode: str
    max_backlog: int
    filter: str | None = None
    #: Of a receiver: the subscription ends with it (R140).
    ends: bool = False
    #: Fix the end of the queue now, and grant each message at most once under this incarnation (Trigger.AvailableNow).
    available_now: bool = False


class Next(PlannerCommand, frozen=True, kw_only=True):
    """Prove lease `finished` and grant the next one. Answered with `Granted` (lease equal to `finished` when nothing is there).

    Nothing is granted to a stream that reads by other columns than hold.

    The pieces come with the answer where `Rows` would tell the same and do nothing. For a receiver, `finished` is the newest lease
    that it knows of, which proves nothing (R135), and the answer says where its messages stand.
    """

    finished: int
    limit: int
    wait_ms: int = 0
    #: Whether the caller asks again where nothing is there: it may hear so by a look at the log that is some seconds old (P7).
    asks_again: bool = False
    #: Of a stream: the columns by which its rows are read, as Spark DDL; None where it has chosen some, which it keeps (R61).
    columns: str | None = None
    #: Of a receiver: messages that it works on, although their lease ends, or has ended, at its limit (R136).
    overrun: Ranges = ()
    #: Of a receiver: the semantics that it was told when it attached; it is granted nothing by others. None where it goes by none.
    at_most_once: bool | None = None


class Rows(PlannerCommand, frozen=True, kw_only=True):
    """The rows of a lease, resuming it under a newer incarnation (P2, P3). Answered with `RowsOf` and the pieces as Arrow."""

    lease: int


class RowsTaken(PlannerCommand, frozen=True, kw_only=True):
    """Spark was given the rows of a lease as they came with its grant (P1, P3). Answered with `Done`."""

    lease: int


class Renew(PlannerCommand, frozen=True, kw_only=True):
    """Extend a lease by one period. Answered with `Renewed`; `call` is 0, since renewals come from a thread of their own.

    For a receiver: every lease that it has in hand, up to this one (R136).
    """

    lease: int


class Leave(PlannerCommand, frozen=True, kw_only=True):
    """The planner ends (P6). Answered with `Done`; `call` is 0.

    A receiver gives everything back at once; what it had not begun counts no delivery (R137).
    """

    #: Of a stream: the newest lease of which Spark was given the rows; 0 for none.
    taken: int = 0
    #: Of a receiver: the messages that it had begun, and those that it keeps until it has ended them.
    begun: Ranges = ()
    keeps: Ranges = ()


class ReceiverPoll(msgspec.Struct, frozen=True, kw_only=True):
    """A poll of a receiver: a `Next` without the fields of the outcomes that it may come with."""

    incarnation: Incarnation
    call: int
    finished: int
    limit: int
    overrun: Ranges = ()
    at_most_once: bool | None = None

    def to_next(self, **about: Any) -> Next:
        """Return it as a call of its own, with its queue and subscription."""
        return Next(
            incarnation=self.incarnation, call=self.call, finished=self.finished, limit=self.limit, overrun=self.overrun,
            at_most_once=self.at_most_once, **about,
        )  # fmt: skip


class SettleHeld(SubscriptionCommand, frozen=True, kw_only=True):
    """Outcomes of messages that a receiver had, each by its lease, which act at once (R132). Answered with `HeldSettled`."""

    outcomes: tuple[OutcomeRows, ...]
    #: A poll that comes with them, and never waits: the room that they free is there for it, and one commit is for both (R135).
    poll: ReceiverPoll | None = None

    def to_next(self) -> Next | None:
        """Return the poll that comes with them as a call of its own; None where none does."""
        return None if self.poll is None else self.poll.to_next(queue=self.queue, subscription=self.subscription)


class StartRun(SubscriptionCommand, frozen=True, kw_only=True):
    """fn is about to run (P4, P6). Answered with `RunStarted`."""

    #: Whether fn's rows are appended to a sink: then the reply names the attempts that are in doubt there (R125).
    sink: bool = False


class EndRun(SubscriptionCommand, frozen=True, kw_only=True):
    """fn returned or raised; stages outcomes (P4, P5, P6). Answered with `Done`."""

    run: Run
    outcomes: tuple[OutcomeRows, ...] = ()
    #: The error that fn raised; None when it returned.
    error: str | None = None
    #: With an error, or `stopped`: Spark goes on, and the whole batch is given back (`on_error="cancel"`).
    cancel: bool = False
    #: fn was ended from outside, which says nothing about the messages.
    stopped: bool = False
    #: Settle now instead of staging (`ack_early`).
    settle: bool = False


class Prove(SubscriptionCommand, frozen=True, kw_only=True):
    """Spark committed the batch of the run's lease (the listener's report). Answered with `Done`."""

    run: Run


class Prepare(SubscriptionCommand, frozen=True, kw_only=True):
    """The rows of the run's fn are staged and about to be committed to a sink (R123). Answered with `Prepared`."""

    run: Run
    #: The sink as people name it, and the id that tells it from another of that name.
    table: str
    table_id: str
    #: The newest version of the subscription's transaction id there; -1 where there is none.
    transaction_version: int = -1
    #: The outcomes of the rows that are not in the commit; all others are acknowledged by it.
    outcomes: tuple[OutcomeRows, ...] = ()


class AttemptCommand(SubscriptionCommand, frozen=True, kw_only=True):
    """Base of statements about an attempt to append to a sink, by the wrapper that made it or by its judge (R125)."""

    right = CHANGE

    attempt: int
    #: Whether its judge could not read the sink.
    forced: bool = False


class Landed(AttemptCommand, frozen=True, kw_only=True):
    """The attempt stands in its sink. Answered with `Done`."""

    #: The version of the table by which it does; None where that is not known.
    table_version: int | None = None


class Fenced(AttemptCommand, frozen=True, kw_only=True):
    """The attempt does not stand in its sink, and never will. Answered with `Done`."""


class SinkUnreadable(SubscriptionCommand, frozen=True, kw_only=True):
    """Nobody could decide about the attempt, since its sink cannot be read or not be fenced. Answered with `Done`."""

    right = CHANGE

    attempt: int
    #: The reason; the code and the next step are those of the error that the caller raises.
    error: str
    #: Whether it could be read, and the fence could not be written.
    read: bool = False


class FindAttempts(ChangeCommand, frozen=True, kw_only=True):
    """Name the attempts of a queue, or of one subscription, that are in doubt. Answered with `Attempts`; changes nothing."""

    subscription: str | None = None


class Settle(ChangeCommand, frozen=True, kw_only=True):
    """Outcomes given by hand, in effect all or none (R36 to R39, DESIGN 15.1). Answered with `Settled`."""

    outcomes: tuple[OutcomeRows, ...]
    #: Also what another instance owns, whether that one lives or not.
    of_owner: bool = False


class SettleWhere(ChangeCommand, frozen=True, kw_only=True):
    """One outcome for every message that matches a filter (R37). Answered with `Settled`."""

    is_long = True
    filter_field, filter_of = "where", "a settlement"

    where: str
    outcome: str
    #: With cancel: how long the messages wait; None as the queue says.
    retry_after_ms: int | None = None
    #: With cancel and expire: why, as a dead letter keeps it.
    error: str | None = None
    #: Also what another instance owns, whether that one lives or not.
    of_owner: bool = False


class Purge(ChangeCommand, frozen=True, kw_only=True):
    """Remove the messages that are not leased, or those of them that match a filter. Answered with `Purged`."""

    is_long = True
    filter_field, filter_of = "where", "a purge"

    where: str | None = None


class FindDeadLetters(ChangeCommand, frozen=True, kw_only=True):
    """Name the dead letters of a queue, or those that match a filter. Answered with `DeadLetters`; changes nothing."""

    is_long = True
    filter_field, filter_of, of_letters = "where", "a redrive", True

    where: str | None = None


class Redrive(ChangeCommand, frozen=True, kw_only=True):
    """Give dead letters back to their queue. Answered with `Redriven`."""

    ranges: Ranges


class Apply(Command, frozen=True, kw_only=True):
    """Replace the whole set of definitions. Answered with `Done`."""

    is_long = True

    definitions: dict[str, Any]
    #: Queues whose recovery point is drawn anew.
    reset: tuple[str, ...] = ()
    #: The digest of the definitions that its caller has compared them with; None where nothing was compared.
    planned_on: str | None = None


class Unsubscribe(SubscriptionCommand, frozen=True, kw_only=True):
    """End a subscription; its leases return. Answered with `Done`."""

    right = CHANGE


class Pause(ChangeCommand, frozen=True, kw_only=True):
    """Grant nothing from now on. Answered with `Done`."""


class Unpause(ChangeCommand, frozen=True, kw_only=True):
    """Grant again. Answered with `Done`."""


class Revive(Command, frozen=True, kw_only=True):
    """Take a queue back in that was set aside: its log is folded again. Answered with `Done`, or with the fault that lasts."""

    queue: str


class Follow(Command, frozen=True, kw_only=True):
    """Let a message type that was set aside go on elsewhere in the log of its table (R148). Answered with `Done`."""

    message_type: str
    #: The first version of the table that enters; None for what is committed next.
    first: int | None = None


class GiveUpFiles(Command, frozen=True, kw_only=True):
    """Count the messages as lost whose files the store of a followed table does not have, and fold the log again (R155).

    Answered with `Done`.
    """

    message_type: str


class ForgetLost(Command, frozen=True, kw_only=True):
    """Remove the dead letters of lost messages of a followed table, since somebody knows of them (R155). Answered with `Done`."""

    message_type: str


class ProxiedTransfer(Command, frozen=True, kw_only=True):
    """Allow claims of messages of a queue with an owner that cannot be reached, or end that (R108). Answered with `Done`."""

    queue: str
    on: bool
    #: The owner of the messages; None for the only peer, and to end all of it.
    owner: str | None = None


class PeerCommand(Command, frozen=True, kw_only=True):
    """Base of operators' statements about a peer."""

    #: The name of its instance.
    peer: str


class SkipLost(PeerCommand, frozen=True, kw_only=True):
    """Go on with a peer without the messages that it let go before they were pulled (DESIGN 17.3). Answered with `Done`."""


class ResetPeer(PeerCommand, frozen=True, kw_only=True):
    """Accept the journal that a peer has now, and read it from its beginning. Answered with `Done`."""


class ForgetPeer(PeerCommand, frozen=True, kw_only=True):
    """A peer is gone for good: its messages are claimed, and nothing waits for it. Answered with `Forgotten`."""


class DrainTo(PeerCommand, frozen=True, kw_only=True):
    """Transfer own messages to a peer, but for leased ones; to be asked until nothing is left. Answered with `Drained`."""

    #: The record of the `Drained` before: whether the peer has pulled it is asked.
    record: int = -1


class ReturnWithout(PeerCommand, frozen=True, kw_only=True):
    """The instance returns, and waits no more until it has heard from a peer (R130). Answered with `Done`."""


class Restored(Command, frozen=True, kw_only=True):
    """The journal was restored from a backup: messages that enter it have another origin (DESIGN 17.3). Answered with `Done`."""

    #: UUID of the new origin.
    origin: str
    #: Number of the last record that it shares with the log that peers pulled before; None where one of its own peers knows it.
    after: int | None = None


QueueCommand = (
    DrawIncarnation | Attach | Next | Rows | RowsTaken | Renew | Leave | SettleHeld | StartRun | EndRun | Prove | Prepare | Landed
    | Fenced | SinkUnreadable
    | FindAttempts | Settle | SettleWhere | Purge | FindDeadLetters | Redrive | Unsubscribe | Pause | Unpause | ProxiedTransfer
)  # fmt: skip

#: Operators' statements about the instances of a journal, of no single queue.
InstanceCommand = SkipLost | ResetPeer | ForgetPeer | DrainTo | ReturnWithout | Restored

TableCommand = Follow | GiveUpFiles | ForgetLost

AnyCommand = QueueCommand | Apply | Revive | TableCommand | InstanceCommand
