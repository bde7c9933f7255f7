"""Bugs in the order per key: runs in leases, and what goes back together."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCENARIOS = ("tests/unit/core/test_scenarios.py",)

ORDERING = (
    Mutant(
        "two owners wait for each other's messages of one key",
        "_ELSEWHERE = LEFT | {State.REMOTE}",
        "_ELSEWHERE = LEFT",
        _SCENARIOS,
    ),
    Mutant(
        "what comes late is taken for the youngest of its key",
        "or bookmarks[0] > known[-1]:",
        "or True:",
        ("tests/unit/core/test_order_key.py", *_SCENARIOS),
    ),
    Mutant(
        "a key's younger messages do not wait",
        "return rows - self.order_keys.behind if self.order_keys.behind else rows",
        "return rows",
        _SCENARIOS,
    ),
    Mutant(
        "a key's older message that came back passes those that are under way",
        "        is_held = self._holding[keys] > 0\n",
        "        is_held = self._holding[keys] < 0\n",
        _SCENARIOS,
    ),
    Mutant(
        "what is sent at most once holds its key no longer than its grant",
        "        elif state not in _ELSEWHERE and not (self.definition.at_most_once and state is State.LEASED):",
        "        elif state not in _ELSEWHERE:",
        _SCENARIOS,
    ),
    Mutant(
        "a run goes on behind a gap",
        "self._older[slots] != NONE, ~follows)",
        "self._older[slots] != NONE, 0)",
        _SCENARIOS,
    ),
    Mutant(
        "a lease takes more of a key than order_key_run",
        "unbroken & (rank < longest)",
        "unbroken & (rank <= longest)",
        _SCENARIOS,
    ),
    Mutant(
        "a run is looked for in the first window only",
        "            width *= 4\n",
        "            return oldest(found, count)\n",
        ("tests/unit/core/test_order_key.py",),
    ),
    Mutant(
        "what failed alone goes with the others of its key",
        "    free = together(ledger, subscription, free_of(work, subscription))\n",
        "    free = free_of(work, subscription)\n",
        _SCENARIOS,
    ),
    Mutant(
        "a cancelled message leaves those behind it where they are",
        "    followers = followers_of_cancelled(work, cancelled, within)\n",
        "    followers = BitMap64()\n",
        _SCENARIOS,
    ),
    Mutant(
        "by hand, a cancelled message leaves those behind it where they are",
        "            followers = followers_of_cancelled(work, part.rows, work.ledger.rows[State.LEASED])\n",
        "            followers = BitMap64()\n",
        _SCENARIOS,
    ),
    Mutant(
        "what a cancel ends takes those behind it back",
        "followers(in_queue(work, cancelled) - ending, in_queue(work, among))",
        "followers(in_queue(work, cancelled), in_queue(work, among))",
        _SCENARIOS,
    ),
    Mutant(
        "what goes back behind a cancelled message counts as delivered",
        "undelivered or record.reason == Return.ORDER_KEY or",
        "undelivered or",
        _SCENARIOS,
    ),
    Mutant(
        "a late proof acknowledges what stands behind a message that its batch cancelled",
        "    ending = BitMap64.union(*_ended_by_cancel(work, cancelled & among))\n",
        "    cancelled = cancelled & among\n    ending = BitMap64.union(*_ended_by_cancel(work, cancelled))\n",
        _SCENARIOS,
    ),
    Mutant(
        "a resume takes up what stands behind a message that somebody else has",
        "slots[~(unbroken & is_free)]",
        "slots[~unbroken]",
        ("tests/unit/core/test_order_key.py",),
    ),
    Mutant(
        "a delay of a publish is over when its message becomes active",
        "self.not_before and event in (Event.ACTIVATED, Event.OWNED)",
        "False",
        _SCENARIOS,
    ),
    Mutant(
        "a delay is over once its message was given away",
        "            _put_in(self.not_before, part & new, due_at_ms)\n",
        "            pass\n",
        ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "a delay outlives the life of its message",
        "                self.forget_delays(part)\n",
        "",
        ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "what was cancelled with a delay is asked for in vain",
        "taken - self.delivered.at_least(1, taken) if self.delayed",
        "taken if self.delayed",
        ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "a message that is given to who has a target depth is delayed before its turn",
        "Event.LINED_UP if has_turns else Event.OWNED",
        "Event.OWNED",
        ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "what is delayed is claimed before it is due",
        "(lost - work.ledger.not_due(work.now_ms))",
        "lost",
        ("tests/unit/core/test_proxied_transfer.py",),
    ),
    Mutant(
        "who redrives hears nothing of letters that could be claimed",
        "(free_letters(work.state, command.queue) | _lost_letters(work))",
        "free_letters(work.state, command.queue)",
        ("tests/unit/core/test_proxied_transfer.py",),
    ),
    Mutant(
        "nobody decides for a peer of which no queue is pulled",
        "for name in sorted(self._definitions.replicated) if",
        "for name in self._definition.queues if",
        ("tests/unit/replication/test_changed_definitions.py",),
    ),
    Mutant(
        "a column is appended that a peer has of another type",
        "    _refuse_other_columns(journal.store, old, wanted)\n",
        "",
        ("tests/unit/client/test_replicated.py",),
    ),
    Mutant(
        "neighbours of different delays in a merged file have the delay of the first",
        "stretches([each for each in segments if not each.retired], of_one_delay=True)",
        "stretches([each for each in segments if not each.retired])",
        ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "the rows of a key lie in several partitions",
        'keyed = count > 1 and "keys" in pieces.column_names',
        "keyed = False",
        ("tests/unit/source/test_partitions.py",),
    ),
)
