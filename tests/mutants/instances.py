"""Bugs in replicated queues: whose a message is, and what is believed of a peer."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CORE = "spark_queue/core"
_OWNERSHIP = f"{_CORE}/state/ownership.py"
_FOLD = f"{_CORE}/state/folds/replication.py"
_REPLICATING = f"{_CORE}/deciding/instances/replicating.py"
_TRANSFERS = f"{_CORE}/deciding/instances/transfers.py"
_REQUESTS = f"{_CORE}/deciding/instances/requests.py"
_PATIENCE = f"{_CORE}/deciding/instances/patience.py"
_PEERS = f"{_CORE}/state/folds/peers.py"
_NEWS = "spark_queue/replication/news.py"
_CHECKING = "spark_queue/replication/checking.py"
_PULLER = "spark_queue/replication/puller.py"
_FETCHING = "spark_queue/replication/fetching.py"
_HOSTILE = "tests/unit/replication/test_hostile_peers.py"
_JOURNALS = "tests/unit/replication/test_hostile_journals.py"
_REFUSED = f"{_HOSTILE}::test_a_record_that_no_peer_may_write_is_refused"
_TESTS = (
    "tests/unit/core/test_replication.py", "tests/unit/core/test_transfers.py", "tests/unit/core/test_proxied_transfer.py",
    "tests/unit/core/test_transfers_beyond_depth.py", "tests/unit/core/test_switched_off.py",
    "tests/unit/core/test_patience.py",
    "tests/simulation/test_instances.py",
)  # fmt: skip

_TOPOLOGIES = "tests/integration/test_replication_topologies.py"
_NAMING = f"{_CORE}/deciding/instances/naming.py"
_ORIGINS = f"{_CORE}/message_files/origins.py"
_FAIL_OVER = ("tests/unit/core/test_naming.py", "tests/unit/core/test_origins.py", "tests/simulation/test_failing_over.py")
_REPEATS = ("tests/unit/replication/test_repeats.py",)

INSTANCES = (
    Mutant(
        "news of an earlier stage are believed",
        _OWNERSHIP, "            return rows - gone\n", "            return rows\n",
        _TESTS,
    ),
    Mutant(
        "news of an earlier term are believed",
        _OWNERSHIP, "if (term, owner) < (value.term, value.owner))", "if (term, owner) != (value.term, value.owner))",
        _TESTS,
    ),
    Mutant(
        "news of a later life are not believed",
        _OWNERSHIP, "            if life < value.life:\n                found |= part\n            elif", "            if",
        _TESTS,
    ),
    Mutant(
        "what another instance owns is granted all the same",
        f"{_CORE}/state/ledger.py", "        else:\n            self.take_away(rows)\n", "",
        _TESTS,
    ),
    Mutant(
        "what comes back from a lease is granted though another has claimed it",
        f"{_CORE}/state/folds/endings.py", "    ledger.take_away(rows)\n", "",
        _TESTS,
    ),
    Mutant(
        "a transfer keeps the term",
        _TRANSFERS, "    term = 1 + max(", "    term = max(",
        _TESTS,
    ),
    Mutant(
        "an owner gives away what its own subscription could take",
        _REQUESTS, "            free -= ledger.selection.matching(free, subscription.filter)\n", "            pass\n",
        _TESTS,
    ),
    Mutant(
        "a message is asked for as soon as it comes",
        _TRANSFERS, "work.now_ms - patience_ms(work, owner) for owner", "work.now_ms for owner",
        _TESTS,
    ),
    Mutant(
        "a request is made again at once",
        _TRANSFERS, "now_ms < request.at_ms + OPEN_MS", "now_ms < request.at_ms",
        _TESTS,
    ),
    Mutant(
        "how long messages take is not learned",
        _PATIENCE, "self._means_ms.get(owner, at_first_ms)", "at_first_ms",
        _TESTS,
    ),
    Mutant(
        "one slow end makes everybody wait for as long",
        _PATIENCE, "(waited_ms - mean_ms) * _WEIGHT", "(waited_ms - mean_ms)",
        _TESTS,
    ),
    Mutant(
        "a dead letter is asked for by the age of its message",
        f"{_CORE}/state/age.py", ".entered_by(at_ms)) - ledger.begun.since(at_ms)", ".entered_by(at_ms))",
        _TESTS,
    ),
    Mutant(
        "a request ends at who does not own what it asks for",
        _REQUESTS, "    _pass_on(work, ownership, rows, asked)\n", "",
        _TESTS,
    ),
    Mutant(
        "a request goes in circles",
        _REQUESTS, "_ONCE_WITHIN_MS = OPEN_MS // 2", "_ONCE_WITHIN_MS = 0",
        _TESTS,
    ),
    Mutant(
        "who asks for what the queue never had is left to ask for ever",
        _REQUESTS, "        if absent:\n", "        if False:\n",
        _TESTS,
    ),
    Mutant(
        "what may come by another way is called gone",
        _REQUESTS, "(instance == asked.peer or peer.passes(instance))", "True",
        _TESTS,
    ),
    Mutant(
        "what lies beyond the target depth is never given away",
        _REQUESTS, "(rows & (ledger.rows[State.AVAILABLE] | ledger.rows[State.INACTIVE]))", "(rows & ledger.rows[State.AVAILABLE])",
        _TESTS,
    ),
    Mutant(
        "what stands before a message beyond the target depth is passed over",
        _FOLD, "        depth.reach(ledger, rows, record.at_ms)\n", "",
        _TESTS,
    ),
    Mutant(
        "an acknowledgement before its turn is forgotten when another claims the message",
        _REPLICATING, "        if ledger.deferred:\n", "        if False:\n",
        _TESTS,
    ),
    Mutant(
        "an acknowledgement before its turn ends a later life",
        _REPLICATING, "by_life(acknowledged) if life == value.life)", "by_life(acknowledged))",
        _TESTS,
    ),
    Mutant(
        "values are forgotten while a queue is pulled from nobody",
        _PEERS, "known = ledger.ownership is not None and ledger.definition.ownership != LOCAL", "known = False",
        _TESTS,
    ),
    Mutant(
        "claims need nobody's word",
        _TRANSFERS, "ownership.claims_unreachable and work.reach.is_level", "work.reach.is_level",
        _TESTS,
    ),
    Mutant(
        "claims do not wait for the news of those who can be read",
        _TRANSFERS, "ownership.claims_unreachable and work.reach.is_level", "ownership.claims_unreachable",
        _TESTS,
    ),
    Mutant(
        "an owner that lives is claimed from",
        f"{_CORE}/deciding/instances/reach.py", "return now_ms >= heard_at_ms + after_ms", "return True",
        _TESTS,
    ),
    Mutant(
        "a letter stands on though its message was redriven elsewhere",
        _REPLICATING, "    over = (to_bitmap(record.ranges) & standing) - source.rows[State.DEAD]\n", "    over = BitMap64()\n",
        _TESTS,
    ),
    Mutant(
        "a record speaks of several lives",
        f"{_CORE}/deciding/instances/lives.py", "if ledger is None or ledger.ownership is None:", "if True:",
        _TESTS,
    ),
    Mutant(
        "a redrive belongs to nobody",
        _NEWS, "return MessageValue(life, Stage.PRESENT, 0, initial or self.instance)", "return None",
        _TESTS,
    ),
    Mutant(
        "an acknowledgement is not told",
        _NEWS, "                return MessageValue(life, Stage.GONE)\n            case Kind.REDRIVEN if",
        "                return None\n            case Kind.REDRIVEN if",
        _TESTS,
    ),
    Mutant(
        "ranges of a peer are expanded as they are",
        _NEWS, "[(first, min(until, known.entered_until)) for first", "[(first, until) for first",
        ("tests/unit/replication",),
    ),
    Mutant(
        "what is held is taken again",
        f"{_CORE}/message_files/origins.py", "            self.held[origin].range_cardinality(bookmark, bookmark + length)\n",
        "            False\n",
        ("tests/unit/core/test_origins.py",),
    ),
    Mutant(
        "neighbours that do not go on become one stretch",
        f"{_CORE}/message_files/origins.py", "before.until == first and before.there + before.length == there",
        "before.until == first",
        ("tests/unit/core/test_origins.py",),
    ),
    Mutant(
        "a piece goes on where another origin begins",
        "spark_queue/journal/segments.py", "        ends = np.minimum(ends, published.until_of(starts))\n", "        pass\n",
        ("tests/unit/journal/test_segments.py",),
    ),
    Mutant(
        "a partition that begins within a piece tells the origin of its first row",
        "spark_queue/source/planning.py", '"bookmark", "origin_bookmark")\n\n_Columns', '"bookmark")\n\n_Columns',
        ("tests/unit/source/test_origins.py",),
    ),
    Mutant(
        "what an instance does not know of its peer is not looked for",
        "spark_queue/verification/instances.py", "    return missing | ownership.lesser(", "    return missing & ownership.lesser(",
        ("tests/unit/cli/test_verify_peers.py",),
    ),
    Mutant(
        "a publish is told as replicated as soon as it has entered",
        "spark_queue/client/replicated.py", "log.pulled >= max(entered.values(), default=-1)", "log.pulled >= -1",
        ("tests/unit/client/test_replicated.py",),
    ),
    Mutant(
        "a view says of every message that it is owned here",
        "spark_queue/views/messages.py", 'columns.put("owner", members, owner)',
        'columns.put("owner", members, ledger.ownership.instance)',
        ("tests/unit/views/test_instances.py",),
    ),
    Mutant(
        "a watermark of another journal is gone on from",
        "spark_queue/replication/puller.py", "        if created != watermark.journal:", "        if False:",
        ("tests/unit/replication",),
    ),
    Mutant(
        "message files do not wait for peers",
        "spark_queue/core/retention.py", "end=min(end, waited_for)", "end=end",
        ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "what was lost before it was pulled is passed over in silence",
        _FETCHING, "if lost and not skips:", "if False:",
        ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "what enters after a restore is taken for what was lost",
        "spark_queue/core/message_files/origins.py", "starts = [(0, own), *self.renewed]", "starts = [(0, own)]",
        ("tests/unit/replication/test_restored.py",),
    ),
    Mutant(
        "a log that went back is read on",
        "spark_queue/replication/peer_log.py", "                self._check_last()\n", "",
        ("tests/unit/replication/test_restored.py",),
    ),
    Mutant(
        "a peer that was restored is read on before anybody says so",
        "spark_queue/replication/restored.py",
        "    if not any(record.kind == Kind.RESTORED and record.record > common for record in records):\n", "    if False:\n",
        ("tests/unit/replication/test_restored.py",),
    ),
    Mutant(
        "a journal that was restored goes on as if nothing were lost",
        "spark_queue/replication/restored.py", "    if not marks:\n", "    if True:\n",
        ("tests/unit/replication/test_restored.py",),
    ),
    Mutant(
        "an instance that lives is forgotten",
        "spark_queue/core/deciding/instances/peer_changes.py", "if heard_ms is not None and heard_ms < after_ms:", "if False:",
        ("tests/unit/core/test_peer_changes.py",),
    ),
    Mutant(
        "a drain is over before the peer has heard of it",
        "spark_queue/core/deciding/instances/peer_changes.py", "and pulled is not None and pulled >= record", "",
        ("tests/unit/core/test_peer_changes.py",),
    ),
    Mutant(
        "a peer may have any name",
        "spark_queue/replication/puller.py", "            self._check_name()\n", "",
        ("tests/unit/replication",),
    ),
    Mutant(
        "an old request is answered",
        "spark_queue/replication/puller.py", "and not is_over:", "and True:",
        ("tests/unit/replication",),
    ),
    Mutant(
        "a further name brings no value",
        _NAMING, "    changed = ledger.ownership.lesser(ledger.rows, rows, value)\n", "    changed = BitMap64()\n",
        _FAIL_OVER,
    ),
    Mutant(
        "a further name makes its instance the owner, whatever has happened",
        _NAMING, "    changed = ledger.ownership.lesser(ledger.rows, rows, value)\n",
        "    changed = rows\n",
        _FAIL_OVER,
    ),
    Mutant(
        "news are told by the first name alone",
        _ORIGINS, "            there = known.of(rows)\n", "            there = BitMap64()\n",
        _FAIL_OVER,
    ),
    Mutant(
        "a queue that begins later gives a message of two to the first",
        f"{_CORE}/state/folds/peers.py", "if known < owner)", "if False)",
        _FAIL_OVER,
    ),
    Mutant(
        "what was published during a copy is not looked at",
        "spark_queue/journal/entering.py", "if known.may_repeat(files.publishers, since=files.compared_until):", "if False:",
        _REPEATS,
    ),
    Mutant(
        "a pulled publisher's number goes back",
        "spark_queue/journal/message_log.py", "if (found := known[name]) is None or last > found}", "if last != known[name]}",
        _REPEATS,
    ),
    Mutant(
        "a number alone makes two messages one",
        "spark_queue/replication/repeats.py", "same &= np.array(", "same |= np.array(",
        _REPEATS,
    ),
    Mutant(
        "a peer in another store is read with the own credentials",
        "spark_queue/replication/peer_stores.py", "max(names, key=len)] if names else", "max(names, key=len)] if not path else",
        ("tests/unit/replication",),
    ),
    Mutant(
        "a store goes by a name that another one's only begins with",
        "spark_queue/replication/peer_stores.py", "{name.rstrip('/')}/\")", "{name.rstrip('/')}\")",
        ("tests/unit/replication",),
    ),
    Mutant(
        "what an instance has heard of others goes no further",
        _NEWS, "            case Kind.TRANSFERRED | Kind.REPLICATED:\n", "            case Kind.TRANSFERRED:\n",
        (_TOPOLOGIES,),
    ),
    Mutant(
        "messages pass through where they may not",
        "spark_queue/replication/copying.py", "            if not self._passes(fold, origin):\n", "            if False:\n",
        ("tests/unit/replication",),
    ),
    Mutant(
        "an archive hears of outcomes",
        "spark_queue/replication/puller.py", "found is not None and found.queue in self._definition.queues and not is_over:",
        "found is not None and not is_over:",
        (_TOPOLOGIES,),
    ),
    Mutant(
        "a file of a peer may have any path",
        _CHECKING, "        if _PATH.fullmatch(path) is None:", "        if False:",
        (f"{_REFUSED}[path leaves its folder]",),
    ),
    Mutant(
        "a peer may give a journal another name",
        _CHECKING, "        if before != name:", "        if False:",
        (f"{_REFUSED}[an origin under two names]",),
    ),
    Mutant(
        "a peer asks in the name of another",
        _CHECKING, "if detail.requester != known.instance and not detail.passed:", "if False:",
        (f"{_REFUSED}[a request in the name of another]",),
    ),
    Mutant(
        "a peer lets a message in twice",
        _CHECKING, '"messages of an origin enter twice." if twice or message_type.origins.holds(origins) else None', "None",
        (f"{_REFUSED}[a message that enters twice]",),
    ),
    Mutant(
        "a record of a peer may be of any size",
        "spark_queue/replication/peer_records.py", "            if found > most:", "            if False:",
        (f"{_REFUSED}[a record of 100 MB]",),
    ),
    Mutant(
        "a peer publishes in the name of this journal",
        _FETCHING, "            if origin == own_origin and ", "            if False and ",
        (f"{_JOURNALS}::test_messages_that_were_never_published_here_are_no_messages_of_ours",),
    ),
    Mutant(
        "what came before a refusal is not taken",
        _PULLER, "if refusal is None or self._fold.definitions.journal.instance is not None:", "if refusal is None:",
        (f"{_REFUSED}[a transfer to nobody]",),
    ),
    Mutant(
        "one message type that differs stops all others",
        _FETCHING, '                    if differs.code != "MESSAGE_TYPE_DIFFERS":', "                    if True:",
        (f"{_JOURNALS}::test_another_type_of_a_column_stops_that_message_type_alone",),
    ),
    Mutant(
        "a file that was merged since it entered is lost",
        _FETCHING, '            if failed.reason.code != "MESSAGE_FILE_MISSING":', "            if True:",
        ("tests/unit/replication/test_peer_log.py",),
    ),
    Mutant(
        "a bug in taking over what a peer says ends the reign",
        f"{_CORE}/deciding/engine.py", "            if begun:\n                raise\n", "            raise\n",
        ("tests/unit/coordinator/test_loop_pulls.py",),
    ),
    Mutant(
        "each look at a peer's log lists it",
        "spark_queue/replication/peer_log.py", "if not is_broken and self._idle_looks < LISTING_LOOKS:", "if False:",
        ("tests/unit/replication/test_peer_log.py",),
    ),
)  # fmt: skip
