"""Bugs in what is read and believed of peers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CHANGED = "tests/unit/replication/test_changed_definitions.py"
_HOSTILE = "tests/unit/replication/test_hostile_peers.py"
_JOURNALS = "tests/unit/replication/test_hostile_journals.py"
_REFUSED = f"{_HOSTILE}::test_a_record_that_no_peer_may_write_is_refused"
_TESTS = (
    "tests/unit/core/test_replication.py", "tests/unit/core/test_transfers.py", "tests/unit/core/test_proxied_transfer.py",
    "tests/unit/core/test_transfers_beyond_depth.py", "tests/unit/core/test_switched_off.py", "tests/unit/core/test_scenarios.py",
    "tests/simulation/test_instances.py",
)  # fmt: skip
_FITTING_TESTS = (
    "tests/unit/replication/test_puller.py", "tests/unit/replication/test_changed_definitions.py",
    "tests/unit/coordinator/test_loop_pulls.py",
)  # fmt: skip

PEERS = (
    Mutant(
        "a peer's torn checkpoint keeps others from its log", "control_table.read(store, get=get, skips_torn=True)",
        "control_table.read(store, get=get)", ("tests/unit/replication/test_hostile_stores.py",),
    ),
    Mutant(
        "the kind of a newer record stands in the log as it is",
        "of kind {str(kind)[:50]!r}", "of kind '{kind}'", (f"{_JOURNALS}::test_what_a_peer_calls_a_kind_forges_no_line_of_a_log",),
    ),
    Mutant(
        "news about a queue that is another one there are taken",
        " and not self._fit.withholds(news.queue)]", "]", _FITTING_TESTS,
    ),
    Mutant(
        "a queue that is another one there counts as broken",
        " for queue in queues if queue not in withheld)", " for queue in queues)", ("tests/unit/cli/test_verify_peers.py",),
    ),
    Mutant(
        "a peer's record with a fault is passed over",
        "if record.body.fault is not None and _tells(BODIES[record.kind]):", "if False:",
        ("tests/unit/replication/test_hostile_peers.py",),
    ),
    Mutant(
        "what was asked for long ago counts as open at the end of each chunk",
        "record.at_ms < self._newest_ms - OPEN_MS", "record.at_ms < records[-1].at_ms - OPEN_MS",
        ("tests/unit/replication/test_peer_log.py",),
    ),
    Mutant(
        "news that waited are not read again",
        "return bool(self._waiting - _withheld(self._now))", "return False", _FITTING_TESTS,
    ),
    Mutant("a coordinator that begins does not know which news waited", "else _withheld(told)", "else frozenset()", _FITTING_TESTS),
    Mutant(
        "what may not pass through reaches everybody",
        "peer.passes(origin, known[origin]", "True or (origin, known[origin]", _FITTING_TESTS,
    ),
    Mutant(
        "the queue of another domain counts as the same",
        "return queue.group_local_domain or of.journal.group or of.journal.instance",
        "return queue.group_local_domain", _FITTING_TESTS,
    ),
    Mutant(
        "a coordinator with peers ends when nobody calls",
        "self._ends_idle and not state.is_shared", "self._ends_idle", ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "whoever was never heard of is reachable for ever",
        "        self._engine.liveness.listen(others, now_ms=now_ms)\n", "", ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "a host that slept was not silent",
        "max(now - then for", "min(now - then for", ("tests/unit/replication/test_pullers.py",),
    ),
    Mutant(
        "a store that hangs is looked at for ever",
        "return time.monotonic() - RENEWAL_S if self._hangs() else self._looked_s", "return self._looked_s",
        ("tests/unit/replication/test_pullers.py",),
    ),
    Mutant(
        "whose store hangs can be read",
        "return self._hangs() or (not", "return (not", ("tests/unit/replication/test_pullers.py",),
    ),
    Mutant(
        "a peer that is being read counts by the last step that ended",
        "(not self._is_stepping and is_unreadable(", "(is_unreadable(", ("tests/unit/replication/test_pullers.py",),
    ),
    Mutant(
        "who names no peer any more shows no life",
        "return bool(self.definitions.peers or self.pulled or any(known.told for known in self.message_types.values()))",
        "return bool(self.definitions.peers)",
        ("tests/unit/coordinator/test_loop_pulls.py", "tests/unit/coordinator/test_returning.py"),
    ),
    Mutant(
        "who remembers shared messages and names no peer writes no beacon",
        "        if shows_life and definitions.journal.instance is not None:\n",
        "        if definitions.peers and definitions.journal.instance is not None:\n", ("tests/unit/replication/test_pullers.py",),
    ),
    Mutant(
        "who names no peer any more delivers what it shared whether others see it or not",
        "return is_heard or not self.ledger.is_replicated", "return is_heard or not self.state.definitions.is_replicated(queue)",
        ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "messages enter uncompared without a word",
        '        return JournalError("JOURNAL_UNCOMPARED", peer=peer, path=self._journal.path)\n',
        "        return report.trouble\n", ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "who never looked has looked",
        "        self._looked_s = 0.0\n", "        self._looked_s = time.monotonic()\n",
        ("tests/unit/replication/test_pullers.py",),
    ),
    Mutant(
        "a log that is begun anew is pulled to its end",
        "began_s if self.last.is_at_end else self.level_s", "began_s", ("tests/unit/replication/test_pullers.py",),
    ),
    Mutant(
        "nobody looks sooner for what is claimed",
        "            self.is_to_look.wait(max(", "            self._told_to_end.wait(max(",
        ("tests/unit/replication/test_pullers.py",),
    ),
    Mutant("who may be missed grants", "3 * silence_ms >= 2 * after_ms", "False", ("tests/unit/coordinator/test_returning.py",)),
    Mutant(
        "who was missed goes on at once",
        "                self._gaps.append(gap_ms)\n",
        "                pass\n", ("tests/unit/replication/test_pullers.py",),
    ),
    Mutant(
        "who was away goes on at once",
        "if gap_ms is None or 3 * gap_ms >= 2 * after_ms:",
        "if gap_ms is None:", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "who has no beacon was never away",
        "if gap_ms is None or 3 * gap_ms >= 2 * after_ms:",
        "if gap_ms is not None and 3 * gap_ms >= 2 * after_ms:", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "who returns does not ask whether others know",
        "if not pulls or heard.peers[peer].seen_own >= self._number or self._engine.liveness.is_silent(peer):",
        "if True:", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "who returns waits for ever for who does not run",
        "self._number or self._engine.liveness.is_silent(peer):", "self._number:", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "who returns waits for ever for who does not know it",
        "if not pulls or heard", "if heard", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "who returns goes on by what was pulled before",
        "now_ms - peer.level_age_ms > answered_ms", "True", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "who returns may be silent meanwhile",
        "heard.own_age_ms >= GAP_MS:", "False:", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "what was heard before its own silence counts",
        "            self._hear_anew()\n            if gap_ms", "            if gap_ms",
        ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "who is new waits for all",
        "        if joins:\n            # Nobody", "        if False:\n            # Nobody",
        ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "nobody can let it return without a peer",
        "awaited = shared - returning.excused_peers", "awaited = shared", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "who was put back from a backup of a moment ago goes on at once",
        "return self.is_searched and not self.is_mute", "return not self.is_mute", ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "a queue that is put back grants at once",
        "        if begun:\n            self.look(", "        if False:\n            self.look(",
        ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "all queues wait for one that is put back",
        "        return not self.queues or queue in self.queues\n", "        return True\n",
        ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "the second queue that begins waits alone",
        "known.queues | wanted if known.queues and wanted", "wanted if known.queues and wanted",
        ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "a copy has only the columns that are declared here",
        "        return pa.schema([*more, *declared])\n", "        return declared\n",
        (f"{_CHANGED}::test_a_column_is_added_at_one_site_after_the_other",),
    ),
    Mutant(
        "a merged file loses the columns of others",
        "names = self._stored[message_type] = widen(self._own, message_type, self._definition.name, more, durable=plan.durable)",
        "pass", (f"{_CHANGED}::test_a_column_is_added_at_one_site_after_the_other",),
    ),
    Mutant(
        "a column that others have may be declared as another",
        "if (wanted.type, wanted.nullable) != (field.type, field.nullable):", "if field.name in declared.names[:1]:", (_CHANGED,),
    ),
    Mutant(
        "two peers may have a column in two types",
        "lambda there: of_others(message_type, peer, pa.schema(fields), there)",
        "lambda there: [field for field in fields if field.name not in there.names]",
        (f"{_CHANGED}::test_another_column_of_one_name_that_nobody_declares_here_stops_its_message_type",),
    ),
    Mutant(
        "a peer may make a table ever wider",
        "        if len(names) + len(new) > COLUMNS_MOST:", "        if False:", (_CHANGED,),
    ),
    Mutant(
        "a column may be undeclared",
        "            check_kept(name, state", "            len((name, state)) or check_kept(name, state",
        (f"{_CHANGED}::test_a_column_is_added_at_one_site_after_the_other",),
    ),
    Mutant(
        "news of a queue wait while one site has a column more",
        "rule = Rule.SAME_MEMBERS if agree(own_columns, columns) else Rule.SAME_DEFINITION", "rule = Rule.SAME_DEFINITION",
        (f"{_CHANGED}::test_a_column_is_added_at_one_site_after_the_other",),
    ),
    Mutant(
        "what keeps a peer from being pulled stands in no log",
        "                self._engine.note_trouble(peer, error, now_ms=now_ms)\n", "                pass\n",
        ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "a store that fails once is an alarm",
        "if not code or not may_pass(trouble) or now_ms", "if True or now_ms", ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "a journal that was restored lets nothing in",
        "not (is_shared and self._engine.liveness.restored)", "not self._engine.liveness.restored",
        ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "who returns grants",
        "if is_paused(work, subscription) or not work.may_grant():", "if is_paused(work, subscription):",
        ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "who returns hands over again what it had granted before",
        "        if not work.may_grant():\n            return None\n", "", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "a bounded run does not wait for who returns",
        "        return bool(grantable(work, subscription))\n", "        return False\n",
        ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "a planner that begins anew takes what came back to who returns",
        "came_back) if work.may_grant() else BitMap64()", "came_back)", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant(
        "a return ends with the reign",
        "if state.returning is not None and self._is_back(",
        "if state.returning is not None and self._number is None or self._is_back(", ("tests/unit/coordinator/test_returning.py",),
    ),
    Mutant("a copy of a peer's journal is a second peer", "            self._refuse_twin(request)\n", "", _FITTING_TESTS),
    Mutant(
        "a redrive belongs to nobody",
        "return MessageValue(life, Stage.PRESENT, 0, initial or self.instance)", "return None", _TESTS,
    ),
    Mutant(
        "an acknowledgement is not told",
        "                return MessageValue(life, Stage.GONE)\n            case Redriven(life=life, stage",
        "                return None\n            case Redriven(life=life, stage", _TESTS,
    ),
    Mutant(
        "ranges of a peer are expanded as they are",
        "[(first, min(until, known.entered_until)) for first", "[(first, until) for first", ("tests/unit/replication",),
    ),
    Mutant(
        "a piece goes on where another origin begins",
        "        ends = np.minimum(ends, published.until_of(starts))\n", "        pass\n", ("tests/unit/journal/test_segments.py",),
    ),
    Mutant(
        "a partition that begins within a piece tells the origin of its first row",
        '"bookmark", "origin_bookmark")\n_Columns', '"bookmark")\n_Columns',
        ("tests/unit/source/test_origins.py",),
    ),
    Mutant(
        "what an instance does not know of its peer is not looked for",
        "    return missing | ledger.ownership.lesser(", "    return missing & ledger.ownership.lesser(",
        ("tests/unit/cli/test_verify_peers.py",),
    ),
    Mutant(
        "a publish is told as replicated as soon as it has entered",
        "any(found >= record for", "any(True for", ("tests/unit/client/test_replicated.py",),
    ),
    Mutant(
        "what was pulled before a backup was restored counts as new",
        "for each, found in self.pulled.items() if origin in (None, each))",
        "for each, found in self.pulled.items())", ("tests/unit/client/test_replicated.py",),
    ),
    Mutant(
        "a view says of every message that it is owned here",
        'columns.put("owner", members, owner)',
        'columns.put("owner", members, ledger.ownership.instance)',
        ("tests/unit/views/test_instances.py",),
    ),
    Mutant(
        "a watermark of another journal is gone on from",
        "        if created.journal != watermark.journal:", "        if False:", ("tests/unit/replication",),
    ),
    Mutant(
        "who skips what is lost skips only the first part of it",
        "gaps_after = before.gaps_after if body",
        "gaps_after = -1 if body",
        ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "what waits is noted as told before the log says so",
        "        try:\n            taken = False\n",
        "        self._note_told()\n        try:\n            taken = False\n",
        ("tests/unit/replication/test_changed_definitions.py",),
    ),
    Mutant(
        "what was lost before it was pulled is passed over in silence",
        "if lost and segment.record > self._gaps_after:", "if False:", ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "a log that went back is read on",
        "                self.check_last()\n", "", ("tests/unit/replication/test_restored.py",),
    ),
    Mutant(
        "a peer that was restored is read on before anybody says so",
        "    if restored <= common:\n", "    if False:\n", ("tests/unit/replication/test_restored.py",),
    ),
    Mutant(
        "a journal that was restored goes on as if nothing were lost",
        "    if lost is None:\n", "    if True:\n", ("tests/unit/replication/test_restored.py",), within="check_own",
    ),
    Mutant(
        "what a peer has copied and not said yet is no sign that it was lost here",
        "        copied[name] = max(copied.get(name, 0), *ends, 0)\n", "        pass\n",
        ("tests/unit/replication/test_restored.py",),
    ),
    Mutant(
        "what was published since a puller began is taken for lost",
        "        lost = _lost(look(), copied)\n", "        pass\n", ("tests/unit/replication/test_restored.py",),
    ),
    Mutant("a peer may have any name", "            self._check_name()\n", "", ("tests/unit/replication",)),
    Mutant(
        "an old request is answered",
        " or (news.requested is not None and record.at_ms < self._newest_ms - OPEN_MS)", "", ("tests/unit/replication",),
    ),
    Mutant(
        "a peer in another store is read with the own credentials",
        "max(names, key=len)] if names else", "max(names, key=len)] if not path else", ("tests/unit/replication",),
    ),
    Mutant(
        "a store goes by a name that another one's only begins with",
        "{name.rstrip('/')}/\")", "{name.rstrip('/')}\")", ("tests/unit/replication",),
    ),
    Mutant(
        "what an instance has heard of others goes no further",
        "            case Transferred() | Replicated() as body:\n", "            case Transferred() as body:\n",
        ("tests/integration/test_replication.py::test_along_a_chain_messages_outcomes_and_ownership_reach_the_other_end",),
    ),
    Mutant(
        "messages pass through where they may not",
        "if not self._passes(segment, origin):", "if False:", ("tests/unit/replication",),
    ),
    Mutant(
        "messages of a group pass through for the next instance only",
        "groups=mark.groups,", "groups={},", ("tests/unit/replication/test_changed_definitions.py",),
    ),
    Mutant(
        "an archive hears of outcomes",
        "not self._is_wanted(news) or (news.requested",
        "(news.requested", ("tests/unit/replication/test_puller.py",),
    ),
    Mutant(
        "a peer is heard of as often as it is pulled",
        '        threading.Thread(target=self._listen, name=f"beacon-of-{self._peer}", daemon=True).start()\n', "",
        ("tests/unit/replication/test_pullers.py",),
    ),
    Mutant(
        "a file of a peer may have any number of publishers",
        "if size_bytes > PUBLISHERS_BYTES:", "if False:", (f"{_JOURNALS}::test_a_file_of_ever_more_publishers_is_refused",),
    ),
    Mutant(
        "a peer makes another instance seem silent by a number that it never had",
        "self._said.get((peer, instance), -1), ", "self._newest.get(instance, -1), ", ("tests/unit/replication/test_pullers.py",),
    ),
    Mutant(
        "a file of a peer may have any path",
        " if _PATH.fullmatch(path) is None]", " if False]", (f"{_REFUSED}[path leaves its folder]",),
    ),
    Mutant(
        "a peer may give a journal another name",
        "        if before != name:", "        if False:", (f"{_REFUSED}[an origin under two names]",),
    ),
    Mutant(
        "a peer asks in the name of another",
        "if body.requester != known.instance and not body.passed:", "if False:", (f"{_REFUSED}[a request in the name of another]",),
    ),
    Mutant(
        "a peer lets a message in twice",
        '"messages of an origin enter twice." if twice or message_type.origins.holds(origins) else None', "None",
        (f"{_REFUSED}[a message that enters twice]",),
    ),
    Mutant(
        "a peer publishes in the name of this journal",
        "            if origin == own_origin and ", "            if False and ",
        ("tests/unit/replication/test_hostile_peers.py::test_messages_that_were_never_published_here_are_no_messages_of_ours",),
    ),
    Mutant(
        "what came before a refusal is not taken",
        "if self._fold.definitions.journal.instance is not None or (refusal is None and", "if (refusal is None and",
        (f"{_REFUSED}[a transfer to nobody]",),
    ),
    Mutant(
        "one message type that differs stops all others",
        '                    if differs.code != "MESSAGE_TYPE_DIFFERS":', "                    if True:",
        (f"{_JOURNALS}::test_another_type_of_a_column_stops_that_message_type_alone",),
    ),
    Mutant(
        "a file that was merged since it entered is lost",
        '            if failed.reason.code != "MESSAGE_FILE_MISSING":', "            if True:",
        ("tests/unit/replication/test_peer_log.py",),
    ),
    Mutant(
        "each look at a peer's log lists it",
        "if not is_broken and self._idle_looks < LISTING_LOOKS:", "if False:", ("tests/unit/replication/test_peer_log.py",),
    ),
    Mutant(
        "news are gone that were not taken at once",
        "            while not taken:\n", "            for _ in range(1):\n", ("tests/unit/replication/test_puller.py",),
    ),
    Mutant(
        "what a peer has not told yet never comes to it",
        "never = BitMap64() if there is None else below(", "never = below(",
        ("tests/unit/core/test_peer_changes.py::test_what_never_comes_to_a_peer_is_not_handed_over",),
    ),
    Mutant(
        "a backup may lack a file that it needs",
        "        if key not in copied:\n", "        if False:\n",
        ("tests/unit/cli/test_backup.py::test_a_file_that_goes_before_it_is_copied_is_told",),
    ),
    Mutant(
        "a backup settles its records after its messages",
        """        control = _read_control(store, destination)
        logs = [key for table in _tables(store) for key in _log_of(store, table)]
""",
        """        logs = [key for table in _tables(store) for key in _log_of(store, table)]
        control = _read_control(store, destination)
""",
        ("tests/unit/cli/test_backup.py::test_a_copy_has_the_messages_that_entered_right_before_its_records_were_read",),
    ),
    Mutant(
        "a backup takes message logs that name definitions which it lacks",
        "if read_setup(store)[-1].record == applied:", "if read_setup(store)[-1].record >= applied:",
        ("tests/unit/cli/test_backup.py",),
    ),
)  # fmt: skip
