"""What the consumers of random programs do: queries that begin, run, fail, vanish, and come again."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from pyroaring import BitMap64

from spark_queue.core.deciding.batch_runs import OutcomeOf
from spark_queue.core.records import Outcome
from spark_queue.errors import LeaseError
from tests.model import batches, journal
from tests.model.bodies import QUESTIONS
from tests.model.definitions import LETTER_QUEUES
from tests.model.machine import Machine
from tests.model.model import Queue
from tests.model.parts import Lease, Subscription

SUBSCRIPTIONS = ("s1", "s2", "s3")

#: A queue and a subscription of it.
Who = tuple[str, str]


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
        planner = self.incarnations[who] = self.engine.draw_incarnation()
        self.gone.discard(who)
        self.ended.discard(who)
        self.calls[who] = 1
        self.do(
            lambda: self.engine.attach(
                queue=queue, subscription=name, incarnation=planner, call=1, ack_mode="explicit" if explicit else "auto",
                max_backlog=backlog, filter_sql=text, available_now=available_now, now_ms=self.now,
            )
        )  # fmt: skip
        until, wanted = len(self.model.published) if available_now else None, None if text is None else QUESTIONS[text]
        known = self.model.queues[queue]
        journal.subscribe(known, name, planner, backlog=backlog, explicit=explicit, wanted=wanted, until=until)
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
            asked = self._sides(who)[1]
            text = next((text for text, question in QUESTIONS.items() if question is asked.filter), None)
            self.attach(who, backlog=asked.backlog, explicit=asked.explicit, text=text, available_now=False)
            self.read(who)

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

    @precondition(lambda self: self.overtaken)
    @rule(data=st.data(), what=st.sampled_from(["next", "rows", "renew", "leave", "end_run", "prove"]))
    def come_late(self, data: st.DataObject, what: str) -> None:
        """Let a planner speak, or its batch, that a newer one has overtaken: it changes nothing (P1)."""
        who, incarnation, lease = data.draw(st.sampled_from(self.overtaken))
        if who not in self._known() or self.incarnations[who] <= incarnation:
            return
        before = len(self.log)
        more: dict[str, Any] = {
            "next": {"call": 99, "finished": lease, "limit": 5},
            "rows": {"call": 99, "lease": lease},
            "leave": {},
        }
        arguments = more.get(what, {"lease": lease}) | ({"outcomes": []} if what == "end_run" else {})
        common = {"queue": who[0], "subscription": who[1], "incarnation": incarnation, "now_ms": self.now}
        try:
            self.do(lambda: getattr(self.engine, what)(**common, **arguments))
            is_refused = False
        except LeaseError:
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
            incarnation = self.incarnations[who]
            self.do(lambda: self.engine.leave(queue=who[0], subscription=who[1], incarnation=incarnation, now_ms=self.now))
            batches.leave(self._sides(who)[0], who[1])
        else:
            self.do(lambda: self.engine.unsubscribe(queue=who[0], subscription=who[1], now_ms=self.now))
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
        lease = self._planner("next", who, finished=finished, limit=limit)
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
        _, rows = self._planner("rows", who, lease=number)
        asked = (number, self.incarnations[who])
        wanted = batches.read(queue, who[1], number, again=self.asked.get(who) == asked)
        self.asked[who] = asked
        self.model.settle_down()
        assert set(rows) == wanted

    def say(self, data: st.DataObject, who: Who) -> None:
        """Let fn end, with an outcome for some rows; they count with the proof, or at once."""
        queue, subscription = self._sides(who)
        lease = self._start(who)
        if lease.failed or lease.undelivered:
            return
        outcome = data.draw(st.sampled_from(["acknowledge", "cancel", "expire"]))
        rows = set() if lease.barrier or not lease.rows else data.draw(st.sets(st.sampled_from(sorted(lease.rows))))
        due = self.now + 7_000 if outcome == "cancel" and data.draw(st.booleans()) else None
        outcomes = [OutcomeOf(outcome=Outcome(outcome), rows=BitMap64(rows), due_at_ms=due)] if rows else []
        settle = data.draw(st.sampled_from([False, False, True]))
        self._end(who, lease, outcomes=outcomes, settle=settle)
        self.ended.add(who)
        lease.running = False
        batches.say(lease, rows, outcome, due)
        if settle:
            batches.settle_all(queue, subscription, lease, rest="acknowledge")
        self.model.settle_down()

    def fail(self, data: st.DataObject, who: Who) -> None:
        """Let fn raise: the query ends, or gives its batch back."""
        lease = self._start(who)
        if who in self.ended or lease.undelivered:
            return
        lives_on = data.draw(st.booleans())
        self._end(who, lease, outcomes=[], error="boom", cancel=lives_on)
        lease.failed, lease.gives_back, lease.running = True, lives_on, not lives_on

    def prove(self, who: Who) -> None:
        """Let the listener say that Spark has committed the batch, if it has."""
        queue, subscription = self._sides(who)
        lease = subscription.open
        assert lease is not None
        if who not in self.ended and not lease.gives_back:
            return
        run: dict[str, Any] = {
            "queue": who[0],
            "subscription": who[1],
            "incarnation": self.incarnations[who],
            "lease": lease.number,
        }
        self.do(lambda: self.engine.prove(**run, now_ms=self.now))
        batches.prove(queue, who[1])
        self.proven[who] = lease.number
        self.ended.discard(who)
        self.model.settle_down()

    def renew(self, who: Who) -> None:
        """Let a living reader keep its lease."""
        queue, subscription = self._sides(who)
        lease = subscription.open
        assert lease is not None
        call: dict[str, Any] = {
            "queue": who[0],
            "subscription": who[1],
            "incarnation": self.incarnations[who],
            "lease": lease.number,
        }
        self.do(lambda: self.engine.renew(**call, now_ms=self.now))
        journal.renew(queue, lease)

    def _planner(self, method: str, who: Who, **arguments: Any) -> Any:
        self.calls[who] += 1
        common = {"queue": who[0], "subscription": who[1], "incarnation": self.incarnations[who], "call": self.calls[who]}
        return self.do(lambda: getattr(self.engine, method)(**common, now_ms=self.now, **arguments))

    def _start(self, who: Who) -> Lease:
        _, started = self.engine.start_run(queue=who[0], subscription=who[1], now_ms=self.now)
        lease = self._sides(who)[1].open
        assert lease is not None
        assert started is not None
        assert (started.number, started.is_barrier) == (lease.number, lease.barrier)
        return lease

    def _end(self, who: Who, lease: Lease, **said: Any) -> None:
        run: dict[str, Any] = {
            "queue": who[0],
            "subscription": who[1],
            "incarnation": self.incarnations[who],
            "lease": lease.number,
        }
        self.do(lambda: self.engine.end_run(**run, **said, now_ms=self.now))

    def _sides(self, who: Who) -> tuple[Queue, Subscription]:
        queue = self.model.queues[who[0]]
        return queue, queue.subscriptions[who[1]]

    def _known(self) -> list[Who]:
        return [(queue, name) for queue, each in self.model.queues.items() for name in sorted(each.subscriptions)]

    def _living(self) -> list[Who]:
        return [who for who in self._known() if who not in self.gone]

    def _busy(self) -> list[Who]:
        return [who for who in self._living() if self._sides(who)[1].open is not None]
