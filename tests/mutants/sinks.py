"""Bugs in what becomes of batches that are appended to a sink (R123 to R127, DESIGN 19); the first four are its shortcuts."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCENARIOS = ("tests/unit/core/test_scenarios.py",)
_WORLDS = ("tests/simulation/test_sinks.py",)
_TABLE = ("tests/unit/sinks/test_table.py",)
_TOPIC = ("tests/unit/sinks/test_topic.py",)
_PROVING = ("tests/integration/test_proving.py",)
_SPARK = "tests/integration/test_source_into.py"
_TYPES = "tests/integration/test_source_into_types.py"
_SPARK_TABLE = "tests/integration/test_source_spark_table.py"

SINKS = (
    Mutant(
        "a field of another case is taken for the table's, and is NULL in each row",
        '"struct", [(str(field["name"]), _plain(', '"struct", [(str(field["name"]).lower(), _plain(', _TABLE,
    ),
    Mutant(
        "a stream into a table takes messages of an at-most-once queue before it is refused",
        "        _refuse_at_most_once(queue)\n", "", ("tests/integration/test_lost_checkpoints.py",),
    ),
    Mutant(
        "a living consumer remembers a table that was dropped",
        "            self._head = None\n            return False\n", "            return False\n", _TABLE,
    ),
    Mutant(
        "a table is made anew where a volume is not mounted",
        "            if table is None and self._device not in (None, device):\n", "            if False:\n", _TABLE,
    ),
    Mutant(
        "a word by force counts against a table that can be read",
        "                sink.fate(attempt, journal_id=journal_id, queue=self.name)\n                raise CallerError(",
        "                raise JournalError(", ("tests/unit/cli/test_queue_verbs.py",),
    ),
    Mutant(
        "a fence that cannot be written passes for a table that cannot be read",
        '"SINK_UNFENCED" if attempt.is_read else "SINK_UNREADABLE"', '"SINK_UNREADABLE"', ("tests/unit/core/test_status.py",),
    ),
    Mutant(
        "messages in doubt are given back with the end of their lease, without a fence",
        "if ledger.outstanding(lease) and not lease.is_in_doubt)", "if ledger.outstanding(lease))", _WORLDS,
    ),
    Mutant(
        "there is one number for each lease, not for each attempt",
        "    number = max(numbers.last + 1, command.transaction_version // 2 + 1)\n", "    number = lease.number\n", _WORLDS,
    ),
    Mutant(
        "an attempt is prepared without a look at what its lease still holds",
        "    if lost:\n        facts", "    if found is lost:\n        facts", _WORLDS,
    ),
    Mutant(
        "a call that comes twice hides what its run has read and lost",
        "    lost = lease.lost | (lease.rows - found)\n", "    lost = lease.rows - found\n", _SCENARIOS,
    ),
    Mutant(
        "a new run begins before the earlier attempt is decided",
        "    for other in in_doubt(work.ledger, lease.subscription):\n", "    for other in ():\n", _SCENARIOS,
    ),
    Mutant(
        "a run is not told of its own earlier attempt",
        "        own=next(map(attempt_summary, in_doubt(work.ledger, subscription.name)), None),\n", "", _WORLDS,
    ),
    Mutant(
        "an attempt about which nobody decides is no alarm",
        "lease.due_at_ms + ledger.definition.lease_period_ms\n", "2**62\n", ("tests/unit/core/test_status.py",),
    ),
    Mutant(
        "an alarm that comes by time waits for a commit",
        ", *(name for name, at_ms in self._begins_at_ms.items() if at_ms <= now_ms)}", "}",
        ("tests/unit/coordinator/test_alarm_bell.py",),
    ),
    Mutant(
        "a journal that was put back uses a number that the table has seen",
        "command.transaction_version // 2 + 1)\n", "1)\n", _WORLDS,
    ),
    Mutant(
        "numbers begin anew with the queue",
        "ledger.next_lease, ledger.attempts = old.next_lease, old.attempts", "ledger.next_lease = old.next_lease", _SCENARIOS,
    ),
    Mutant("a dropped queue forgets its numbers", "    ledger.attempts = state.attempts.get(queue.name, {})\n", "", _SCENARIOS),
    Mutant(
        "the end of a lease gives back what has landed",
        "    if lease.has_landed:\n        settle_landed(work, lease)\n        return\n    apply_staged",
        "    apply_staged", _WORLDS,
    ),
    Mutant(
        "what was left out of a commit is acknowledged with it",
        "{verdict: rows.copy() for verdict, rows in attempt.exceptions.items()}", "dict()", _WORLDS,
    ),
    Mutant(
        "two exceptions of one kind count as the last of them",
        "exceptions.setdefault(Verdict(outcome, due_at_ms, error), BitMap64()).update(to_bitmap(ranges))",
        "exceptions[Verdict(outcome, due_at_ms, error)] = to_bitmap(ranges)", _WORLDS,
    ),
    Mutant(
        "a batch that has landed is not read again once its messages are done",
        "    own = own or lease.has_landed\n", "", _WORLDS,
    ),
    Mutant(
        "retention lets go what a landed batch has to read again",
        "if ledger.definition.at_most_once or each.has_landed)", "if ledger.definition.at_most_once)", _SCENARIOS,
    ),
    Mutant(
        "a proof settles what is in doubt",
        "    if lease.is_in_doubt or lease.is_fenced:\n", "    if lease.is_fenced:\n", _SCENARIOS,
    ),
    Mutant(
        "a proof of a fenced run acknowledges its messages",
        "    if lease.is_in_doubt or lease.is_fenced:\n", "    if lease.is_in_doubt:\n", _SCENARIOS,
    ),
    Mutant(
        "a fenced run goes on",
        "lease.fenced.incarnation == run.incarnation:\n", "lease.fenced.incarnation == run:\n", _SCENARIOS,
    ),
    Mutant(
        "people settle what is in doubt",
        "        if lease.attempt is not None and (held := lease.leased & rows):\n",
        "        if lease.attempt is None is not (held := lease.leased & rows):\n", _SCENARIOS,
    ),
    Mutant(
        "a goodbye gives back what is in doubt",
        "if lease is not None and lease.attempt is None and session", "if lease is not None and session", _WORLDS,
    ),
    Mutant(
        "a subscription ends while its attempt is in doubt",
        '        raise refusal(work.ledger, lease, "ending the subscription")\n', "        break\n",
        _WORLDS,
    ),
    Mutant(
        "a subscription that is silent is forgotten while its attempt is in doubt",
        "bool(ledger.backlogs()[subscription]) or any(in_doubt(ledger, subscription))",
        "bool(ledger.backlogs()[subscription]) and not any(in_doubt(ledger, subscription))", _SCENARIOS,
    ),
    Mutant(
        "a batch in doubt is halved as it is read again",
        "    if lease.is_in_doubt:\n        # Nothing", "    if lease.is_fenced:\n        # Nothing", _WORLDS,
    ),
    Mutant(
        "what goes back with a cancelled message of its key may be appended",
        "        if behind:\n            reason = f\"bookmark", "        if behind is given:\n            reason = f\"bookmark",
        _SCENARIOS,
    ),
    Mutant(
        "whoever reads the queue decides about everybody's attempts",
        "    return known is not None and known.principal == principal.name\n\n\ndef _is_of_own_leases",
        "    return known is not None\n\n\ndef _is_of_own_leases", ("tests/unit/coordinator/test_sinks.py",),
    ),
    Mutant(
        "whoever does not know what is in doubt may skip it",
        "    kind = Kind.PREPARED\n    critical = silent = True\n", "    kind = Kind.PREPARED\n    silent = True\n",
        ("tests/unit/coordinator/test_sinks.py",),
    ),
    Mutant(
        "a repeat of a prepare draws another number",
        "attempt.request == command.request and not attempt.landed:", "attempt.request != command.request:",
        ("tests/unit/coordinator/test_sinks.py",),
    ),
    Mutant(
        "an append does not look whether it has landed already",
        "            if fate is not Fate.IN_DOUBT:\n", "            if fate is Fate.FENCED:\n", _TABLE,
    ),
    Mutant(
        "a fence takes the number of the attempt that it is of",
        "attempt, 2 * attempt + 1, [], None)", "attempt, 2 * attempt, [], None)", _TABLE,
    ),
    Mutant(
        "who decides believes whatever table stands there",
        "            if self.id() == attempt.table_id:\n", "            if self.id():\n", _TABLE,
    ),
    Mutant(
        "a race that is lost counts as a failure of the store",
        "failures = failures + 1 if newest == before else 0", "failures = failures + 1 if newest + 1 else 0", _TABLE,
    ),
    Mutant(
        "a store that refuses each commit is taken for lost races",
        "failures = failures + 1 if newest == before else 0", "failures = 0", _TABLE,
    ),
    Mutant(
        "rows that were staged for another schema are committed",
        "            if plan is not None and self._is_changed(head.table, plan):\n",
        "            if plan is None is not self._is_changed:\n", _TABLE,
    ),
    Mutant(
        "a table may forget its transaction ids",
        "_seconds(retention) < RETENTION_DAYS * _DAY_S", "_seconds(retention) < 0", _TABLE,
    ),
    Mutant(
        "a table is appended to whatever else its writers promise",
        "found = set(table.protocol().writer_features or ()) - _KEPT_FEATURES", "found = set[str]()", _TABLE,
    ),
    Mutant(
        "a table is partitioned by what the log has no text for",
        '_PARTITION_TYPES = _PLAIN_TYPES - {"binary"}', "_PARTITION_TYPES = _PLAIN_TYPES",
        _TABLE,
    ),
    Mutant(
        "a text of statistics is cut below what it bounds",
        "return low[:TEXT_LENGTH], _above(high)", "return low[:TEXT_LENGTH], high[:TEXT_LENGTH]",
        (f"{_TYPES}::test_statistics_let_readers_pass_over_files",),
    ),
    Mutant(
        "a fence of a topic takes the number of the attempt that it is of",
        "return self._decide(transaction, attempt, 2 * attempt + 1)", "return self._decide(transaction, attempt, 2 * attempt)",
        _TOPIC,
    ),
    Mutant(
        "a topic's attempt lands beside its fence",
        "version=lambda found: version if found < 2 * attempt else None", "version=lambda found: version", _TOPIC,
    ),
    Mutant(
        "a batch that was only planned counts as committed",
        'for each in checkpoint.list("commits")', 'for each in checkpoint.list("offsets")',
        _PROVING,
    ),
    Mutant(
        "a checkpoint of another journal proves batches of this one",
        'for offset in _offsets_of(checkpoint, newest) if offset["journal"] == view.state.journal_id]',
        "for offset in _offsets_of(checkpoint, newest)]", _PROVING,
    ),
    Mutant(
        "a lease that holds nothing any more counts as proven",
        "(lease is not None and lease.proven):", "(lease is None or not ledger.outstanding(lease)):", _PROVING, within="_proven",
    ),
    Mutant(
        "exceptions are appended, and what is done is not",
        "exceptions is not None and each.outcome != Outcome.ACKNOWLEDGE",
        "exceptions is not None and each.outcome == Outcome.ACKNOWLEDGE", (f"{_SPARK}::test_exceptions_do_not_stand_in_the_table",),
    ),
    Mutant(
        "files of a batch that has landed are deleted",
        "        if landing.fate is Fate.FENCED:\n            sink.discard(files)\n            facts",
        "        sink.discard(files)\n        if landing.fate is Fate.FENCED:\n            facts",
        (f"{_SPARK}::test_rows_and_their_acknowledgement_are_one_commit",),
    ),
    Mutant(
        "a batch is gathered however large the last one was",
        "messages > SMALL_MESSAGES or self._bytes_each * messages > SMALL_BYTES", "messages > SMALL_MESSAGES",
        (f"{_TYPES}::test_small_batches_are_gathered_once_one_has_shown_how_small",),
    ),
    Mutant(
        "a MERGE carries no transaction id",
        "                session.conf.set(key, str(value))\n", "                session.conf.set(key, \"\")\n",
        (f"{_SPARK_TABLE}::test_batches_are_merged_once_each_wherever_the_consumer_dies[committed]",),
    ),
    Mutant(
        "a fence gives values to columns that Delta computes",
        " if not COLUMN_KEYS.keys() & field.metadata.keys()]", "]",
        (f"{_SPARK_TABLE}::test_a_table_that_only_spark_writes_takes_batches_and_fences[identity]",),
    ),
    Mutant(
        "an error of the rows that Spark writes leaves them in doubt",
        "            if files:\n                raise\n            return str(reason)", "            return str(reason)",
        (f"{_SPARK_TABLE}::test_an_error_of_the_rows_fences_the_attempt_at_once",),
    ),
    Mutant(
        "who has slept believes in the head that it knew",
        "return abs(SystemClock().wall_ms() - self._listed_at_ms) <= _LISTED_MS", "return True", _TABLE,
    ),
    Mutant(
        "a put behind a head that a plan has found is not looked at again",
        "holds = plan is not None and head is not None and self._is_young() and head.stands()",
        "holds = plan is not None and head is not None", _TABLE,
    ),
    Mutant(
        "a proof waits past the end of its lease",
        "if is_due or _subscription(each.call)", "if _subscription(each.call)", ("tests/unit/coordinator/test_held_calls.py",),
    ),
    Mutant(
        "what was committed behind a handle is not looked for",
        "        self._transactions |= transactions\n", "", _TABLE,
    ),
    Mutant(
        "a table whose columns changed is read on as it was",
        "if entry.changes_table or self.version", "if self.version", _TABLE,
    ),
    Mutant(
        "a look at a table holds however long a coordinator takes to start",
        "self._confirmed_at_ms < _FRESH_MS", "self._confirmed_at_ms < 2**60", _TABLE,
    ),
    Mutant(
        "a table that was made anew says whether a batch of the one before has landed",
        "            if plan is not None and str(head.table.metadata().id) != plan.table_id:\n", "            if False:\n", _TABLE,
    ),
    Mutant(
        "another table in its place is taken for the one that was known",
        "        return bool(self._entry) and self._store.read(log_key(self._key, self.version)) == self._entry\n",
        "        return True\n", _TABLE,
    ),
    Mutant(
        "an attempt that is found landed is believed before it is on the disk (R125)",
        "                self._sync_found(transaction, newest)\n", "", ("tests/unit/sinks/test_table.py",),
    ),
    Mutant(
        "an entry that the disk refuses is found landed (R125)",
        "        # A failure of this ends the attempt in doubt: to read the entry again would say nothing of the disk.\n"
        "        self._store.sync([log_key(self._key, version)])\n",
        "        try:\n            self._store.sync([log_key(self._key, version)])\n"
        "        except SparkQueueError as reason:\n            return reason.reason\n",
        ("tests/unit/sinks/test_table.py",),
    ),
)  # fmt: skip
