"""Bugs in how a reign begins, in what it reads of message logs, and in whom it lets wait."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RECOVERY = ("tests/unit/coordinator/test_recovery.py",)
_FAIRNESS = ("tests/unit/coordinator/test_loop_fairness.py",)

BEGINNING = (
    Mutant(
        "what entered last is not looked at",
        "if message_type not in self._unchecked:", "if message_type in self._unchecked:", _RECOVERY,
    ),
    Mutant(
        "definitions may say that a reign is over before its first call",
        "    if idle_ms < IDLE_LEAST_MS:\n", "    if idle_ms < 1:\n", ("tests/unit/core/test_parsing.py",),
    ),
    Mutant("a reign reads files where they stood as it began", "    state.foresee(())\n", "", _RECOVERY, within="_fold"),
    Mutant("a state from a snapshot asks somebody else for traits", "    state.traits = traits\n", "", _RECOVERY, within="_fold"),
    Mutant(
        "the newest claim is that of the snapshot",
        "        if found is None and self.state is not None", "        if self.state is not None",
        ("tests/unit/core/test_log_tail.py",),
    ),
    Mutant(
        "a trouble in a log is told for ever",
        "            self.trouble.pop(message_type, None)\n", "            pass\n",
        ("tests/unit/coordinator/test_loop_troubles.py",),
    ),
    Mutant(
        "the first of a group takes everything",
        "        self._note_polls(calls, now_ms)\n", "", _FAIRNESS,
    ),
    Mutant(
        "who hung up has a share",
        "(poll, commands.Next) and not call.abandoned()", "(poll, commands.Next)", _FAIRNESS,
    ),
    Mutant(
        "what fell due during a commit waits for the next round",
        "self._held.due_ms) if due_ms is not None]",
        "self._held.due_ms) if due_ms is not None and due_ms > self._clock.now_ms()]",
        ("tests/unit/coordinator/test_loop_polls.py",),
    ),
    Mutant(
        "an object store is asked as often while nothing comes",
        "min(silent_ms, self._silent_ms)", "min(0, SILENT_MS)", ("tests/unit/journal/test_log_looks.py",),
    ),
    Mutant(
        "who waits for a log is found by a look of those that nobody waits for",
        "is_awaited = is_instance or message_type in awaited", "is_awaited = is_instance",
        ("tests/unit/coordinator/test_looks.py",),
    ),
    Mutant(
        "each stream that waits has the control log looked at for itself",
        " // POLLS_END_MS * POLLS_END_MS\n", "\n", ("tests/unit/coordinator/test_looks.py",),
    ),
    Mutant(
        "an idle replay keeps a coordinator alive",
        "any(not isinstance(poll.request, wire.AwaitPublish) for", "any(poll is not None for",
        ("tests/unit/coordinator/test_looks.py",),
    ),
    Mutant(
        "a message that views show is unknown to who settles it",
        "                    self._look_before(command, now_ms)\n", "                    pass\n",
        ("tests/unit/coordinator/test_looks.py",),
    ),
    Mutant(
        "a process that slept ends leases before their holders are heard",
        "- wait_ms > SLEPT_MS", "- wait_ms > 10**9", ("tests/unit/coordinator/test_loop_asleep.py",),
    ),
    Mutant(
        "a filter of which nothing is known sets its queue aside",
        "        self._prepared.clear()\n        for text in texts:",
        "        self._prepared.clear()\n        for text in ():", ("tests/unit/core/test_troubles.py",),
    ),
    Mutant(
        "an overtaken planner makes the coordinator forget the newer one",
        "    if command.incarnation != subscription.incarnation:\n",
        "    work.sessions.keep(subscription.name, work.sessions.of(subscription.name, command.incarnation))\n"
        "    if command.incarnation != subscription.incarnation:\n", ("tests/unit/core/test_scenarios.py",),
        within="_planner",
    ),
    Mutant(
        "a deposed reign folds the log of another and goes on (P7)",
        "        control.check(epoch=self._epoch)\n        self._engine.begin_again", "        self._engine.begin_again",
        ("tests/unit/coordinator/test_loop_faults.py",),
    ),
    Mutant(
        "a poll whose caller hung up holds its thread for ever",
        "                poll.call.answer(None)\n", "", ("tests/unit/coordinator/test_loop_polls.py",),
    ),
    Mutant(
        "a queue stays set aside although its message file is back",
        "if self._engine.state.is_file_back():", "if self._engine.state.is_file_back() is None:",
        ("tests/unit/coordinator/test_loop_troubles.py",),
    ),
    Mutant(
        "callers of a coordinator that cannot recover are not told why",
        "        self._refusal = trouble\n", "        pass\n", ("tests/unit/coordinator/test_server.py",),
    ),
)  # fmt: skip
