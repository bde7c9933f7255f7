"""What the receivers of random programs do: they fetch, settle each message by itself, renew, leave, die, and speak late."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.replies import HeldSettled
from spark_queue.errors import CallerError, LeaseError, SparkQueueError
from tests.model import journal, receiving
from tests.model.bodies import QUESTIONS
from tests.model.consumers import SUBSCRIPTIONS, Consumers, Who
from tests.model.definitions import LETTER_QUEUES
from tests.model.receiving import Fate, Said

#: Names of receivers; those of queries become theirs at times, and the other way round.
RECEIVERS = ("r1", "r2", *SUBSCRIPTIONS)

#: What one receiver does in a row.
ACTS = (
    *("publish", "fetch", "fetch", "fetch", "lose", "renew", "live on", "wait", "wait"),
    *("settle", "settle", "finish", "fail", "fail", "say all", "say all", "die", "die twice", "leave"),
)


class Receivers(Consumers):
    """Consumers without Spark beside queries, on both sides."""

    @initialize()
    def have_nothing(self) -> None:
        """Begin without receivers."""
        #: The newest lease that arrived at each present start; and every lease that ever arrived under a name, with its messages.
        self.newest: dict[Who, int] = {}
        self.had: dict[Who, list[tuple[int, set[int]]]] = {}
        #: Starts that a newer one took over from; and calls that settled, with their answer.
        self.superseded: list[tuple[Who, tuple[int, int]]] = []
        self.answered: list[tuple[commands.SettleHeld, dict[int, Fate]]] = []

    @rule(
        data=st.data(),
        queue=st.sampled_from("QQQRD"),
        name=st.sampled_from(RECEIVERS),
        ends=st.sampled_from([False, False, True]),
        available_now=st.sampled_from([False, False, False, True]),
    )
    def receive(self, data: st.DataObject, queue: str, name: str, *, ends: bool, available_now: bool) -> None:
        """Begin a receiver, or a newer start of its name, perhaps with other wishes and while the older one works."""
        if queue in self.model.queues:
            backlog = data.draw(st.sampled_from([0, 1, 3, 6, 9]))
            text = None if queue in LETTER_QUEUES else data.draw(st.sampled_from([None, None, "colour = 'red'"]))
            self.begin((queue, name), backlog=backlog, text=text, ends=ends, available_now=available_now)
            if data.draw(st.booleans()):
                self.fetch((queue, name), data.draw(st.integers(1, 5)))

    def begin(self, who: Who, *, backlog: int, text: str | None, ends: bool, available_now: bool) -> None:
        """Start a receiver, whose first call arrives twice (P1)."""
        queue, name = who
        known = self.model.queues[queue].subscriptions.get(name)
        if known is not None and known.receives:
            self.superseded.append((who, self.incarnations[who]))
        elif known is not None and known.open is not None:
            self.overtaken.append((who, self.incarnations[who], known.open.number))
        planner = self.incarnations[who] = self.decide(commands.DrawIncarnation(queue=queue, subscription=name)).incarnation
        self.gone.discard(who)
        self.ended.discard(who)
        self.proven.pop(who, None)
        self.calls[who], self.newest[who] = 1, 0
        place: dict[str, Any] = {"queue": queue, "subscription": name, "incarnation": planner, "call": 1}
        wishes: dict[str, Any] = {"max_backlog": backlog, "filter": text, "ends": ends, "available_now": available_now}
        attach = commands.Attach(**place, ack_mode="receive", **wishes)
        self.decide(attach)
        before = len(self.log)
        self.decide(attach)
        assert len(self.log) == before
        until, wanted = len(self.model.published) if available_now else None, None if text is None else QUESTIONS[text]
        asked: dict[str, Any] = {"backlog": backlog, "ends": ends, "filter": wanted, "until": until}
        journal.subscribe(self.model.queues[queue], name, planner, receives=True, **asked)
        self.model.settle_down()

    @precondition(lambda self: self._receivers())
    @rule(data=st.data(), limit=st.integers(1, 5), arrives=st.sampled_from([True, True, True, False]))
    def take_more(self, data: st.DataObject, limit: int, *, arrives: bool) -> None:
        """Let a receiver fetch, whose answer may be lost, perhaps while it works on something beyond the limit of its lease."""
        who = data.draw(st.sampled_from(self._receivers()))
        had = sorted({row for _, rows in self.had.get(who, ()) for row in rows if row in self._sides(who)[0].messages})
        overrun = data.draw(st.lists(st.sampled_from(had), max_size=2)) if had else []
        self.fetch(who, limit, arrives=arrives, overrun=overrun)

    @rule(data=st.data(), acts=st.lists(st.sampled_from(ACTS), min_size=4, max_size=14))
    def work_on(self, data: st.DataObject, acts: list[str]) -> None:
        """Let one receiver go on for a while: what it dies of or fails on comes again, until it is tried alone or is to blame."""
        known = [who for who in self._receivers() if self._sides(who)[1].backlog]
        who = data.draw(st.sampled_from(known)) if known else ("Q", "r1")
        if not known:
            self.begin(who, backlog=6, text=None, ends=False, available_now=False)
        if not self.model.queues[who[0]].having("available"):
            self.act(data, who, "publish")
        for act in acts:
            if who in self._receivers():
                self.act(data, who, act)

    def act(self, data: st.DataObject, who: Who, act: str) -> None:
        """Let a receiver do one thing."""
        match act:
            case "publish":
                colours = ["red"] * 3 + data.draw(st.sampled_from([["red"], ["black"], ["black", "red"]]))
                self.publish(
                    [
                        {"size": size, "colour": each, "expires_ms": None}
                        for size, each in zip((1, 2, 3, 2, 1), colours, strict=False)
                    ]
                )
            case "fetch" | "lose":
                self.fetch(who, data.draw(st.integers(1, 5)), arrives=act == "fetch")
            case "renew":
                self.renew_up_to(who, self.newest[who])
            case "live on":
                # As long as its messages take, within `lease_renewal_limit`.
                for _ in range(2):
                    self.tick(4_000)
                    if who in self._receivers():
                        self.renew_up_to(who, self.newest[who])
            case "wait":
                self.tick(data.draw(st.sampled_from([1_000, 3_000, 6_000, 11_000])))
            case "leave":
                self.say_goodbye(data, who)
            case "die" | "die twice":
                for _ in range(1 + (act == "die twice")):
                    self.die(who)
            case "say all":
                self.say_all(who)
            case _:
                self.settle_held(data, who, act)

    def say_all(self, who: Who) -> None:
        """Acknowledge the last messages that ever arrived: in time, late and in vain, in one call."""
        had = {row: number for number, rows in self.had.get(who, ()) for row in rows}
        said = [Said(lease=number, rows=frozenset([row]), outcome="acknowledge") for row, number in [*had.items()][-8:]]
        if said:
            self.say_held(who, _alike_together(said))

    def settle_held(self, data: st.DataObject, who: Who, act: str) -> None:
        """Settle what is in hand, or some of it, or fail on it."""
        queue, subscription = self._sides(who)
        hand = receiving.in_hand(queue, subscription, self.newest[who])
        held = [(each.number, row) for each in hand for row in sorted(each.rows if each.barrier else queue.outstanding(each))]
        if act == "settle":
            act = data.draw(st.sampled_from(["acknowledge", "acknowledge", "cancel", "expire"]))
            held = held[: data.draw(st.integers(1, 3))]
        outcome = {"finish": "acknowledge", "fail": "cancel"}.get(act, act)
        said = [Said(lease=number, rows=frozenset([row]), outcome=outcome, failed=act == "fail") for number, row in held]
        if said:
            self.say_held(who, _alike_together(said))

    @precondition(lambda self: self._receivers())
    @rule(data=st.data(), what=st.sampled_from(["renew", "renew", "die", "leave", "leave", "unsubscribe", "again"]))
    def live(self, data: st.DataObject, what: str) -> None:
        """Let a receiver renew, end in one way or another, or say again what it has said."""
        who = data.draw(st.sampled_from(self._receivers()))
        match what:
            case "renew":
                numbers = [number for number, _ in self.had.get(who, [])]
                self.renew_up_to(who, data.draw(st.sampled_from([self.newest[who], self.newest[who], *numbers])))
            case "die":
                self.die(who)
            case "leave":
                self.say_goodbye(data, who)
            case "unsubscribe":
                self.decide(commands.Unsubscribe(queue=who[0], subscription=who[1]))
                journal.unsubscribe(self._sides(who)[0], who[1])
                self.model.settle_down()
            case "again":
                self.repeat(data)

    @precondition(lambda self: self.had)
    @rule(data=st.data(), is_repeated=st.booleans())
    def settle_some(self, data: st.DataObject, *, is_repeated: bool) -> None:
        """Say outcomes of some messages that arrived under a name, in time or late, by its present start or an older one."""
        who = data.draw(st.sampled_from(sorted(self.had)))
        queue = self.model.queues.get(who[0])
        if queue is None:
            return
        subscription = queue.subscriptions.get(who[1])
        there = () if subscription is None else subscription.leases
        known = {(lease.number, row) for lease in there for row in lease.rows}
        # Mostly what it has in hand: what is over stays over.
        late = {(number, row) for number, rows in self.had[who] for row in rows if queue.messages.keys() >= {row}}
        places = sorted(known) * 3 + sorted(late - known)
        chosen: dict[int, Said] = {}
        for number, row in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=4)) if places else ():
            outcome = data.draw(st.sampled_from(["acknowledge", "acknowledge", "cancel", "cancel", "expire"]))
            failed = outcome == "cancel" and data.draw(st.booleans())
            due = self.now + 7_000 if outcome == "cancel" and not failed and data.draw(st.booleans()) else None
            chosen[row] = Said(lease=number, rows=frozenset([row]), outcome=outcome, due=due, failed=failed)
        if chosen:
            self.say_held(who, _alike_together(chosen.values()))
            if is_repeated:
                self.repeat(data)

    @precondition(lambda self: self.superseded)
    @rule(data=st.data(), what=st.sampled_from(["next", "renew", "leave"]))
    def speak_late(self, data: st.DataObject, what: str) -> None:
        """Let a receiver speak that a newer start has taken over from, or whose subscription is over: it changes nothing (P1)."""
        who, incarnation = data.draw(st.sampled_from(self.superseded))
        if who[0] not in self.model.queues or self.incarnations[who] == incarnation:
            return
        before = len(self.log)
        planner: dict[str, Any] = {"queue": who[0], "subscription": who[1], "incarnation": incarnation}
        late: dict[str, commands.AnyCommand] = {
            "next": commands.Next(**planner, call=99, finished=0, limit=5),
            "renew": commands.Renew(**planner, call=0, lease=10_000),
            "leave": commands.Leave(**planner, call=0),
        }
        try:
            reply = self.decide(late[what])
        except (LeaseError, CallerError):
            pass
        else:
            assert what != "next"
            assert what == "leave" or reply.leases == ()
        assert len(self.log) == before

    def fetch(self, who: Who, limit: int, *, arrives: bool = True, overrun: Collection[int] = ()) -> None:
        """Ask for more, but for some; what comes and does not arrive is given again (R135)."""
        self.now += 2
        self.pass_time()
        if who not in self._receivers():
            # It was made for a receiver that was silent for too long.
            return
        self.calls[who] += 1
        place: dict[str, Any] = {"queue": who[0], "subscription": who[1], "incarnation": self.incarnations[who]}
        finished = self.newest[who]
        asked: dict[str, Any] = {"finished": finished, "limit": limit, "overrun": tuple(to_ranges(BitMap64(overrun)))}
        poll = commands.Next(**place, call=self.calls[who], **asked)
        is_nothing_there = self.engine.has_nothing_for(poll, self.engine.state.ledger(who[0]).backlogs(), now_ms=self.now)
        granted = self.decide(poll)
        assert granted is None or not is_nothing_there
        queue, _ = self._sides(who)
        wanted = receiving.next_lease(queue, who[1], limit, finished, set(overrun))
        self.model.settle_down()
        assert (granted is None) == (wanted is None), (granted, wanted)
        if wanted is None:
            return
        lease = self.engine.state.ledger(who[0]).leases[granted.lease]
        assert (lease.number, set(lease.rows), lease.is_barrier) == (wanted.number, wanted.rows, wanted.barrier)
        # It begins only after a renewal that names it (R138).
        assert granted.alone == (not wanted.barrier and [queue.messages[row].kills for row in wanted.rows] == [True])
        if arrives:
            self.newest[who] = max(self.newest[who], wanted.number)
            self.had.setdefault(who, []).append((wanted.number, set(wanted.rows)))

    def say_held(self, who: Who, said: Sequence[Said]) -> None:
        """Settle under an id of its own, and remember the answer (R134)."""
        queue = self.model.queues[who[0]]
        outcomes = tuple(
            commands.OutcomeRows(
                outcome=each.outcome, ranges=tuple(to_ranges(BitMap64(each.rows))), lease=each.lease, failed=each.failed,
                retry_after_ms=None if each.due is None else each.due - self.now,
            )
            for each in said
        )  # fmt: skip
        request = f"request {len(self.log)} {len(self.answered)}"
        command = commands.SettleHeld(queue=who[0], subscription=who[1], outcomes=outcomes, request=request)
        if (code := receiving.is_refused(queue, who[1], said)) is not None:
            with pytest.raises(SparkQueueError, match=code):
                self.decide(command)
            return
        reply = self.decide(command)
        wanted = receiving.settle(queue, who[1], said)
        self.model.settle_down()
        assert _refused(reply) == wanted
        if self.engine.state.has_done(request):
            self.answered.append((command, wanted))

    def repeat(self, data: st.DataObject) -> None:
        """Say again what was said: it gets the first answer, and changes nothing (R134)."""
        if self.answered:
            command, wanted = data.draw(st.sampled_from(self.answered))
            before = len(self.log)
            if command.queue in self.model.queues:
                assert _refused(self.decide(command)) == wanted
            assert len(self.log) == before

    def renew_up_to(self, who: Who, newest: int) -> None:
        """Let a living receiver keep what it has in hand, up to a lease."""
        planner = self.incarnations[who]
        place: dict[str, Any] = {"queue": who[0], "subscription": who[1], "incarnation": planner}
        before = len(self.log)
        renewed = self.decide(commands.Renew(**place, call=0, lease=newest))
        assert len(self.log) <= before + 1
        assert list(renewed.leases) == receiving.renew(self._sides(who)[0], who[1], planner, newest)

    def say_goodbye(self, data: st.DataObject, who: Who) -> None:
        """Let a receiver leave, once and again, perhaps with messages that it keeps for a while."""
        queue, subscription = self._sides(who)
        held = sorted(row for lease in subscription.leases for row in lease.held)
        some = st.sets(st.sampled_from(held)) if held else st.just(set[int]())
        begun, keeps = data.draw(some), data.draw(st.sampled_from([True, False])) and data.draw(some)
        place: dict[str, Any] = {"queue": who[0], "subscription": who[1], "incarnation": self.incarnations[who]}
        ranges: dict[str, Any] = {"begun": tuple(to_ranges(BitMap64(begun))), "keeps": tuple(to_ranges(BitMap64(keeps or ())))}
        leave = commands.Leave(**place, call=0, **ranges)
        self.decide(leave)
        is_over = not subscription.left and receiving.leave(queue, who[1], begun, keeps or set())
        if is_over:
            journal.unsubscribe(queue, who[1])
        self.model.settle_down()
        if subscription.left and not is_over:
            self.gone.add(who)
            before = len(self.log)
            self.decide(leave)
            assert len(self.log) == before

    def die(self, who: Who) -> None:
        """End a receiver without a word; the next process of its name begins, and may fetch."""
        asked = self._sides(who)[1]
        text = next((text for text, question in QUESTIONS.items() if question is asked.filter), None)
        self.begin(who, backlog=asked.backlog, text=text, ends=asked.ends, available_now=False)
        self.fetch(who, 3)

    @invariant()
    def both_have_the_same_in_hand(self) -> None:
        """Compare the leases of receivers, until when they last, and their marks."""
        for name, queue in self.model.queues.items() if hasattr(self, "engine") else ():
            ledger = self.engine.state.queues[name]
            for message in queue.messages.values():
                assert ledger.marks.of(message.bookmark) == message.marks, (name, message)
            for who, subscription in queue.subscriptions.items():
                if not subscription.receives:
                    continue
                leases = [each for each in ledger.leases.values() if each.subscription == who]
                found = {
                    each.number: (set(ledger.outstanding(each)), each.due_at_ms) for each in leases if ledger.outstanding(each)
                }
                held = [each for each in subscription.leases if queue.outstanding(each)]
                assert found == {each.number: (queue.outstanding(each), each.due) for each in held}, (name, who)

    def _receivers(self) -> list[Who]:
        return [who for who in self._known(receives=True) if who not in self.gone]


def _alike_together(said: Iterable[Said]) -> list[Said]:
    """Return outcomes as they travel: those that are alike together."""
    alike: dict[Said, set[int]] = {}
    for each in said:
        key = Said(lease=each.lease, rows=frozenset(), outcome=each.outcome, due=each.due, failed=each.failed)
        alike.setdefault(key, set()).update(each.rows)
    return [
        Said(lease=each.lease, rows=frozenset(rows), outcome=each.outcome, due=each.due, failed=each.failed)
        for each, rows in alike.items()
    ]


def _refused(reply: HeldSettled) -> dict[int, Fate]:
    """Return which messages were refused their outcome, and why."""
    return {
        row: (str(each.reason), each.holder)
        for each in reply.refused
        for first, until in each.ranges
        for row in range(first, until)
    }
