"""Bugs in what is kept in files: who may draw a name, what is searched and deleted, what traits and snapshots say."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCENARIOS = ("tests/unit/core/test_scenarios.py",)
_ANEW = ("tests/unit/journal/test_message_table.py", "tests/integration/test_defined_anew.py")

KEEPING = (
    Mutant(
        "messages lose their columns where their type is defined anew",
        "return pa.table(table.get_add_actions()).num_rows > 0", "return False", _ANEW,
    ),
    Mutant(
        "a reign that is over gives a table other columns",
        "        if found > epoch:\n            raise CoordinatorError", "        if False:\n            raise CoordinatorError",
        _ANEW,
    ),
    Mutant(
        "a newer reign that found the columns to fit is not known to an older one",
        "(found == epoch and arrow_schema(table) == declared)", "arrow_schema(table) == declared", _ANEW,
    ),
    Mutant(
        "a message type that is in use may begin anew",
        "return message_type not in (by or self.definitions).message_types and (", "return (", _ANEW,
    ),
    Mutant(
        "a process that publishes once reads all that was committed since the checkpoint",
        "_checkpointed_setup(store) or read_setup(store)", "read_setup(store)", ("tests/integration/test_store_requests.py",),
    ),
    Mutant(
        "a process goes by a checkpoint whose commit is away",
        "None if checkpoint is None or version_of(checkpoint) > newest else", "None if checkpoint is None else",
        ("tests/unit/client/test_changed_definitions.py",),
    ),
    Mutant(
        "an entry that stands twice enters twice",
        "            if is_known or file.path in self._names or file.path in seen:\n", "            if False:\n",
        ("tests/unit/journal/test_entering.py",),
    ),
    Mutant(
        "a damaged entry is not named",
        "    return found[0] if found else damaged(store, what, store.reason(reason))\n",
        "    return damaged(store, what, store.reason(reason))\n", ("tests/unit/cli/test_cli.py",),
    ),
    Mutant(
        "verify names the first damaged entry alone",
        "        _show_closed(damage, _of_log_files(store), as_json=as_json)\n",
        "        _show_closed(damage, [], as_json=as_json)\n", ("tests/unit/cli/test_cli.py",),
    ),
    Mutant(
        "a topic counts an entry twice that stands twice",
        "            entry, _ = self._names.without_repeats(entry)\n", "            pass\n",
        ("tests/unit/journal/test_entering.py",),
    ),
    Mutant(
        "an earlier Spark has committed where its newest batch began",
        "self._committed = end", "self._committed = start", ("tests/unit/source/test_stream_reader.py",),
    ),
    Mutant(
        "an earlier Spark has committed what it was granted",
        "        return latest\n\n    def partitions",
        "        self._committed = latest\n        return latest\n\n    def partitions",
        ("tests/unit/source/test_stream_reader.py",),
    ),
    Mutant(
        "two processes draw one number",
        "        if won and head", "        if head", ("tests/unit/journal/test_transaction.py",),
    ),
    Mutant(
        "a number that was drawn may be lost in a power loss",
        "            store.sync([log_key(key, base + 1)])\n", "            pass\n", ("tests/unit/journal/test_power_promises.py",),
    ),
    Mutant(
        "a publish whose last sync fails says that nothing is visible",
        'raise self._failed(str(trouble.facts["reason"])) from None\n\n    def _failed',
        "raise\n\n    def _failed", ("tests/unit/journal/test_power_promises.py",),
    ),
    Mutant(
        "an at-most-once lease of old keeps replaced files for ever",
        "(ledger.definition.at_most_once and not lease.proven)", "ledger.definition.at_most_once",
        ("tests/unit/journal/test_message_upkeep.py",),
    ),
    Mutant(
        "files are deleted although a lease may read them",
        "    return _oldest_reader_ms(state, message_type, now_ms) >= now_ms - kept_ms\n", "    return True\n",
        ("tests/unit/journal/test_message_upkeep.py",),
    ),
    Mutant(
        "a merge whose files went is not planned anew",
        "the next round plans anew.\n            return True\n",
        "the next round plans anew.\n            return False\n", ("tests/unit/journal/test_message_upkeep.py",),
    ),
    Mutant(
        "a table that was merged is opened again at once",
        "return copied_bytes >= limits.round_bytes", "return copied_bytes > 0", ("tests/unit/journal/test_message_upkeep.py",),
    ),
    Mutant(
        "a merge of several rounds ends with its first",
        "return copied_bytes >= limits.round_bytes", "return False", ("tests/unit/journal/test_message_upkeep.py",),
    ),
    Mutant(
        "a file of another topic knows nothing of a subscription's filter",
        ", matches={text: BitMap64() for text in each.filters})", ")", ("tests/unit/journal/test_traits.py",), within="_traits",
    ),
    Mutant(
        "messages expire that a filter keeps out, and others that never do",
        "{at_ms: part & rows for", "{at_ms: part | rows for", ("tests/unit/journal/test_traits.py",), within="_entry_traits",
    ),
    Mutant(
        "the own snapshot goes because another log's is newer",
        "for each in stored(store) if each[0] <= last.record]", "for each in stored(store)]",
        ("tests/unit/journal/test_snapshot.py",),
    ),
    Mutant(
        "only the newest snapshots stay, and past moments are folded from the first record",
        "zip(older[KEPT:], firsts[KEPT:], strict=True) if not is_first]", "zip(older[KEPT:], firsts[KEPT:], strict=True)]",
        ("tests/unit/journal/test_snapshot.py",),
    ),
    Mutant(
        "what expires with a redriven message never does",
        "            if not self._by_time[known_ms]:\n", "            if True:\n", _SCENARIOS,
    ),
    Mutant(
        "a redriven message is as old as it was before",
        "(aged - self.expires.rows - self.begun.rows)", "(aged - self.expires.rows)", _SCENARIOS,
    ),
    Mutant(
        "messages of one type wait for the queues of another",
        "        if ledger.definition.message_type == message_type:\n", "        if True:\n", _SCENARIOS,
    ),
    Mutant(
        "a suspect dies at the first success of another",
        "if queue.max_deliveries and ledger", "if queue.max_deliveries or ledger", _SCENARIOS,
    ),
    Mutant(
        "who unsubscribes frees the keys of others",
        "for lease in ledger.leases_of(name):", "for lease in ledger.leases.values():", _SCENARIOS,
    ),
    Mutant(
        "barriers count from before a queue's beginning",
        "            barriers=self.barriers & rows,\n", "            barriers=self.barriers,\n",
        ("tests/unit/core/test_segment.py",),
    ),
    # What is kept longer than it looks.
    Mutant(
        "retention takes a merged file away from what is still needed",
        " - {segment.path for segment in segments if not segment.retired}", "", ("tests/unit/journal/test_message_upkeep.py",),
    ),
    Mutant(
        "what went while it was merged is let go again with the rest",
        " for segment in of_file if not segment.retired]", " for segment in of_file]",
        ("tests/unit/journal/test_message_upkeep.py",),
    ),
    Mutant(
        "what is too old as it enters is given to whoever asks first",
        "self._emit(now_ms))\n        self.expire(now_ms=now_ms)", "self._emit(now_ms))", ("tests/model",),
    ),
    Mutant(
        "a checkpoint is believed in that was not written",
        "raise OSError(str(reason)) from None\n        if store", "pass\n        if store", ("tests/unit/journal/test_delta.py",),
    ),
    Mutant(
        "a publisher takes the head of a log that it opened anew for that of its own commit",
        "if is_own and head.version == base and head.follow_own():", "if is_own and head.follow_own():",
        ("tests/unit/journal/test_commit.py",),
    ),
    Mutant(
        "whoever has a dropped type open is not told",
        "    for message_type in message_tables(store):\n",
        "    for message_type in {\"json\": 0, \"binary\": 0, **record.body.definitions[\"message_types\"]}:\n",
        ("tests/unit/client/test_changed_definitions.py",),
    ),
    Mutant(
        "a number that was drawn where nobody looks is given all the same",
        "        if won and head.follow_own():\n", "        if won:\n", ("tests/unit/journal/test_transaction.py",),
    ),
    Mutant(
        "a repeat of an older opening passes",
        "(self._read_on(head) and head.version == base)", "head.stands()", ("tests/unit/client/test_changed_definitions.py",),
    ),
    Mutant(
        "a commit counts that was put behind a head that is gone",
        "        if not self.stands():\n            return False\n        self._advance", "        self._advance",
        ("tests/unit/journal/test_commit.py", "tests/unit/journal/test_delta_head.py"),
    ),
    Mutant(
        "nobody tells of definitions whose coordinator died",
        "        self._announce(_definitions_of(self._store, table.head))\n", "",
        ("tests/unit/client/test_changed_definitions.py",),
    ),
    Mutant(
        "a publisher that asks an old handle for an id gets no answer",
        "            if self.table.version() < self.version:\n", "            if False:\n",
        ("tests/unit/journal/test_delta_head.py",),
    ),
    Mutant(
        "writing below a journal that is away begins another one",
        "if self.is_local and not os.path.isdir(self.uri(self.log_folder)):", "if False:", ("tests/unit/journal/test_store.py",),
    ),
    Mutant(
        "a log file that somebody else compacted counts as an entry",
        r'"(?:.*/)?[0-9]{20}\.json"', r'"(?:.*/)?[0-9.]*(?:compacted)?\.json"',
        ("tests/unit/journal/test_delta.py",),
    ),
    Mutant(
        "a torn checkpoint asks for a log that was cleaned away",
        "version_of(checkpoints[-2]) if len(checkpoints) > 1 else -1", "-1", ("tests/unit/journal/test_recovery.py",),
    ),
    Mutant(
        "a torn checkpoint is set aside although nothing else holds its own commit",
        "version_of(checkpoints[-1]) + 1)", "version_of(checkpoints[-1]))", ("tests/unit/journal/test_recovery.py",),
    ),
    # What is told, and what expressions fail on.
    Mutant(
        "all files of a stranger's commit count as one",
        "sum(len(each.paths) for each in self.foreign.values())", "len(self.foreign)",
        ("tests/unit/core/test_status.py",),
    ),
    Mutant(
        "after a condition that is NULL, what stands behind ELSE does not fail",
        'steps.first("IS TRUE", conditions)', 'steps.first("IS NOT FALSE", conditions)',
        ("tests/unit/expression",),
    ),
    # What batches say.
    Mutant(
        "a renewal that is refused gives up the lease that is held by then",
        "            if self._lease == lease:\n                self._lease = None",
        "            self._lease = None", ("tests/unit/source/test_renewal.py",),
    ),
    Mutant(
        "a batch that was given back counts as done",
        "**said, cancel=error is not None or stopped)", "**said)", ("tests/unit/source/test_run_reporter.py",),
    ),
    Mutant(
        "an older commit proves the run that began again",
        "        self._unproven = None\n        started", "        started", ("tests/unit/source/test_run_reporter.py",),
    ),
    Mutant(
        "a slip in what fn says comes back for ever",
        "self._cancels and not _is_slip(failure)", "self._cancels", ("tests/unit/source/test_foreach_batch.py",),
    ),
    Mutant(
        "a stopped query is held against its messages",
        "return RunEnd.STOPPED if _is_over(session) else RunEnd.FAILED", "return RunEnd.FAILED",
        ("tests/unit/source/test_run_ends.py",),
    ),
    Mutant(
        "a connection that times out is taken for an interrupt",
        "return name in _INTERRUPTED or", 'return name in _INTERRUPTED or name.endswith("Exception") or',
        ("tests/unit/source/test_run_ends.py",),
    ),
    Mutant(
        "a batch without rows reaches fn",
        "if not started.messages and batch.count() == 0:", "if not started.messages and batch.count() < 0:",
        ("tests/unit/source/test_foreach_batch.py",),
    ),
    Mutant(
        "what a full disk did not take of a file passes for written",
        "        while left:\n            left = left[", "        if left:\n            left = left[",
        ("tests/unit/journal/test_staging.py",),
    ),
    Mutant(
        "commits of any query prove the batch",
        "        if progress.id().toString() == self.query_id:\n", "        if progress:\n",
        ("tests/unit/source/test_proof_listener.py",),
    ),
    Mutant(
        "commits are listened to where nobody tells of them",
        "query.sparkSession().streams()", "session._jsparkSession.streams()", ("tests/unit/source/test_proof_listener.py",),
    ),
    Mutant(
        "a merged file may be lost with its parts in a power loss",
        '[*(f"{self.key}/{file.path}" for file in added), log_key(self.key, version - 1)]',
        "[log_key(self.key, version - 1)]", ("tests/unit/journal/test_message_compaction.py",),
    ),
    Mutant(
        "a checkpoint may be lost with the entries before it in a power loss",
        "disappeared while it was written\")\n    if durable:\n", "disappeared while it was written\")\n    if False:\n",
        ("tests/unit/journal/test_delta.py",),
    ),
    Mutant(
        "a checkpoint of the control log may be lost with the entries before it in a power loss",
        "        store.write(key, data)\n    if durable:\n", "        store.write(key, data)\n    if False:\n",
        ("tests/unit/journal/test_power_promises.py",),
    ),
    Mutant(
        "a checkpoint of the control log is made while entries alone hold records",
        "        if keeps_control or self._is_flush_due(now_ms):\n",
        "        if not keeps_control and self._is_flush_due(now_ms):\n",
        ("tests/unit/journal/test_upkeep.py",),
    ),
    Mutant(
        "records that an entry held are there twice once a file has them",
        "for at, held in self.held.items() if not _has(block, held)}", "for at, held in self.held.items()}",
        ("tests/unit/journal/test_control_log.py",),
    ),
    Mutant(
        "a checkpoint of others hides records that entries alone hold",
        "                _hold_earlier(store, table, get)\n", "", ("tests/unit/journal/test_recovery.py",),
    ),
    Mutant(
        "a checkpoint of others after a repair hides records that entries alone hold",
        "    while entry is not None and entry.mark.get(\"writer\") not in (\"coordinator\", \"creator\"):\n", "    while False:\n",
        ("tests/unit/journal/test_recovery.py",),
    ),
    Mutant(
        "an entry holds definitions, which nothing then finds",
        "    if any(row.kind in SEPARATE_KINDS for row in rows):\n        return False\n", "",
        ("tests/unit/journal/test_control_log.py",),
    ),
    Mutant(
        "a reign that is over makes a checkpoint where nothing is left to write",
        "            # Whoever makes a checkpoint now must still reign, too.\n            self.check(epoch=epoch)\n",
        "            pass\n", ("tests/unit/journal/test_upkeep.py",),
    ),
    Mutant(
        "a wrong hint at a checkpoint hides the log",
        "    if not (any(map(is_checkpoint, keys)) and any(map(is_entry, keys))):\n", "    if not hint:\n",
        ("tests/unit/journal/test_recovery.py",),
    ),
    Mutant(
        "a reader that goes on entry by entry reads records again once files have them",
        "if block.first >= self._next_of(blocks)]", "]", ("tests/unit/dashboard/test_following.py",),
    ),
    Mutant(
        "a file of records goes that only a young file holds otherwise",
        "return at >= 0 and record", "return record", ("tests/unit/journal/test_control_leftovers.py",),
    ),
    Mutant(
        "a snapshot makes objects of any class that the core imports",
        "isinstance(found, type) and found.__module__ == _CORE + module", "isinstance(found, type)",
        ("tests/unit/journal/test_state_codec.py",),
    ),
    Mutant(
        "a stream of a queue leaves out messages of another topic than the first",
        "topic=target.topic or None,", "topic=target.topic or 'LINES',", ("tests/unit/source/test_reads.py",),
    ),
    Mutant(
        "a read takes another journal at its place for its own",
        "if journal.journal_id != self._journal_id:", "if journal.journal_id == '':", ("tests/unit/source/test_reads.py",),
    ),
    Mutant(
        "the end of a planner cuts its leave short",
        "        _on_sigterm(signal.SIG_IGN)\n", "", ("tests/unit/source/test_stream_reader.py",),
    ),
    Mutant(
        "the Java on the PATH is asked, although Spark starts the one of JAVA_HOME",
        "java=${JAVA_HOME:+$JAVA_HOME/bin/}java\n", "java=java\n", ("tests/unit/test_java.py",),
    ),
    Mutant(
        "a client of Spark Connect has to have a Java",
        'options.get("spark.remote", os.environ.get("SPARK_REMOTE", ""))', 'options.get("spark.remote", "")',
        ("tests/unit/test_java.py",),
    ),
    Mutant(
        "merging drops a column that somebody took out of the table",
        "            if other:\n                raise ValueError", "            if not rows:\n                raise ValueError",
        ("tests/unit/journal/test_message_compaction.py",),
    ),
    Mutant(
        "one type's table keeps a publisher from all others",
        "            if trouble.code in (\"STORE_FAILED\", \"PUBLISH_CONTENDED\"):\n                # A failure",
        "            if trouble.code:\n                # A failure",
        ("tests/unit/journal/test_publisher.py",),
    ),
    Mutant(
        "one type's table keeps all others from the news of definitions",
        "            if trouble.code in (\"STORE_FAILED\", \"PUBLISH_CONTENDED\"):\n                raise\n            _LOG",
        "            if trouble.code:\n                raise\n            _LOG", ("tests/unit/client/test_changed_definitions.py",),
    ),
    Mutant(
        "what delta-rs raises that is no error of Delta's is a traceback",
        "REFUSALS = (DeltaError, ValueError)", "REFUSALS = (DeltaError,)", ("tests/unit/journal/test_delta.py",),
    ),
    Mutant(
        "definitions of one type need the table of another",
        "                    if message_type != before.message_types.get(name):\n", "                    if name:\n",
        ("tests/unit/coordinator/test_commands.py",),
    ),
    Mutant(
        "a coordinator writes on in the journal that was made anew at its place",
        "            self._check_standing(base, epoch=epoch)\n", "            pass\n", ("tests/unit/journal/test_control_log.py",),
    ),
    Mutant(
        "a backup lacks a file that was gone already, and says nothing",
        "    _check_whole(store, destination, {key for key, is_there in zip(keys, copied, strict=True) if is_there})\n",
        "    if not all(copied):\n"
        "        _check_whole(store, destination, {key for key, is_there in zip(keys, copied, strict=True) if is_there})\n",
        ("tests/unit/cli/test_backup.py",),
    ),
    Mutant(
        "marks of a later version are read as if they were known",
        "    if not isinstance(version, int) or version > MARK_VERSION:\n", "    if False:\n",
        ("tests/unit/journal/test_golden.py",),
    ),
    Mutant(
        "a failure of one call is told to those that were committed beside it",
        "            except Exception as failure:  # noqa: BLE001 - those beside them were committed all the same.\n",
        "            except AssertionError as failure:\n",
        ("tests/unit/client/test_shared_target.py",),
    ),
    Mutant(
        "a thread that cannot be started hangs whoever publishes later",
        "                        self._arrived.clear()\n", "                        pass\n",
        ("tests/unit/client/test_shared_target.py",),
    ),
)  # fmt: skip
