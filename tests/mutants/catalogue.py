"""What is planted, and which tests must notice; the fastest ones, so that all of them run in minutes."""

from __future__ import annotations

from tests.mutants.beginning import BEGINNING
from tests.mutants.core import CORE
from tests.mutants.dashboard import DASHBOARD
from tests.mutants.deciding import DECIDING
from tests.mutants.escaped import ESCAPED
from tests.mutants.evaluating import EVALUATING
from tests.mutants.failing import FAILING
from tests.mutants.failing_over import FAILING_OVER
from tests.mutants.faults import FAULTS
from tests.mutants.following import FOLLOWING
from tests.mutants.following_shown import FOLLOWING_SHOWN
from tests.mutants.hostile import HOSTILE
from tests.mutants.instances import INSTANCES
from tests.mutants.keeping import KEEPING
from tests.mutants.letters import LETTERS
from tests.mutants.membership import MEMBERSHIP
from tests.mutants.metrics import METRICS
from tests.mutants.mutant import Mutant
from tests.mutants.ordering import ORDERING
from tests.mutants.page_figures import PAGE_FIGURES
from tests.mutants.peer_files import PEER_FILES
from tests.mutants.peers import PEERS
from tests.mutants.receiving import RECEIVING
from tests.mutants.restored import RESTORED
from tests.mutants.rights import RIGHTS
from tests.mutants.secrecy import SECRECY
from tests.mutants.sinks import SINKS
from tests.mutants.standing_by import STANDING_BY
from tests.mutants.strangers import STRANGERS
from tests.mutants.times import TIMES
from tests.mutants.values import VALUES

_SCENARIOS = ("tests/unit/core/test_scenarios.py",)
_LOOP = ("tests/unit/coordinator",)
_LOOP_WORLDS = ("tests/simulation/test_loop.py",)
_JOURNAL_WORLDS = ("tests/simulation/test_journal.py",)

