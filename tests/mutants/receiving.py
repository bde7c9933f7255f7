"""Bugs in what becomes of messages that receivers have: each rule of R131 to R140, weakened."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCENARIOS = ("tests/unit/core/test_scenarios.py",)
_WORLDS = ("tests/simulation/test_receivers.py",)
_HAND = ("tests/unit/receiver/test_hand.py",)
_CHILDREN = ("tests/integration/test_processing.py::test_a_child_of_the_function_ends_by_a_signal_as_ever",)

RECEIVING = (
    Mutant(
        "a receiver goes on by semantics that its queue has no more (R140)",
        "    if command.at_most_once not in (None, work.ledger.definition.at_most_once):\n",
        "    if False:\n",
        _SCENARIOS,
    ),
    Mutant(
        "what came at most once goes back with what did not (R140)",
        "                if not self._is_removed(each):\n",
        "                if True:\n",
        _HAND,
    ),
    Mutant(
        "messages of a queue that was reset are looked for among those of its old type",
        "(granted.message_type, granted.columns) != (self._bodies.message_type, self._bodies.columns)",
        "granted.columns != self._bodies.columns",
        ("tests/integration/test_receiving.py::test_a_receiver_goes_on_with_messages_of_another_type_once_its_queue_is_reset",),
    ),
    Mutant(
        "a value that Python does not have fails each message that was read with it",
        "                return column[row].as_py()\n",
        "                raise\n",
        ("tests/unit/receiver/test_bodies.py",),
    ),
    Mutant(
        "a batch expires a barrier, and all that was said beside it is refused",
        "            message.check_outcome(named)\n",
        "            pass\n",
        ("tests/integration/test_receiving.py::test_a_batch_expires_no_barrier_and_settles_nothing_then",),
    ),
    Mutant(
        "what receivers had counts as theirs again by other semantics (R133)",
        "        ledger.forget_ended_leases()\n",
        "        pass\n",
        _SCENARIOS,
    ),
    Mutant(
        "at most once an outcome is taken for a message that was given back before (R140)",
        "        return rows & work.ledger.rows[State.REMOVED] - work.ledger.barriers\n",
        "        return rows - work.ledger.barriers\n",
        _SCENARIOS,
    ),
    Mutant(
        "a receiver goes on with what an older start of its name had (R137)",
        "        for lease in _leases(work, known):\n            _end(work, lease, Return.DISCONNECTED)\n",
        "        pass\n",
        _SCENARIOS,
    ),
    Mutant(
        "a stream goes on with what a receiver of its name had (R131)",
        "    if known.receives != receives:\n",
        "    if known.receives and not known.receives:\n",
        _SCENARIOS,
    ),
    Mutant(
        "one message that is too late refuses those beside it (R132)",
        "    rows = rows & (settleable(work, lease) if is_acknowledged else lease.leased)\n",
        "    may = settleable(work, lease) if is_acknowledged else lease.leased\n"
        "    rows = rows if rows.issubset(may) else BitMap64()\n",
        _SCENARIOS,
    ),
    Mutant(
        "a cancel counts after the end of its lease (R133)",
        "(settleable(work, lease) if is_acknowledged else lease.leased)",
        "settleable(work, lease)",
        _SCENARIOS,
    ),
    Mutant(
        "an acknowledgement after the end of its lease is forgotten (R133)",
        "            may_come_late = receives and (lease.recoverable or self.outstanding(lease))\n",
        "            may_come_late = receives and self.outstanding(lease)\n",
        _SCENARIOS,
    ),
    Mutant(
        "a repeat is decided anew (R134)",
        "    commands.SettleHeld: Handling(receiving.settle_held, receiving.settled_held_before),\n",
        "    commands.SettleHeld: Handling(receiving.settle_held),\n",
        _SCENARIOS,
    ),
    Mutant(
        "a repeat hears nothing of refusals (R134)",
        "    return HeldSettled(refused=tuple(state.refused_of(command.request)))\n",
        "    return HeldSettled()\n",
        _SCENARIOS,
    ),
    Mutant(
        "a lease whose answer was lost is not given again (R135)",
        "    lease = next((each for each in in_hand if each.number > command.finished), None)\n",
        "    lease = None\n",
        _SCENARIOS,
    ),
    Mutant(
        "a renewal extends the newest lease alone (R136)",
        "and lease.number <= newest and self.is_open(lease)",
        "and lease.number == newest and self.is_open(lease)",
        _SCENARIOS,
    ),
    Mutant(
        "a renewal extends leases that have not arrived (R136)",
        "and lease.number <= newest and self.is_open(lease)",
        "and self.is_open(lease)",
        _SCENARIOS,
    ),
    Mutant(
        "what runs beyond the limit of its lease comes to its receiver again (R136)",
        "    return heads - overrun if overrun else heads\n",
        "    return heads\n",
        _SCENARIOS,
    ),
    Mutant(
        "what runs beyond the limit of its lease is kept for its receiver (R136)",
        " or bool(subscription.barriers) or bool(work.shares.overrun(subscription))\n",
        " or bool(subscription.barriers)\n",
        _SCENARIOS,
    ),
    Mutant(
        "a message begins behind the limit of its lease (R136)",
        "_Held(asked_s + stands_s, at_most_once=at_most_once, is_last=stands_s < period_s)",
        "_Held(asked_s + period_s, at_most_once=at_most_once, is_last=stands_s < period_s)",
        _HAND,
    ),
    Mutant(
        "what a later lease brings waits behind what is in hand, whatever its priority (R66)",
        "            self._ready = deque(sorted(self._ready, key=_rank_of))\n",
        "            self._ready = deque(sorted(self._ready, key=lambda each: (each.lease, *_rank_of(each))))\n",
        _HAND,
    ),
    Mutant(
        "a message without a priority comes before one of priority 0 (R66)",
        "    return (1 if message.priority is None else -message.priority, message.bookmark)\n",
        "    return (-(message.priority or 0), message.bookmark)\n",
        _HAND,
    ),
    Mutant(
        "a run is over while something of it is in hand (R135)",
        "known.run_until is None or ledger.leases_in_hand(known, newest=known.lease):\n",
        "known.run_until is None:\n",
        _SCENARIOS,
    ),
    Mutant(
        "a run is over while something is kept for it (R135)",
        " and (bool(pending(known)) or free_rows.is_withheld(work, known))\n",
        " and bool(pending(known))\n",
        _SCENARIOS,
    ),
    Mutant(
        "a poll that waits gets no barrier (R140)",
        "        if known.barriers:\n            return False\n",
        "",
        _SCENARIOS,
    ),
    Mutant(
        "a poll that waits gets no lease again whose answer was lost (R135)",
        "known.lease > poll.finished or session.call > poll.call",
        "session.call > poll.call",
        _SCENARIOS,
    ),
    Mutant(
        "a poll that waits gets nothing that has waited for its time (R42)",
        "        return bool(ledger.rows[State.AVAILABLE]) or any(due_ms <= now_ms for due_ms in ledger.delayed)\n",
        "        return bool(ledger.rows[State.AVAILABLE])\n",
        _SCENARIOS,
    ),
    Mutant(
        "a poll that comes with outcomes has no share of what its group is given (R32)",
        "            poll = call.request.to_next() if isinstance(call.request, commands.SettleHeld) else call.request\n",
        "            poll = call.request\n",
        ("tests/unit/coordinator/test_loop_receivers.py",),
    ),
    Mutant(
        "a poll that is refused refuses the outcomes that it came with (R132)",
        "        except SparkQueueError:\n            # Its receiver polls by itself next, and hears of it then.\n",
        "        except ZeroDivisionError:\n",
        ("tests/unit/coordinator/test_loop_receivers.py",),
    ),
    Mutant(
        "a superseded start renews the leases of its successor (R136)",
        "    if command.incarnation != subscription.incarnation:\n        return Renewed",
        "    if False:\n        return Renewed",
        _SCENARIOS,
    ),
    Mutant(
        "what was not begun counts as delivered after a goodbye (R137)",
        "((back & begun, False), (back - begun, True))",
        "((back & begun, False), (back - begun, False))",
        _SCENARIOS,
    ),
    Mutant(
        "a silent end counts a delivery (R138)",
        "returned = records.Returned(undelivered=not is_counted,",
        "returned = records.Returned(undelivered=False,",
        _WORLDS,
    ),
    Mutant(
        "a silent end marks nothing (R138)",
        "marked=reason != Return.UNSUBSCRIBED)",
        "marked=False)",
        _WORLDS,
    ),
    Mutant(
        "a message that kills comes beside others (R138)",
        "each.is_barrier or work.ledger.dying(each.leased) for each in in_hand)",
        "each.is_barrier for each in in_hand)",
        _SCENARIOS,
    ),
    Mutant(
        "a message that kills does not wait for an empty hand (R138)",
        "    if apart.intersect(dying) and backlogs[asker.name]:\n",
        "    if False:\n",
        _SCENARIOS,
    ),
    Mutant(
        "a message that kills is granted in every fetch (R138)",
        "    if not apart and dying and not (rows and asker.tried_marked):\n",
        "    if not apart and dying:\n",
        _SCENARIOS,
    ),
    Mutant(
        "a message that kills counts as delivered before anybody said that it begins (R138)",
        "    is_counted = lease.confirmed and len(lease.rows) == 1",
        "    is_counted = len(lease.rows) == 1",
        _SCENARIOS,
    ),
    Mutant(
        "messages behind a cancelled one stay where they are (R139)",
        "    behind = work.ledger.selection.order_keys.followers(cancelled, held)\n",
        "    behind = BitMap64()\n",
        _SCENARIOS,
    ),
    Mutant(
        "a made subscription outlives its receiver (R140)",
        '    if subscription.ends:\n        end_subscription(work, subscription, reason="left")\n',
        "",
        _SCENARIOS,
    ),
    Mutant(
        "a made subscription ends only as others do (R140)",
        "    if subscription.ends:\n        return ledger.definition.lease_period_ms\n",
        "",
        _SCENARIOS,
    ),
    Mutant(
        "something is given beside a barrier in hand (R140)",
        "any(each.is_barrier or work.ledger.dying",
        "any(work.ledger.dying",
        _SCENARIOS,
    ),
    Mutant(
        "at most once a barrier comes beside what is in hand (R140)",
        "    awaits_barrier = bool(in_hand and pending(subscription))\n",
        "    awaits_barrier = False\n",
        _SCENARIOS,
    ),
    Mutant(
        "where only messages wait that are tried by themselves none comes (R138)",
        "    if not apart and dying and not (rows and asker.tried_marked):\n",
        "    if not apart and dying and not asker.tried_marked:\n",
        _SCENARIOS,
    ),
    Mutant(
        "at most once an outcome comes too late (R40)",
        "        return rows & work.ledger.rows[State.REMOVED] - work.ledger.barriers\n    if lease is None:\n",
        "        return BitMap64() if lease is None else rows\n    if lease is None:\n",
        _SCENARIOS,
    ),
    Mutant(
        "at most once what is settled keeps its key (R140)",
        "        ledger.delivered.forget(rows)\n        ledger.selection.order_keys.leave(rows)\n    elif record.reason in",
        "        ledger.delivered.forget(rows)\n    elif record.reason in",
        _SCENARIOS,
    ),
    Mutant(
        "a function that fails is never to blame (15.12)",
        "    if not (failed and verdict.outcome == Outcome.CANCEL):\n",
        "    if True:\n",
        _SCENARIOS,
    ),
    Mutant(
        "a success of a receiver ends no alarm (15.12)",
        "    if is_acknowledged:\n        confirm(work, subscription)\n",
        "",
        _SCENARIOS,
    ),
    # The receiver's own side.
    Mutant(
        "two messages of a key are handed out at a time (R139)",
        "        elif message.key in self._behind:\n            self._behind[message.key].append(message)\n",
        "        elif message.key in self._behind:\n            self._ready.append(message)\n",
        _HAND,
    ),
    Mutant(
        "what stands behind a cancelled message is handed out (R139)",
        "            for each in behind:\n                self._held.pop(each.bookmark, None)\n            behind.clear()\n",
        "            pass\n",
        _HAND,
    ),
    Mutant(
        "a message begins after its lease's end (R136)",
        "        return not lease.alone and self._clock_s() < lease.until_s\n",
        "        return not lease.alone\n",
        _HAND,
    ),
    Mutant(
        "a message that kills begins before a renewal names its lease (R138)",
        "        return not lease.alone and self._clock_s() < lease.until_s\n",
        "        return self._clock_s() < lease.until_s\n",
        _HAND,
    ),
    Mutant(
        "the buffer keeps what no lease holds any more (R136)",
        "            if each.bookmark not in self._in_work:\n"
        "                self._drop(each)\n            elif not each.is_lost:\n",
        "            if each.bookmark in self._in_work and not each.is_lost:\n",
        _HAND,
    ),
    Mutant(
        "what is granted again to the receiver that works on it is handed out twice (R136)",
        "                known = self._held.get(each.bookmark)\n",
        "                known = None\n",
        _HAND,
    ),
    Mutant(
        "an outcome that was refused under the old lease is not said under the new one (R136)",
        "                elif again is not None:\n",
        "                elif again is None and again is not None:\n",
        _HAND,
    ),
    Mutant(
        "a child of the function has the handlers of its parent",
        "    while _former:\n        _put_last_back()\n",
        "    pass\n",
        _CHILDREN,
    ),
    Mutant(
        "a signal that comes while the function forks is forgotten",
        "        _forking.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)\n",
        "        pass\n",
        _CHILDREN,
    ),
    Mutant(
        "a lease that is given again lasts as long as a new one (R135)",
        "remaining_ms=lease.due_at_ms - work.now_ms",
        "remaining_ms=queue.lease_period_ms",
        _SCENARIOS,
    ),
    Mutant(
        "messages that were read for an ended start are handed out (R140)",
        "                        if session.drawn is asked.drawn or asked.drawn.at_most_once:\n",
        "                        if session.drawn:\n",
        ("tests/integration/test_receiving.py::test_messages_that_were_read_for_an_ended_start_are_not_handed_out",),
    ),
    Mutant(
        "outcomes that are refused after a take-over are said for ever (R133)",
        '        self._is_refused |= not (isinstance(trouble, SparkQueueError) and trouble.code == "SUBSCRIPTION_TAKEN")\n',
        '        self._is_refused |= self._trouble is trouble and getattr(trouble, "code", "") != "SUBSCRIPTION_TAKEN"\n',
        ("tests/integration/test_receiving.py::test_outcomes_that_are_refused_after_somebody_else_took_over_are_told_at_once",),
    ),
)
