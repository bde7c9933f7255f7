"""Bugs in what the core decides: the delivery protocol, limits, and who is given what."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCENARIOS = ("tests/unit/core/test_scenarios.py",)
_APPENDED = ("tests/integration/test_appended_columns.py",)

DECIDING = (
    # The delivery protocol (P1 to P6).
    Mutant(
        "an older planner start takes the subscription back (P1)",
        "known is not None and incarnation < known.incarnation:",
        "known is not None and incarnation < (0, 0):", _SCENARIOS,
    ),
    Mutant("a call that was overtaken acts (P1)", "    if call < newest:\n", "    if call < 0:\n", _SCENARIOS),
    Mutant(
        "a lease goes on claiming what another has been granted (P2)",
        "    ledger.drop_recoverable(held, but=None)\n", "", _SCENARIOS,
    ),
    Mutant(
        "a resume brings back what others have taken (P2)",
        "    came_back = in_queue(work, lease.recoverable) - lease.leased - later\n",
        "    came_back = lease.rows - lease.leased\n", _SCENARIOS,
    ),
    Mutant(
        "what no log can be read with is recorded",
        "msgspec.json.decode(msgspec.json.encode(part), type=type(part))", "msgspec.json.encode(part)",
        ("tests/unit/coordinator/test_loop_faults.py",),
    ),
    Mutant(
        "rows of which something went back, or that are for the first who asks, come with their lease (P2)",
        "            if not lease.is_whole:\n                # To be asked", "            if False:\n                # To be asked",
        ("tests/unit/coordinator/test_commands.py",),
    ),
    Mutant(
        "rows that Spark was given as they came count as rows that nobody asked for (P3, P6)",
        "        if self.unasked == lease:\n            self.unasked = 0\n", "", _SCENARIOS,
    ),
    Mutant(
        "a goodbye does not tell that Spark was given the rows (P6)",
        "call=0, taken=self._taken)", "call=0)", ("tests/unit/source/test_planner.py",),
    ),
    Mutant(
        "a goodbye that tells that Spark was given the rows is not heard (P6)",
        "        if command.taken:\n            session.note_taken(command.taken)\n", "", _SCENARIOS,
    ),
    Mutant(
        "Spark is given rows as they came however old their grant is",
        "if not given.is_taken and steady_s() < given.until_s:", "if not given.is_taken:",
        ("tests/unit/source/test_planner.py",),
    ),
    Mutant(
        "a stream is granted messages without the columns that its message type was given (R61)",
        "    if command.columns not in (None, queue.columns):\n", "    if False:\n", _APPENDED,
    ),
    Mutant(
        "a stream does not name the columns by which it reads (R61)",
        "(commands.Next, **poll, columns=self._columns)", "(commands.Next, **poll)",
        ("tests/unit/source/test_planner.py",),
    ),
    Mutant(
        "a stream begins without the columns that its message type was given since its load (R61)",
        "        self._keep_up(drawn.columns)\n", "", ("tests/unit/source/test_planner.py",),
    ),
    Mutant(
        "a receiver has the columns of its beginning for ever (R61)",
        "(granted.message_type, granted.columns) != (self._bodies.message_type, self._bodies.columns)",
        "granted.message_type != self._bodies.message_type", _APPENDED,
    ),
    Mutant(
        "a topic stream does not ask for definitions that the log announces (R61)",
        "                self._awaits_definitions = entry.alters_table or entry.definitions > self._applied\n",
        "                self._awaits_definitions = entry.alters_table\n", _APPENDED,
    ),
    Mutant(
        "a topic stream does not ask for definitions for which its table was altered (R61)",
        "                self._awaits_definitions = entry.alters_table or entry.definitions > self._applied\n",
        "                self._awaits_definitions = entry.definitions > self._applied\n", _APPENDED,
    ),
    Mutant(
        "a topic stream over a table has the definitions of its beginning for ever (R61)",
        "        if came and (followed is not None or self._awaits_definitions):\n",
        "        if came and self._awaits_definitions:\n", _APPENDED,
    ),
    Mutant(
        "a topic stream plans a batch that is not committed without the columns that it was planned with (R61)",
        "            # Here, too: after a restart Spark plans the batch that is not committed, and asks for no offset first.\n"
        "            self._check_columns(self._log)\n",
        "", _APPENDED,
    ),
    Mutant(
        "every resume counts as a delivery (P3)",
        "    if body.counted:\n", "    if True:\n",
        _SCENARIOS,
    ),
    Mutant(
        "a run that was stopped counts as a delivery (P3)",
        "lone = asked_before and not lease.stopped and", "lone = asked_before and", _SCENARIOS,
    ),
    Mutant(
        "a run that was stopped is one that vanished (P3)",
        "lease.vanished_runs + (not lease.stopped) if", "lease.vanished_runs + 1 if", _SCENARIOS,
    ),
    Mutant("the end of a lease counts a run that was stopped (P3)", "undelivered or lease.stopped", "undelivered", _SCENARIOS),
    Mutant(
        "a run that got through its batch counts though Spark could not commit it (P3)",
        "session.returned == lease.number and lease.failure is None", "session.returned < 0 and lease.failure is None", _SCENARIOS,
    ),
    Mutant(
        "a batch that was given back since it was stopped ends an alarm",
        "self.failure is None and not self.gives_back", "self.failure is None", _SCENARIOS,
    ),
    Mutant(
        "failures without messages raise no alarm",
        "subscription.idle_failures >= IDLE_FAILURES_LIMIT and subscription.alarm is None", "False", _SCENARIOS,
    ),
    Mutant("what an older run staged outlives the take-over (P4)", "        lease.staged.clear()\n", "", _SCENARIOS),
    Mutant(
        "a late proof does not take its dead letter back (P5)",
        "but=record.lease if record.reason == Removal.MAX_DELIVERIES else None)", "but=None)", _SCENARIOS,
    ),
    Mutant(
        "a late proof takes back a letter that somebody has taken (P5)",
        "dead -= letters.entered - letters.rows[State.AVAILABLE] -",
        "dead -= letters.entered - letters.entered -", _SCENARIOS,
    ),
    Mutant(
        "a goodbye gives back what Spark may have committed (P6)",
        "self.started == lease.number != self.returned", "self.started == lease.number", _SCENARIOS,
    ),
    Mutant(
        "a goodbye gives back what an older planner start may have committed (P6)",
        "and not lease.resumed and", "and", _SCENARIOS,
    ),
    Mutant(
        "a repeated next grants another lease",
        "lease is not None and lease.number > command.finished:",
        "lease is not None and lease.number > command.finished + 1:", _SCENARIOS,
    ),
    Mutant(
        "a proof acknowledges in explicit mode",
        "acknowledges=subscription.ack_mode == AckMode.AUTO", "acknowledges=True", _SCENARIOS, within="next_lease",
    ),
    Mutant(
        "two planner starts read an at-most-once lease",
        "return lease.rows if lease.handed_to == session.incarnation else BitMap64()", "return lease.rows", _SCENARIOS,
    ),
    # Time and limits.
    Mutant("a lease outlives its end", "each.due_at_ms <= work.now_ms]", "each.due_at_ms < work.now_ms]", _SCENARIOS),
    Mutant(
        "a dead at-most-once consumer keeps its keys (R31)",
        "    ledger.selection.order_keys.leave(rows)\n    ledger.returned_counts",
        "    ledger.returned_counts", _SCENARIOS,
    ),
    Mutant(
        "what lapsed at most once is read behind its key's younger messages",
        " and not (lease.lapsed and queue.order_key is not None)", "", _SCENARIOS,
    ),
    Mutant(
        "renewals have no limit",
        "lease.begun_at_ms + queue.lease_renewal_limit_ms", "work.now_ms + queue.lease_renewal_limit_ms", _SCENARIOS,
    ),
    Mutant(
        "a message expires while it is leased",
        "_UNLEASED = (State.AVAILABLE, State.DELAYED, State.INACTIVE)",
        "_UNLEASED = (State.AVAILABLE, State.DELAYED, State.INACTIVE, State.LEASED)", _SCENARIOS,
    ),
    Mutant(
        "a count is taken back from messages that had none",
        "        rows = self.at_least(1, rows)\n        for", "        for", ("tests/unit/core/test_counts.py",),
    ),
    Mutant(
        "a message is delivered once too often",
        "delivered.at_least(maximum + undelivered,", "delivered.at_least(maximum + 1 + undelivered,", _SCENARIOS,
    ),
    Mutant(
        "a message is cancelled once too often",
        "work.ledger.cancelled.at_least(limit, rows)", "work.ledger.cancelled.at_least(limit + 1, rows)", _SCENARIOS,
    ),
    Mutant(
        "a redrive takes what is leased in the dead-letter queue",
        " & free_letters(work.state, command.queue)\n    if free:", " & work.ledger.rows[State.DEAD]\n    if free:",
        (*_SCENARIOS, "tests/unit/client/test_redrive.py"),
    ),
    # Who is given what.
    Mutant(
        "the queue's backlog counts nothing",
        "ledger.definition.max_backlog - backlogs.total() if", "ledger.definition.max_backlog if", _SCENARIOS,
    ),
    Mutant(
        "a subscription's backlog counts nothing",
        "backlog_limit(ledger, subscription) - backlogs[subscription.name]",
        "_backlog_limit(ledger, subscription)", _SCENARIOS,
    ),
    Mutant(
        "the lowest priority comes first",
        "sorted(self._levels.items(), reverse=True)", "sorted(self._levels.items())", ("tests/unit/core/test_priority.py",),
    ),
    Mutant(
        "what has no priority comes first",
        "        if len(taken) < count:\n", "        if taken := oldest(rows - self.ranked, count):\n",
        ("tests/unit/core/test_priority.py",),
    ),
    Mutant(
        "under another order key a dead letter keeps its key",
        "for state in (State.DEAD, State.REMOVED, State.REMOTE))",
        "for state in (State.REMOVED, State.REMOTE))", _SCENARIOS,
    ),
    Mutant(
        "at most once, what waits and expires or is purged keeps its key",
        "not (self.definition.at_most_once and state is State.LEASED)", "not self.definition.at_most_once", _SCENARIOS,
    ),
    Mutant(
        "a subscription's filter selects nothing",
        "return rows if text is None else rows & self.matches[text]", "return rows", _SCENARIOS,
    ),
    Mutant("messages pass a barrier", "    return below(rows, held.min()) if held else rows\n", "    return rows\n", _SCENARIOS),
    Mutant(
        "a barrier waits for available messages only",
        "for state in (*ACTIVE, State.INACTIVE, State.REMOTE) if",
        "for state in (State.AVAILABLE, State.INACTIVE) if", _SCENARIOS, within="release",
    ),
    Mutant(
        "a barrier is received again and again",
        "        work.emit(records.BarrierReceived(), lease.rows, of=lease)\n", "        return\n", _SCENARIOS,
    ),
    Mutant(
        "round-robin begins with who was served last",
        "each.position <= self.last,", "each.position < self.last,", ("tests/unit/core/test_fairness.py",),
    ),
    Mutant(
        "a share is kept for ever",
        "if now_ms < poll.at_ms + ledger.definition.fairness_window_ms else None", "if now_ms else None", _SCENARIOS,
    ),
    Mutant(
        "strict leasing lets everybody settle",
        '    if ledger.definition.leasing == "strict":\n', '    if ledger.definition.leasing == "none":\n',
        _SCENARIOS,
    ),
    Mutant(
        "the active part is refilled without regard to what is in it",
        "    room = target - _active(ledger) if target", "    room = target if target", _SCENARIOS,
    ),
    Mutant(
        "an acknowledgement before activation is forgotten",
        "    deferred = ledger.deferred_after(now_ms)\n", "    deferred = BitMap64()\n", _SCENARIOS,
    ),
    Mutant(
        "an acknowledgement before activation counts where what waits before it just fills the active part",
        "len(waiting) < room", "len(waiting) <= room", _SCENARIOS,
    ),
    Mutant(
        "an acknowledgement before activation never lapses",
        "in self.deferred.items() if until_ms > now_ms))", "in self.deferred.items() if until_ms > 0))", _SCENARIOS,
    ),
    Mutant(
        "a barrier is received twice",
        "    if not lease.rows & subscription.barriers:\n        return\n", "", ("tests/unit/core/test_isolation.py",),
    ),
    Mutant(
        "of two that come next in line, one that is further back gets the message",
        "enumerate(_below(low + 1, slots))", "enumerate(_below(low + 2, slots))", ("tests/unit/core/test_fairness.py",),
    ),
    Mutant(
        "when old matches are forgotten, a filter lets in what it had kept out",
        "            members &= rows\n", "            members |= rows\n",
        ("tests/unit/core/test_selection.py",), within="Selection",
    ),
    Mutant(
        "asking how many dead letters there are loses those that were settled",
        "ledger.rows[State.DEAD].copy(), ledger.definition", "ledger.rows[State.DEAD], ledger.definition",
        ("tests/unit/core/test_questions.py",),
    ),
    Mutant(
        "each start of a coordinator records leases that hold nothing",
        " if work.ledger.outstanding(lease)]:", "]:", ("tests/unit/core/test_engine.py",),
    ),
)  # fmt: skip
