"""What the consumers of random programs do: queries that begin, run, fail, vanish, and come again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.replies import Run
from spark_queue.errors import CallerError, LeaseError, SparkQueueError
from tests.model import batches, journal
from tests.model.bodies import QUESTIONS
from tests.model.definitions import LETTER_QUEUES
from tests.model.machine import Machine
from tests.model.model import Queue
from tests.model.parts import Lease, Subscription

SUBSCRIPTIONS = ("s1", "s2", "s3")

#: A queue and a subscription of it.
Who = tuple[str, str]


def _place(who: Who) -> dict[str, Any]:
    return {"queue": who[0], "subscription": who[1]}


class Consumers(Machine):
    """Queries on both sides."""

    @rule(
        data=st.data(),
        queue=st.sampled_from("QQQRDE"),
        name=st.sampled_from(SUBSCRIPTIONS),
        explicit=st.sampled_from([False, False, True]),
        available_now=st.sampled_from([False, False, False, True]),
    )
    def subscribe(self, data: st.DataObject, queue: str, name: str, explicit: bool, available_now: bool) -> None:
        """Begin a subscription, or start its planner anew, perhaps with other wishes and in the middle of a batch."""
        if queue not in self.model.queues:
            return
        backlog = data.draw(st.integers(0, 6))
        text = None if queue in LETTER_QUEUES else data.draw(st.sampled_from([None, None, "colour = 'red'"]))
        self.attach((queue, name), backlog=backlog, explicit=explicit, text=text, available_now=available_now)

    def attach(self, who: Who, *, backlog: int, explicit: bool, text: str | None, available_now: bool) -> None:
        """Start a planner."""
        queue, name = who
        open_lease = self._sides(who)[1].open if name in self.model.queues[queue].subscriptions else None
        if who in self.incarnations and open_lease is not None:
            self.overtaken.append((who, self.incarnations[who], open_lease.number))
        planner = self.incarnations[who] = self.decide(commands.DrawIncarnation(**_place(who))).incarnation
        self.gone.discard(who)
        self.ended.discard(who)
        self.calls[who] = 1
        ack_mode = "explicit" if explicit else "auto"
        wishes: dict[str, Any] = {"ack_mode": ack_mode, "max_backlog": backlog, "filter": text, "available_now": available_now}
        self.decide(commands.Attach(**_place(who), incarnation=planner, call=1, **wishes))
        until, wanted = len(self.model.published) if available_now else None, None if text is None else QUESTIONS[text]
        known = self.model.queues[queue]
        if name in known.subscriptions and known.subscriptions[name].receives:
            # It ends as a receiver's, and begins anew.
            self.proven.pop(who, None)
        journal.subscribe(known, name, planner, backlog=backlog, explicit=explicit, filter=wanted, until=until)
        self.model.settle_down()

    @precondition(lambda self: self._living())
    @rule(data=st.data(), limit=st.integers(1, 5), is_told=st.sampled_from([True, True, True, False]))
    def poll(self, data: st.DataObject, limit: int, is_told: bool) -> None:
        """Let a planner ask for its next batch."""
        self.next(data.draw(st.sampled_from(self._living())), limit, is_told=is_told)

    @rule(data=st.data(), goes=st.sampled_from(["well", "well", "badly", "nowhere"]), more=st.booleans())
    def work(self, data: st.DataObject, goes: str, more: bool) -> None:
        """Let a query run one micro-batch, which fails, maybe, or vanishes; then it starts anew."""
        known = self._living()
        if not known:
            self.attach(("Q", "s1"), backlog=6, explicit=False, text=None, available_now=False)
        who = data.draw(st.sampled_from(known)) if known else ("Q", "s1")
        if more:
            self.publish([{"size": size, "colour": "red", "expires_ms": None} for size in (1, 2)])
        limit = data.draw(st.integers(2, 5))
        self.next(who, limit, is_told=True)
        if self._sides(who)[1].open is None:
            return
        self.read(who)
        if goes == "well":
            self.say(data, who)
        else:
            if goes == "badly":
                self.fail(data, who)
            self.attach_again(who)

    @precondition(lambda self: self._busy())
    @rule(data=st.data(), what=st.sampled_from(["read", "start", "say", "say", "fail", "prove", "prove", "renew"]))
    def batch(self, data: st.DataObject, what: str) -> None:
        """Let something of a batch happen by itself."""
        who = data.draw(st.sampled_from(self._busy()))
        match what:
            case "read":
                self.read(who)
            case "start":
                self._start(who).running = who not in self.ended
            case "say":
                self.say(data, who)
            case "fail":
                self.fail(data, who)
            case "prove":
                self.prove(who)
            case "renew":
                self.renew(who)

    @precondition(lambda self: self._busy())
    @rule(data=st.data(), ends=st.sampled_from(["proof", "proof", "lapse", "fence"]), passed_ms=st.sampled_from([0, 6_000, 30_000]))
    def append(self, data: st.DataObject, ends: str, passed_ms: int) -> None:
        """Let a batch be appended to a sink: in doubt while time passes and coordinators die, then landed or fenced."""
        who = data.draw(st.sampled_from(self._busy()))
        queue, subscription = self._sides(who)
        lease, incarnation = subscription.open, self.incarnations[who]
        assert lease is not None
        if lease.planner is not subscription.planner:
            return
        rows = data.draw(st.sets(st.sampled_from(sorted(lease.rows)))) if lease.rows else set()
        outcome = data.draw(st.sampled_from(["acknowledge", "cancel", "expire"]))
        left_out: dict[int, tuple[str, int | None]] = dict.fromkeys(rows, (outcome, None))
        said = commands.OutcomeRows(outcome=outcome, ranges=tuple(to_ranges(BitMap64(rows))))
        sink: dict[str, Any] = {"table": "booked", "table_id": "t", "outcomes": (said,) if rows else ()}
        try:
            attempt = self.decide(commands.Prepare(**_place(who), run=self._run(who, lease), **sink)).attempt
        except SparkQueueError:
            assert not batches.prepare(queue, who[1], left_out)
            return
        assert batches.prepare(queue, who[1], left_out)
        if passed_ms:
            self.now += passed_ms
            self.pass_time()
            self.crash(from_snapshot=data.draw(st.booleans()))
        self.decide((commands.Fenced if ends == "fence" else commands.Landed)(**_place(who), attempt=attempt))
        batches.decide(lease, left_out, landed=ends != "fence")
        if ends == "fence":
            # Its query fails, and starts anew.
            self.gone.add(who)
            self.ended.discard(who)
            self.attach_again(who)
            return
        if ends == "lapse":
            self.now += queue.rules.lease_ms
            self.pass_time()
            assert set(self._planner(commands.Rows, who, lease=lease.number).rows) == lease.rows
        self.decide(commands.Prove(**_place(who), run=Run(incarnation=incarnation, lease=lease.number)))
        batches.prove(queue, who[1])
        self.proven[who] = lease.number
        self.ended.discard(who)
        self.model.settle_down()

    def attach_again(self, who: Who) -> None:
        """Start a planner anew with the same wishes, which takes up what is open."""
        asked = self._sides(who)[1]
        text = next((text for text, question in QUESTIONS.items() if question is asked.filter), None)
        self.attach(who, backlog=asked.backlog, explicit=asked.explicit, text=text, available_now=False)
        self.read(who)

    @precondition(lambda self: self.overtaken)
    @rule(data=st.data(), what=st.sampled_from(["next", "rows", "renew", "leave", "end_run", "prove"]))
    def come_late(self, data: st.DataObject, what: str) -> None:
        """Let a planner speak, or its batch, that a newer one has overtaken: it changes nothing (P1)."""
        who, incarnation, lease = data.draw(st.sampled_from(self.overtaken))
        known = who[0] in self.model.queues and who[1] in self.model.queues[who[0]].subscriptions
        if not known or self.incarnations[who] <= incarnation:
            return
        before = len(self.log)
        planner: dict[str, Any] = {**_place(who), "incarnation": incarnation}
        run = Run(incarnation=incarnation, lease=lease)
        late: dict[str, commands.AnyCommand] = {
            "next": commands.Next(**planner, call=99, finished=lease, limit=5),
            "rows": commands.Rows(**planner, call=99, lease=lease),
            "renew": commands.Renew(**planner, call=0, lease=lease),
            "leave": commands.Leave(**planner, call=0),
            "end_run": commands.EndRun(**_place(who), run=run),
            "prove": commands.Prove(**_place(who), run=run),
        }
        try:
            self.decide(late[what])
            is_refused = False
        except (LeaseError, CallerError):
            is_refused = True
        assert is_refused or what in ("renew", "leave", "prove")
        assert len(self.log) == before

    @precondition(lambda self: self._known())
    @rule(data=st.data(), what=st.sampled_from(["leave", "leave", "unsubscribe"]))
    def end(self, data: st.DataObject, what: str) -> None:
        """Let a query end in good order, or its subscription for good."""
        who = data.draw(st.sampled_from(self._known()))
        if what == "leave":
            self.gone.add(who)
            self.decide(commands.Leave(**_place(who), incarnation=self.incarnations[who], call=0))
            batches.leave(self._sides(who)[0], who[1])
        else:
            self.decide(commands.Unsubscribe(**_place(who)))
            journal.unsubscribe(self._sides(who)[0], who[1])
            self.proven.pop(who, None)
        self.model.settle_down()

    def next(self, who: Who, limit: int, *, is_told: bool) -> None:
        """Prove what was given, and ask for more; or ask again, since the reply was lost."""
        queue, subscription = self._sides(who)
        self.now += 2
        self.pass_time()
        open_lease = subscription.open
        finished = open_lease.number if open_lease is not None and is_told else self.proven.get(who, 0)
        granted = self._planner(commands.Next, who, finished=finished, limit=limit)
        lease = None if granted is None else self.engine.state.ledger(who[0]).leases[granted.lease]
        wanted: Lease | None = open_lease
        if open_lease is not None and not is_told:
            batches.answer_again(queue, who[1])
        else:
            if open_lease is not None:
                batches.prove(queue, who[1])
                self.proven[who] = finished
                self.ended.discard(who)
            self.model.settle_down()
            wanted = queue.next(who[1], limit)
        self.model.settle_down()
        assert (lease is None) == (wanted is None), (lease, wanted)
        if lease is not None and wanted is not None:
            assert (lease.number, set(lease.rows)) == (wanted.number, wanted.rows)

    def read(self, who: Who) -> None:
        """Begin the batch: ask for its rows."""
        queue, subscription = self._sides(who)
        assert subscription.open is not None
        number = subscription.open.number
        rows = self._planner(commands.Rows, who, lease=number).rows
        asked = (number, self.incarnations[who])
        wanted = batches.read(queue, who[1], number, again=self.asked.get(who) == asked)
        self.asked[who] = asked
        self.model.settle_down()
        assert set(rows) == wanted

    def say(self, data: st.DataObject, who: Who) -> None:
        """Let fn end, with an outcome for some rows; they count with the proof, or at once."""
        queue, subscription = self._sides(who)
        lease = self._start(who)
        if lease.failed or lease.stopped or lease.undelivered:
            return
        outcome = data.draw(st.sampled_from(["acknowledge", "cancel", "expire"]))
        rows = set() if lease.barrier or not lease.rows else data.draw(st.sets(st.sampled_from(sorted(lease.rows))))
        wait_ms = 7_000 if outcome == "cancel" and data.draw(st.booleans()) else None
        due = None if wait_ms is None else self.now + wait_ms
        said = commands.OutcomeRows(outcome=outcome, ranges=tuple(to_ranges(BitMap64(rows))), retry_after_ms=wait_ms)
        settle = data.draw(st.sampled_from([False, False, True]))
        self._end(who, lease, outcomes=(said,) if rows else (), settle=settle)
        self.ended.add(who)
        lease.running, lease.returned_in = False, subscription.planner
        batches.say(lease, rows, outcome, due)
        if settle:
            batches.settle_all(queue, subscription, lease, rest="acknowledge")
        self.model.settle_down()

    def fail(self, data: st.DataObject, who: Who) -> None:
        """Let fn raise, or be stopped: the query ends, or gives its batch back."""
        lease = self._start(who)
        if who in self.ended or lease.undelivered:
            return
        lives_on, stopped = data.draw(st.booleans()), data.draw(st.booleans())
        self._end(who, lease, error=None if stopped else "boom", stopped=stopped, cancel=lives_on)
        if lease.rows:
            lease.failed, lease.stopped, lease.gives_back = not stopped, stopped, lives_on
        lease.running = not lives_on

    def prove(self, who: Who) -> None:
        """Let the listener say that Spark has committed the batch, if it has."""
        queue, subscription = self._sides(who)
        lease = subscription.open
        assert lease is not None
        if who not in self.ended and not lease.gives_back:
            return
        self.decide(commands.Prove(**_place(who), run=self._run(who, lease)))
        batches.prove(queue, who[1])
        self.proven[who] = lease.number
        self.ended.discard(who)
        self.model.settle_down()

    def renew(self, who: Who) -> None:
        """Let a living reader keep its lease."""
        queue, subscription = self._sides(who)
        lease = subscription.open
        assert lease is not None
        self.decide(commands.Renew(**_place(who), incarnation=self.incarnations[who], call=0, lease=lease.number))
        batches.renew(queue, lease)

    def _planner(self, kind: Callable[..., commands.AnyCommand], who: Who, **arguments: Any) -> Any:
        self.calls[who] += 1
        return self.decide(kind(**_place(who), incarnation=self.incarnations[who], call=self.calls[who], **arguments))

    def _start(self, who: Who) -> Lease:
        started = self.decide(commands.StartRun(**_place(who)))
        lease = self._sides(who)[1].open
        assert lease is not None
        # A barrier that was given up reads as an empty batch.
        assert (started.run.lease, started.is_barrier) == (lease.number, lease.barrier and bool(lease.rows))
        return lease

    def _end(self, who: Who, lease: Lease, **said: Any) -> None:
        self.decide(commands.EndRun(**_place(who), run=self._run(who, lease), **said))

    def _run(self, who: Who, lease: Lease) -> Run:
        return Run(incarnation=self.incarnations[who], lease=lease.number)

    def _sides(self, who: Who) -> tuple[Queue, Subscription]:
        queue = self.model.queues[who[0]]
        return queue, queue.subscriptions[who[1]]

    def _known(self, *, receives: bool = False) -> list[Who]:
        """Return the subscriptions of queries, or of receivers."""
        every = [(queue, name) for queue, each in self.model.queues.items() for name in sorted(each.subscriptions)]
        return [who for who in every if self._sides(who)[1].receives == receives]

    def _living(self) -> list[Who]:
        return [who for who in self._known() if who not in self.gone]

    def _busy(self) -> list[Who]:
        return [who for who in self._living() if self._sides(who)[1].open is not None]
