"""Bugs in what becomes of faults (DESIGN 3.5, R122)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TESTS = ("tests/unit/coordinator/test_loop_faults.py",)

_FORKS = ("tests/unit/test_forks.py",)

FAULTS = (
    Mutant("a forked child goes on with what its parent holds", "    elif _Use.process != here:\n", "    elif False:\n", _FORKS),
    Mutant(
        "a coordinator ends as idle after a step in which nobody could be heard",
        "            self._idle_since_ms += self._clock.now_ms() - now_ms\n", "", ("tests/unit/coordinator/test_loop.py",),
    ),
    Mutant(
        "a forked child waits for a lock before it is refused",
        "        forks.check_process()\n        # Whoever says how long has reasons.\n", "", _FORKS,
    ),
    Mutant(
        "a reign goes on with what a fault left half done",
        "        if self._state.raises_faults:\n", "        if not self._state:\n", _TESTS,
    ),
    Mutant(
        "a command that raises before it records sets its queue aside",
        "            if self.begun != begun:\n", "            if self.begun >= begun:\n", _TESTS,
    ),
    Mutant("what was set aside stays so when it is revived", "self._revived.get(queue, -1) > after", "False", _TESTS),
    Mutant(
        "a fault that was revived hides a later one",
        "    if not state.foresight.is_revived(queue, after=record.record):\n        state.faults.pop(queue, None)\n",
        "    state.faults.pop(queue, None)\n    if not state.foresight.is_revived(queue, after=record.record):\n",
        (*_TESTS, "tests/unit/journal/test_snapshot.py"),
    ),
    Mutant(
        "a fault of a queue that was dropped is forgotten when it is put back",
        "    if not state.foresight.is_revived(queue, after=record.record):\n",
        "    if queue in state.definitions.queues and not state.foresight.is_revived(queue, after=record.record):\n", _TESTS,
    ),
    Mutant(
        "a start that meets a fault does not record it",
        "            self.set_aside(queue, fault, now_ms=now_ms)\n", "            pass\n", _TESTS,
    ),
    Mutant(
        "a place in the order of planners is given twice (P1)",
        "        self.heard_at_ms.clear()\n", "        self.heard_at_ms.clear()\n        self.drawn = 0\n", _TESTS,
    ),
    Mutant("what entered beside a fault is never read again", "        self.read_until.clear()\n", "", _TESTS),
    Mutant(
        "other definitions reset a queue that is set aside",
        "{*state.queues, *state.set_aside_queues(), *goes_on}", "{*state.queues, *goes_on}", _TESTS,
    ),
    Mutant("a queue is altered while it is set aside", " or name in resets or then != now:", ":", _TESTS),
    Mutant("a queue begins to be replicated while it is set aside", ", each.is_replicated(name))", ")", _TESTS),
    Mutant(
        "a barrier that comes while its queue is set aside is an ordinary message",
        "state.enter(segment, ledgers, barriers=segment.barriers)",
        "state.enter(segment, ledgers, barriers=dict.fromkeys(state.queues, ()) | dict(segment.barriers))",
        ("tests/unit/core/test_scenarios.py", "tests/unit/core/test_troubles.py"),
    ),
    Mutant(
        "what is found of barriers when their queue is back is not recorded",
        "        self._of_each(self.state.queues, now_ms, say_barriers)\n", "", ("tests/unit/core/test_records_win.py",),
    ),
    Mutant(
        "what is recorded of barriers when their queue is back is found anew by each fold",
        "    shows_membership = True\n\n    barrier: bool", "\n    barrier: bool", ("tests/unit/core/test_records_win.py",),
    ),
    Mutant(
        "what is said of barriers when their queue is back is said again by each reign",
        "    ledger.unsaid -= to_bitmap(record.ranges)\n", "    ledger.unsaid -= to_bitmap(())\n",
        ("tests/unit/core/test_troubles.py",),
    ),
    Mutant(
        "rights that change while a queue is set aside never reach its subscriptions",
        "        self._of_each(self.state.queues, now_ms, renew_entitlements)\n        self.liveness",
        "        self.liveness", ("tests/unit/coordinator/test_hidden.py",),
    ),
    Mutant(
        "what a forgotten instance owns of a queue that is set aside is nobody's for ever",
        "        raise work.state.troubles[name]\n    claimed", "        break\n    claimed",
        ("tests/unit/core/test_scenarios.py",),
    ),
    Mutant(
        "a letter dies with the queue that it goes to",
        "            if home is not None and reason", "            if work.dead_letters is not None and reason", _TESTS,
    ),
    Mutant("a late proof takes back letters that somebody may have", "BitMap64() if work.are_letters_unknown else ", "", _TESTS),
    Mutant(
        "a lone message that is claimed has no time at which it was due",
        "rows if since_ms is None else rows & ledger.delayed[since_ms]", "rows & ledger.delayed[since_ms]",
        ("tests/unit/core/test_proxied_transfer.py",),
    ),
    Mutant(
        "a call that was refused before another fault is never answered",
        "                self._ready += [each for each in refused if not each[0].is_answered]\n", "                continue\n",
        _TESTS,
    ),
    Mutant(
        "a filter is set where none is evaluated",
        "    if work.ledger.definition.underlying_topic is None:\n", "    if work.ledger.definition.message_type is None:\n",
        ("tests/unit/coordinator/test_hidden.py",),
    ),
    Mutant(
        "a column is appended for definitions that are refused",
        "                self._journal.check_message_table", "                self._journal.create_message_table",
        ("tests/unit/coordinator/test_commands.py",),
    ),
    Mutant(
        "what peers said while a queue was set aside is lost on it",
        "return reread_peers(self.state, self._emit(now_ms))", "return False", ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "a snapshot that lacks a queue is used although the queue is back",
        "if any(record.kind == Kind.REVIVED and", "if any(record.kind == Kind.JOURNAL_CREATED and",
        ("tests/unit/journal/test_snapshot.py",),
    ),
    Mutant(
        "what raises at a peer's news of one queue keeps the others from their own",
        "commands.QueueCommand | ApplyPulled)\n        )",
        "commands.QueueCommand)\n        )", _TESTS,
    ),
    Mutant(
        "what raises at the names that a queue has missed ends every start",
        "            with state.guard(name):\n                take_known_names(",
        "            if True:\n                take_known_names(", _TESTS,
    ),
    Mutant(
        "what raises at a queue that is new by the same group ends the reign",
        "        if call is None and fault.queue is not None and not is_of_queue:\n",
        "        if False:\n", _TESTS,
    ),
    Mutant(
        "a file that is back and at which something raises ends the reign",
        "other faults of it show when the log is folded.\n                return True\n",
        "other faults of it show when the log is folded.\n                raise\n", ("tests/unit/journal/test_prepared_traits.py",),
    ),
    Mutant(
        "commits are kept for a history that nobody reads",
        "            self._committed, self._history = None, None\n",
        "            self._history = None\n", ("tests/unit/coordinator/test_metrics.py",),
    ),
    Mutant(
        "figures of subscriptions end the reign",
        "_subscriptions(state, queue)\n        except Exception:",
        "_subscriptions(state, queue)\n        except OSError:", _TESTS,
    ),
    Mutant(
        "a lease of one's own lets a reader end what another instance owns",
        "    if ledger is None or request.of_owner:\n",
        "    if ledger is None:\n", ("tests/unit/coordinator/test_rights.py",),
    ),
)  # fmt: skip
