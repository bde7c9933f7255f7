"""What a receiver has in hand: what is handed out next, what is lost, and which outcome goes under which lease."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from spark_queue.core.records import Outcome
from spark_queue.core.replies import RefusedRows
from spark_queue.errors import CallerError, LeaseError
from spark_queue.receiver.hand import Hand, ranges_of, to_outcomes
from spark_queue.receiver.message import Message, Settlement


class NoReceiver:
    """A receiver of which only its messages' names are asked."""

    queue = "Q"
    message_type = "json"

    def settle(self, message: Message, outcome: str, **about: object) -> Settlement:
        """Refuse: these tests say outcomes to the hand."""
        raise NotImplementedError


class Clock:
    """The monotonic clock, in seconds."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def messages(
    lease: int, rows: Iterable[int], *, keys: dict[int, int] | None = None, priorities: dict[int, int] | None = None,
    is_barrier: bool = False,
) -> list[Message]:  # fmt: skip
    """Make messages of a lease."""
    return [
        Message(
            NoReceiver(), None, 0, bookmark=row, lease=lease, delivery_count=1, cancel_count=0, is_barrier=is_barrier,  # type: ignore[arg-type]  # Nobody reads a body.
            key=None if keys is None else keys.get(row), priority=None if priorities is None else priorities.get(row),
        )
        for row in rows
    ]  # fmt: skip


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hand(clock: Clock) -> Hand:
    return Hand("Q", max_backlog=10, clock_s=clock)


def taken(hand: Hand) -> list[int]:
    """Take all messages that may begin now."""
    return [each.bookmark for each in iter(hand.take, None)]


def say(hand: Hand, row: int, outcome: Outcome = Outcome.ACKNOWLEDGE) -> Settlement:
    """Say the outcome of a message in work."""
    return hand.say(next(each for each in hand.messages_in_work() if each.bookmark == row), outcome)


def renewed(hand: Hand, newest: int, standing: Sequence[int], *, until_s: float) -> list[Message]:
    """Renew all leases up to one a minute before they would end."""
    return hand.renewed(newest, dict.fromkeys(standing, 60.0), asked_s=until_s - 60, period_s=60)


def test_messages_are_handed_out_in_their_order_and_fetched_anew_when_half_is_free(hand: Hand) -> None:
    hand.add(1, messages(1, range(10)), until_s=60)
    assert (hand.room, hand.wants_more) == (0, False)
    for row in range(5):
        assert not hand.wants_more
        message = hand.take()
        assert message is not None
        assert message.bookmark == row
        _ = say(hand, row)
    assert (hand.room, hand.wants_more, hand.waiting, hand.unanswered) == (5, True, 5, 5)


def test_once_nothing_is_left_to_hand_out_more_is_asked_for_as_soon_as_there_is_room(hand: Hand) -> None:
    """Before it would be in vain; the coordinator counts what is leased (R135)."""
    hand.add(1, messages(1, range(10)), until_s=60)
    assert taken(hand) == list(range(10))
    assert not hand.wants_more
    _ = say(hand, 4)
    assert (hand.room, hand.wants_more, hand.limit) == (1, True, 10)


def test_one_call_asks_for_no_more_than_its_answer_can_hold() -> None:
    hand = Hand("Q", max_backlog=1_000_000)
    assert (hand.room, hand.limit) == (1_000_000, 10_000)
    hand.add(1, messages(1, range(10_000)), until_s=60)
    assert (hand.wants_more, hand.limit) == (True, 10_000)


def test_beside_lost_messages_no_more_is_asked_for_than_there_is_room_for(hand: Hand) -> None:
    """The coordinator does not count them any more, but they are in work."""
    hand.add(1, messages(1, range(10)), until_s=60)
    taken(hand)
    assert len(renewed(hand, 1, [], until_s=60)) == 10
    assert (hand.room, hand.wants_more) == (0, False)
    _ = say(hand, 3)
    assert (hand.wants_more, hand.limit) == (True, 1)


def test_a_message_is_settled_once(hand: Hand) -> None:
    hand.add(1, messages(1, [7]), until_s=60)
    message = hand.take()
    assert message is not None
    _ = hand.say(message, Outcome.CANCEL)
    with pytest.raises(CallerError, match=r"OUTCOME_INVALID.*bookmark 7 was settled before, as 'cancel'"):
        _ = hand.say(message, Outcome.ACKNOWLEDGE)


def test_outcomes_that_are_alike_travel_together(hand: Hand) -> None:
    hand.add(1, messages(1, [0, 1, 2, 5]), until_s=60)
    hand.add(2, messages(2, [8]), until_s=60)
    taken(hand)
    for row in (5, 0, 1, 8):
        _ = say(hand, row)
    _ = say(hand, 2, Outcome.CANCEL)
    found = [(each.lease, each.outcome, each.ranges) for each in to_outcomes(hand.take_said())]
    assert found == [(1, "acknowledge", ((0, 2), (5, 6))), (2, "acknowledge", ((8, 9),)), (1, "cancel", ((2, 3),))]


def test_a_refused_outcome_is_told_with_its_reason_and_others_succeed(hand: Hand) -> None:
    hand.add(1, messages(1, [0, 1]), until_s=60)
    taken(hand)
    lost, done = say(hand, 0), say(hand, 1)
    said = hand.take_said()
    refused = [RefusedRows(lease=1, ranges=((0, 1),), reason="leased", holder="other")]
    assert [each.bookmark for each in hand.answer(said, refused)] == [0]
    done.result(0)
    with pytest.raises(LeaseError, match=r"MESSAGE_LOST.*lease 1: subscription .other. was leased it since"):
        lost.result(0)
    assert (hand.settled, hand.lost, hand.is_empty) == (1, 1, True)


def test_nobody_waits_for_an_answer_for_longer_than_asked(hand: Hand) -> None:
    hand.add(1, messages(1, [0]), until_s=60)
    taken(hand)
    with pytest.raises(TimeoutError):
        say(hand, 0).result(0.01)


def test_of_a_key_one_message_is_handed_out_at_a_time_in_order(hand: Hand) -> None:
    """R139."""
    hand.add(1, messages(1, range(5), keys={0: 1, 1: 1, 2: 2, 3: 1}), until_s=60)
    assert taken(hand) == [0, 2, 4]
    _ = say(hand, 0)
    assert taken(hand) == [1]
    _ = say(hand, 1, Outcome.EXPIRE)
    assert taken(hand) == [3]
    _ = say(hand, 3)
    hand.add(2, messages(2, [9], keys={9: 1}), until_s=60)
    assert taken(hand) == [9]


def test_behind_a_cancelled_message_everything_of_its_key_is_let_go_at_once(hand: Hand) -> None:
    """R139: from the cancel on, not from the answer."""
    hand.add(1, messages(1, range(4), keys={0: 1, 1: 1, 3: 1}), until_s=60)
    assert taken(hand) == [0, 2]
    _ = say(hand, 0, Outcome.CANCEL)
    assert taken(hand) == []
    assert (hand.in_work, hand.waiting) == (1, 0)
    hand.answer(hand.take_said(), [])
    hand.add(2, messages(2, [0, 1, 3], keys={0: 1, 1: 1, 3: 1}), until_s=60)
    assert taken(hand) == [0]


def test_the_highest_priority_is_handed_out_first_and_the_oldest_of_it_whatever_lease_it_came_with(hand: Hand) -> None:
    """R66: NULL comes last, 0 before it, and a 64-bit value keeps its digits."""
    hand.add(1, messages(1, range(5), priorities={0: 1, 1: 2**64 - 1, 3: 0, 4: 2**64 - 2}), until_s=10)
    assert [each.bookmark for each in (hand.take(), hand.take()) if each] == [1, 4]
    hand.add(2, messages(2, [6, 5], priorities={6: 1, 5: 2}), until_s=10)
    assert taken(hand) == [5, 0, 6, 3, 2]


def test_a_message_that_came_again_has_the_place_of_its_priority(hand: Hand) -> None:
    hand.add(1, messages(1, [0], priorities={0: 9}), until_s=10)
    assert taken(hand) == [0]
    _ = hand.say(hand.messages_in_work()[0], Outcome.CANCEL)
    said = hand.take_said()
    hand.add(2, messages(2, [0, 1, 2], priorities={0: 9, 1: 3, 2: 10}), until_s=10)
    hand.answer(said, ())
    assert taken(hand) == [2, 0, 1]


def test_nothing_begins_after_the_end_of_its_lease_before_a_renewal(hand: Hand, clock: Clock) -> None:
    """R136."""
    hand.add(1, messages(1, [0]), until_s=60)
    hand.add(2, messages(2, [1]), until_s=90)
    clock.now_s = 60
    assert taken(hand) == []
    assert hand.wants_renewal
    assert renewed(hand, 2, [1, 2], until_s=120) == []
    assert taken(hand) == [0, 1]
    assert not hand.wants_renewal


def test_what_no_renewal_names_is_dropped_and_what_is_in_work_is_lost(hand: Hand) -> None:
    """R136: a lease that came after the renewal was asked for stands."""
    hand.add(1, messages(1, [0, 1], keys={0: 1, 1: 1}), until_s=60)
    hand.add(2, messages(2, [2]), until_s=60)
    first = hand.take()
    assert first is not None
    hand.add(3, messages(3, [3]), until_s=60)
    lost = renewed(hand, 2, [2], until_s=90)
    assert (lost, first.is_lost) == ([first], True)
    assert taken(hand) == [2, 3]
    assert renewed(hand, 3, [2, 3], until_s=90) == []
    # It may still be acknowledged, and nothing of its key waits any more.
    _ = hand.say(first, Outcome.ACKNOWLEDGE)
    hand.add(4, messages(4, [1], keys={1: 1}), until_s=90)
    assert taken(hand) == [1]


def test_what_is_granted_again_to_who_works_on_it_goes_on_under_the_new_lease(hand: Hand) -> None:
    """R136."""
    hand.add(1, messages(1, [0, 1]), until_s=60)
    working = hand.take()
    assert working is not None
    renewed(hand, 1, [], until_s=90)
    assert working.is_lost
    hand.add(2, messages(2, [0, 1]), until_s=120)
    assert (working.lease, working.is_lost) == (2, False)
    assert taken(hand) == [1]
    _ = hand.say(working, Outcome.ACKNOWLEDGE)
    assert [each.lease for each in hand.take_said()] == [2]


def test_what_runs_beyond_the_limit_of_its_lease_is_named_until_it_is_settled(hand: Hand, clock: Clock) -> None:
    """R136: the lease of one was extended for less than a period, so it ends although its receiver lives."""
    hand.add(1, messages(1, [0, 1]), until_s=60)
    hand.add(2, messages(2, [2]), until_s=60)
    assert taken(hand) == [0, 1, 2]
    assert hand.overrun() == ()
    assert hand.renewed(2, {1: 20.0, 2: 60.0}, asked_s=40, period_s=60) == []
    assert hand.overrun() == ((0, 2),), "also before it ends: the next poll may wait until then"
    clock.now_s = 61
    assert [each.bookmark for each in hand.renewed(2, {2: 60.0}, asked_s=61, period_s=60)] == [0, 1]
    assert hand.overrun() == ((0, 2),)
    _ = say(hand, 0)
    assert hand.overrun() == ((1, 2),)


def test_what_was_lost_by_silence_may_come_to_its_receiver_again(hand: Hand, clock: Clock) -> None:
    """R136: it goes on under the new lease, and nobody else works on it, too."""
    hand.add(1, messages(1, [0]), until_s=60)
    taken(hand)
    clock.now_s = 100
    assert len(renewed(hand, 1, [], until_s=160)) == 1
    assert hand.overrun() == ()


def test_no_message_begins_behind_the_limit_of_its_lease(hand: Hand, clock: Clock) -> None:
    hand.add(1, messages(1, [0]), until_s=60)
    hand.renewed(1, {1: 5.0}, asked_s=50, period_s=60)
    clock.now_s = 56
    assert hand.take() is None
    assert hand.wants_renewal


def test_an_outcome_that_was_refused_under_the_old_lease_is_said_under_the_new_one(hand: Hand) -> None:
    """R136: the message was granted again while its outcome was under way."""
    hand.add(1, messages(1, [0]), until_s=60)
    taken(hand)
    settlement = say(hand, 0)
    said = hand.take_said()
    hand.add(2, messages(2, [0]), until_s=120)
    assert taken(hand) == []
    assert hand.answer(said, [RefusedRows(lease=1, ranges=((0, 1),), reason="leased", holder="s")]) == []
    assert not settlement.is_done
    again = hand.take_said()
    assert [(each.lease, each.outcome) for each in again] == [(2, "acknowledge")]
    hand.answer(again, [])
    settlement.result(0)


def test_a_message_that_was_cancelled_and_granted_again_is_a_delivery_of_its_own(hand: Hand) -> None:
    hand.add(1, messages(1, [0]), until_s=60)
    taken(hand)
    _ = say(hand, 0, Outcome.CANCEL)
    said = hand.take_said()
    hand.add(2, messages(2, [0]), until_s=120)
    assert taken(hand) == []
    hand.answer(said, [])
    assert taken(hand) == [0]


def test_a_message_that_kills_begins_after_a_renewal_that_names_its_lease(hand: Hand) -> None:
    """R138."""
    hand.add(4, messages(4, [0]), until_s=60, alone=True)
    assert taken(hand) == []
    assert hand.wants_renewal
    renewed(hand, 3, [], until_s=60)
    assert taken(hand) == []
    renewed(hand, 4, [4], until_s=60)
    assert taken(hand) == [0]


def test_a_barrier_is_no_lease_that_could_end(hand: Hand, clock: Clock) -> None:
    hand.add(1, messages(1, [0], is_barrier=True), until_s=60)
    assert not hand.has_leases
    clock.now_s = 100
    assert renewed(hand, 1, [], until_s=160) == []
    assert taken(hand) == [0]


def test_at_most_once_nothing_is_lost_and_nothing_is_too_late(clock: Clock) -> None:
    """R140: nobody else will ever have it."""
    hand = Hand("Q", max_backlog=10, clock_s=clock)
    hand.add(1, messages(1, [0, 1]), until_s=60, at_most_once=True)
    assert hand.take() is not None
    clock.now_s = 100
    assert renewed(hand, 1, [], until_s=160) == []
    assert taken(hand) == [1]


def test_what_came_at_most_once_stays_whatever_the_queue_is_by_now(hand: Hand, clock: Clock) -> None:
    """R140: a stop, a start that ended and the end of its lease let go of the others alone."""
    hand.add(1, messages(1, [0, 1, 2]), until_s=60, at_most_once=True)
    hand.add(2, messages(2, [3, 4]), until_s=60)
    assert renewed(hand, 2, [1, 2], until_s=90) == []
    assert (hand.has_removed, hand.lose_all()) == (True, [])
    hand.add(3, messages(3, [5]), until_s=60)
    clock.now_s = 100
    hand.drop_waiting()
    assert [each.bookmark for _ in range(3) if (each := hand.take(only_removed=True)) is not None] == [0, 1, 2]
    assert not hand.has_removed
    hand.add(4, messages(4, [6]), until_s=160)
    assert hand.take(only_removed=True) is None
    assert taken(hand) == [6]


def test_all_is_lost_when_the_subscription_has_ended(hand: Hand) -> None:
    hand.add(5, messages(5, [0, 1]), until_s=60)
    working = hand.take()
    assert hand.lose_all() == [working]
    assert (hand.waiting, hand.in_work, hand.newest) == (0, 1, 0)


def test_a_stop_lets_go_of_what_waits_and_keeps_what_is_in_work(hand: Hand) -> None:
    hand.add(1, messages(1, range(4), keys={0: 1, 1: 1}), until_s=60)
    assert hand.take() is not None
    hand.drop_waiting()
    assert (hand.waiting, hand.begun(), taken(hand)) == (0, ((0, 1),), [])


def test_what_was_handed_out_too_soon_goes_back_to_its_place(hand: Hand) -> None:
    hand.add(1, messages(1, range(3)), until_s=60)
    first = hand.take()
    assert first is not None
    hand.put_back([first])
    assert taken(hand) == [0, 1, 2]


def test_outcomes_fail_together_once_nothing_more_will_be_settled(hand: Hand) -> None:
    hand.add(1, messages(1, [0, 1]), until_s=60)
    taken(hand)
    sent = say(hand, 0)
    hand.take_said()
    waits = say(hand, 1)
    trouble = LeaseError("MESSAGE_LOST", outcome="x", bookmark=1, queue="Q", lease=1, reason="x")
    hand.fail(trouble)
    for each in (sent, waits):
        with pytest.raises(LeaseError):
            each.result(0)
    assert hand.unanswered == 0


def test_what_is_said_after_a_failure_is_answered_at_once(hand: Hand) -> None:
    """Nobody is left who would send it: who waits for it would wait for ever."""
    hand.add(1, messages(1, [0, 1]), until_s=60)
    taken(hand)
    _ = say(hand, 0)
    said = hand.take_said()
    hand.fail(LeaseError("SUBSCRIPTION_TAKEN", subscription="s", queue="Q", newest=[1, 2], own=[1, 1]))
    with pytest.raises(LeaseError, match="SUBSCRIPTION_TAKEN"):
        say(hand, 1).result(0)
    # The answer to the call that was under way comes too late to be told.
    assert hand.answer(said, []) == []
    assert hand.unanswered == 0


def test_what_is_behind_a_message_that_comes_again_waits_for_its_outcome(hand: Hand) -> None:
    """R139: the poll that grants it again is answered before the call that cancelled it."""
    keys = {0: 1, 1: 1}
    hand.add(1, messages(1, [0, 1], keys=keys), until_s=60)
    assert taken(hand) == [0]
    _ = say(hand, 0, Outcome.CANCEL)
    said = hand.take_said()
    hand.add(2, messages(2, [0, 1], keys=keys), until_s=60)
    assert taken(hand) == []
    hand.answer(said, [])
    assert taken(hand) == [0]
    _ = say(hand, 0)
    assert taken(hand) == [1]


@pytest.mark.parametrize(("outcome", "then"), [(Outcome.CANCEL, []), (Outcome.EXPIRE, [1])])
def test_an_outcome_that_is_said_again_decides_about_those_behind_it(hand: Hand, outcome: Outcome, then: list[int]) -> None:
    """R136, R139."""
    keys = {0: 1, 1: 1}
    hand.add(1, messages(1, [0], keys=keys), until_s=60)
    assert taken(hand) == [0]
    _ = say(hand, 0, outcome)
    said = hand.take_said()
    hand.add(2, messages(2, [0, 1], keys=keys), until_s=60)
    assert hand.answer(said, [RefusedRows(lease=1, ranges=((0, 1),), reason="leased", holder="s")]) == []
    assert taken(hand) == then
    assert (hand.in_work, hand.waiting) == (len(then), 0)


def test_a_message_that_came_again_is_let_go_with_its_lease(hand: Hand) -> None:
    keys = {0: 1, 1: 1}
    hand.add(1, messages(1, [0], keys=keys), until_s=60)
    assert taken(hand) == [0]
    _ = say(hand, 0, Outcome.CANCEL)
    said = hand.take_said()
    hand.add(2, messages(2, [0], keys=keys), until_s=60)
    hand.add(3, messages(3, [1], keys=keys), until_s=60)
    assert renewed(hand, 3, [3], until_s=90) == []
    hand.answer(said, [])
    assert taken(hand) == [1]


def test_a_lost_message_is_counted_and_told_once_and_not_where_its_acknowledgement_counts(hand: Hand) -> None:
    """R133."""
    hand.add(1, messages(1, [0, 1, 2]), until_s=60)
    assert taken(hand) == [0, 1, 2]
    assert len(renewed(hand, 1, [], until_s=90)) == 3
    assert hand.lost == 3
    for row in range(2):
        _ = say(hand, row)
    refused = [RefusedRows(lease=1, ranges=((0, 1),), reason="leased", holder="other")]
    assert hand.answer(hand.take_said(), refused) == []
    assert (hand.settled, hand.lost) == (1, 2)
    hand.add(2, messages(2, [2]), until_s=120)
    assert hand.lost == 1


def test_no_call_has_more_text_than_fits(hand: Hand) -> None:
    hand = Hand("Q", max_backlog=3_000)
    hand.add(1, messages(1, range(3_000)), until_s=1e12)
    for message in iter(hand.take, None):
        _ = hand.say(message, Outcome.CANCEL, error="x" * 4_000)
    assert [len(hand.take_said()) for _ in range(4)] == [1_000, 1_000, 1_000, 0]


def test_a_goodbye_of_what_waits_keeps_what_has_no_answer_yet(hand: Hand) -> None:
    """Cancelled and expired messages have to be leased still once that arrives (R133)."""
    hand.add(1, messages(1, range(4)), until_s=60)
    for _ in range(3):
        assert hand.take() is not None
    _ = say(hand, 0, Outcome.EXPIRE)
    hand.take_said()
    _ = say(hand, 1, Outcome.CANCEL)
    hand.drop_waiting()
    assert (hand.kept(), hand.begun()) == (((0, 3),), ((2, 3),))


def test_an_event_loop_that_is_closed_is_told_nothing(hand: Hand) -> None:
    hand.add(1, messages(1, [0, 1]), until_s=60)
    taken(hand)
    given_up, other = say(hand, 0), say(hand, 1)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(given_up, 0.01)

    asyncio.run(give_up())
    hand.answer(hand.take_said(), [])
    other.result(0)


def test_bookmarks_become_ranges() -> None:
    assert ranges_of([5, 1, 2, 3, 9, 8]) == ((1, 4), (5, 6), (8, 10))
    assert ranges_of([]) == ()