MUTANTS: tuple[Mutant, ...] = (
    *DECIDING,
    *CORE,
    *FAILING,
    *BEGINNING,
    *KEEPING,
    *EVALUATING,
    *LETTERS,
    *ORDERING,
    *INSTANCES,
    *MEMBERSHIP,
    *PEERS,
    *PEER_FILES,
    *RESTORED,
    *FAILING_OVER,
    *FAULTS,
    *STANDING_BY,
    *RIGHTS,
    *SECRECY,
    *SINKS,
    *FOLLOWING, *FOLLOWING_SHOWN,
    *RECEIVING,
    *STRANGERS,
    *METRICS,
    *DASHBOARD,
    *PAGE_FIGURES,
    *HOSTILE,
    *VALUES,
    *TIMES,
    *ESCAPED,
    # The log and who may write it (DESIGN 3.3 to 3.5, 6).
    Mutant(
        "a commit is not checked against the log after it",
        "has folded this commit.\n        self._check_standing(base, epoch=epoch)\n", "has folded this commit.\n",
        ("tests/unit/journal/test_control_log.py",),
    ),
    Mutant(
        "the check overlooks what follows the own last commit",
        "log_key(CONTROL, self.version + 1)) is not None:", "log_key(CONTROL, self.version + 2)) is not None:",
        ("tests/unit/journal/test_control_log.py",),
    ),
    Mutant(
        "the check overlooks that the own commit was cleaned away",
        "if standing is None or head is None or head.token.encode() not in standing:", "if standing == b'':",
        ("tests/unit/journal/test_control_log.py",),
    ),
    Mutant(
        "a refused swap passes for a commit",
        "        if created is None:\n            raise self._deposed", "        if epoch < 0:\n            raise self._deposed",
        ("tests/contract/test_journal.py",),
    ),
    Mutant(
        "a reign takes its own commit, put again after a lost reply, for another's",
        "store.create(key, data) or store.read(key) == data", "store.create(key, data)",
        ("tests/unit/journal/test_control_log.py",),
    ),
    Mutant(
        "a reign writes after one whose outcome is unknown",
        "        self._is_in_doubt = True\n", "        self._is_in_doubt = False\n", ("tests/unit/journal/test_control_log.py",),
    ),
    Mutant(
        "a clean-up that slept trusts the log that it read before",
        "control_compaction.leftovers(found, self._control.look(epoch=epoch).blocks)",
        "control_compaction.leftovers(found, blocks)",
        ("tests/unit/journal/test_control_leftovers.py",),
    ),
    Mutant(
        "clean-up takes a young file for a leftover",
        "if written_ms < settled_ms and key not in named", "if key not in named", ("tests/unit/journal/test_control_leftovers.py",),
    ),
    Mutant(
        "a zombie's stale merge is committed",
        "            self.refresh()\n            if not set(removed) <= self.sizes().keys():\n"
        "                return False\n",
        "            delta.refresh(self.store, self.key, self._table)\n", ("tests/unit/journal/test_message_compaction.py",),
    ),
    Mutant(
        "two reigns have one epoch",
        "epoch=1 if last is None else last.epoch + 1,",
        "epoch=1 if last is None else last.epoch,", ("tests/unit/coordinator/test_election.py",),
    ),
    Mutant(
        "a deposed reign answers from memory (P7)",
        "            self._seen_at_ms = now_ms\n        elif ready or (quiet",
        "            self._seen_at_ms = now_ms\n        elif (quiet", (*_LOOP, *_LOOP_WORLDS),
    ),
    Mutant(
        "who waits may hear nothing from a deposed reign for ever (P7)",
        "        elif ready or (quiet and now_ms >= self._seen_at_ms + QUIET_MS):\n", "        elif ready:\n", _LOOP,
    ),
    Mutant(
        "a run that ends where nothing is there may hear so from a deposed reign (P7)",
        "wait_ms=wait_ms, asks_again=waits)", "wait_ms=wait_ms, asks_again=True)", ("tests/unit/source/test_stream_reader.py",),
    ),
    Mutant(
        "an answer leaves before its commit",
        "        self._ready.append((call, answer))\n", "        call.answer(answer.reply, answer.pieces)\n",
        (*_LOOP, *_LOOP_WORLDS),
    ),
    Mutant("a repeated request takes effect again", "self.state.has_done(command.request):", "False:", (*_LOOP, *_LOOP_WORLDS)),
    Mutant(
        "a new reign gives living holders no time to renew",
        "work.now_ms + work.ledger.definition.lease_period_ms // 3", "work.now_ms", _LOOP,
    ),
    Mutant(
        "what was published enters twice",
        "max(self._engine.state.message_types[message_type].version, self.read_until.get(message_type, -1))",
        "self.read_until.get(message_type, -1)", _LOOP,
    ),
    Mutant(
        "a snapshot is applied to another record than its own",
        "if not records or header.last != _said(records[0]):", "if not records:", ("tests/unit/journal/test_snapshot.py",),
    ),
    # Files and publishers.
    Mutant(
        "merging the control log leaves a file beside its copy",
        "for group in groups for file in group]", "for group in groups for file in group[1:]]",
        ("tests/unit/journal/test_control_compaction.py",),
    ),
    Mutant(
        "a merged file gives a message another's row",
        "    first_row = row + segment.first - part.bookmark\n", "    first_row = row\n",
        ("tests/unit/journal/test_message_compaction.py", "tests/unit/journal/test_segments.py", "tests/unit/core"),
    ),
    Mutant(
        "retention lets go of what is leased or dead",
        "if each is not State.REMOVED)", "if each is State.AVAILABLE)",
        (*_SCENARIOS, "tests/unit/journal/test_retention.py"), within="needed_messages",
    ),
    Mutant(
        "a publisher's last message is taken twice",
        "        if last <= persisted:\n", "        if last < persisted:\n",
        ("tests/unit/journal/test_commit.py", "tests/unit/journal/test_publisher.py"),
    ),
    Mutant(
        "a publisher's sequences are not looked up",
        "            if persisted is not None:\n", "            if persisted is not None and persisted < 0:\n",
        ("tests/unit/journal/test_commit.py", "tests/unit/journal/test_publisher.py"),
    ),
    Mutant(
        "a stream's batch is not looked up",
        "() if self._was_published(head, identity.transaction) else files", "files",
        ("tests/unit/journal/test_publisher.py", *_JOURNAL_WORLDS),
    ),
    Mutant(
        "other rows under a used number pass for a repeat",
        "        raise _used(wanted, newest)\n", "        return True\n",
        ("tests/unit/journal/test_publisher.py", *_JOURNAL_WORLDS),
    ),
    Mutant(
        "a number below the newest counts as new",
        "if newest is None or newest < wanted.number:", "if newest != wanted.number:",
        ("tests/unit/journal/test_publisher.py", *_JOURNAL_WORLDS),
    ),
    Mutant(
        "a write to another topic passes for a repeat",
        """f"{kind}:{target or ''}:{name}\"""", """f"{kind}::{name}\"""",
        ("tests/unit/journal/test_publisher.py", *_JOURNAL_WORLDS),
    ),
    Mutant(
        "rows whose numbers were used for another topic are dropped",
        "if highest is None or highest < last:", "if False:",
        ("tests/unit/journal/test_publisher.py",),
    ),
    Mutant(
        "a batch that Spark has planned anew passes for what it was",
        'fingerprint(b"offsets %d " % batch + planned)', 'fingerprint(b"offsets %d " % batch)',
        ("tests/unit/source/test_stream_writer.py",),
    ),
    Mutant(
        "what a repeat makes anew is compared",
        "if not column.is_made_anew}", "}",
        ("tests/unit/journal/test_fingerprint.py",),
    ),
    Mutant(
        "a commit whose file was merged is made again",
        ".to_pylist()) | self._taken_away_after(base)\n", ".to_pylist())\n", ("tests/unit/journal/test_commit.py",),
    ),
    Mutant(
        "of a straddling batch one message is taken twice",
        "self._rewrite(new[0], after_sequence=persisted)",
        "self._rewrite(new[0], after_sequence=persisted - 1)",
        ("tests/unit/journal/test_commit.py", "tests/unit/journal/test_publisher.py"),
    ),
    Mutant(
        "what an older holder of a publisher name commits last is not known to the newer one",
        "store, messages_key(message_type), head, name=",
        "store, messages_key(message_type), open_head(store, journal_id, message_type), name=",
        ("tests/unit/journal/test_publisher.py", *_JOURNAL_WORLDS),
    ),
    Mutant(
        "the older holder of a publisher name goes on",
        "        if newest != own:\n", "        if newest < own:\n",
        ("tests/unit/journal/test_commit.py", "tests/unit/journal/test_publisher.py"),
    ),
)  # fmt: skip
