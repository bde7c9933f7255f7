"""A random program's two sides: the engine with its log, and the model; after every step both hold the same messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from spark_queue.core import commands, folds
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.relocation import moved_record
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Kind, MergedFile, MovedRows, Record, Removal
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import SparkQueueError
from spark_queue.journal.state_codec import decode, encode
from spark_queue.verification.of_state import of_state
from spark_queue.verification.state_digest import digest
from tests.deciding import claim
from tests.model.bodies import Body, Files
from tests.model.definitions import LETTER_QUEUES, LETTERS, MESSAGES, rules_of, tables_of
from tests.model.journal import Journal
from tests.model.model import Queue, delay_new
from tests.records import record_of

bodies = st.fixed_dictionaries({
    "size": st.sampled_from([None, 0, 1, 2, 3]),
    "colour": st.sampled_from([None, "red", "red", "blue", "black"]),
    "expires_ms": st.sampled_from([*[None] * 6, 15_000, -1]),
})  # fmt: skip


class Machine(RuleBasedStateMachine):
    """A journal with queue Q, at times a second queue R, dead-letter queues D and E of theirs; and who writes and keeps its log."""

    @initialize(
        drawn=st.fixed_dictionaries(MESSAGES), letters=st.fixed_dictionaries(LETTERS), retention=st.sampled_from([None, "20s"])
    )
    def define(self, drawn: dict[str, Any], letters: dict[str, Any], retention: str | None) -> None:
        """Define the queue."""
        self.now = 1_000
        self.files = Files()
        self.log: list[Record] = []
        self.snapshot: tuple[int, bytes] | None = None
        #: A merge that the log has not heard of: path, parts, and what it replaces.
        self.merge: tuple[str, tuple[MovedRows, ...], list[str]] | None = None
        self.incarnations: dict[tuple[str, str], tuple[int, int]] = {}
        self.calls: dict[tuple[str, str], int] = {}
        #: Planners that a newer one took over from, with the lease of their batch.
        self.overtaken: list[tuple[tuple[str, str], tuple[int, int], int]] = []
        self.proven: dict[tuple[str, str], int] = {}
        #: Whose rows were asked for by whom last, in this reign.
        self.asked: dict[tuple[str, str], tuple[int, tuple[int, int]]] = {}
        #: Whose planner ended in good order, and whose fn has returned from its batch.
        self.gone: set[tuple[str, str]] = set()
        self.ended: set[tuple[str, str]] = set()
        self.model = Journal(self.now)
        self.model.retention_ms = None if retention is None else 20_000
        self.journal = {} if retention is None else {"retention": retention}
        self.drawn = {"Q": drawn, **dict.fromkeys(LETTER_QUEUES, letters)}
        created = record_of(kind=Kind.JOURNAL_CREATED, record=0, detail={"journal": "J", "format": 1})
        self.log.append(created)
        self._recover(self._folded())
        assert self.apply(self.drawn, ())

    def apply(self, drawn: dict[str, dict[str, Any]], resets: tuple[str, ...]) -> bool:
        """Apply definitions on both sides, which agree on whether they may; returns whether."""
        tables = tables_of(drawn)
        resets = tuple(name for name in resets if name in tables)
        definitions = {"journal": self.journal, "message_types": {"json": {"topics": ["T"]}}, "queues": tables}
        try:
            self.decide(commands.Apply(definitions=definitions, reset=resets))
            refused = None
        except SparkQueueError as error:
            refused = error.code
        is_applied = self.model.apply({name: rules_of(table) for name, table in tables.items()}, resets)
        assert refused == (None if is_applied else "DEFINITION_IN_USE")
        if not is_applied:
            return False
        self.drawn = drawn
        self.proven = {who: number for who, number in self.proven.items() if who[0] in tables}
        return True

    @rule(new=st.lists(bodies, min_size=1, max_size=4), delay_ms=st.sampled_from([None, None, None, 8_000]))
    def publish(self, new: list[Body], delay_ms: int | None = None) -> None:
        """Publish a file of messages, which enter at once, and may be delayed (R128)."""
        first = len(self.files.bodies)
        added = [{**body, "expires_at": None if body["expires_ms"] is None else self.now + body["expires_ms"]} for body in new]
        due_at_ms = None if delay_ms is None else self.now + delay_ms
        added = [{**body, "deliver_at": due_at_ms} for body in added]
        self.files.bodies += added
        self.files.standing[f"{first}"] = list(range(first, first + len(new)))
        own = [body["expires_at"] for body in added if body["expires_at"] is not None]
        segment = Segment(
            message_type="json", first=first, until=first + len(new), path=f"{first}", version=first, token="t",
            entered_at_ms=self.now, published_at_ms=self.now, topic_min="T", topic_max="T", expires_null_count=len(new) - len(own),
            expires_min_ms=min(own, default=None), expires_max_ms=max(own, default=None),
            due_at_ms=due_at_ms,
        )  # fmt: skip
        self.do(lambda: self.engine.enter([segment], now_ms=self.now))
        self.model.publish(added)

    @rule(passed_ms=st.sampled_from([1_000, 1_000, 6_000, 6_000, 11_000, 30_000]))
    def tick(self, passed_ms: int) -> None:
        """Let time pass."""
        due_ms = self.engine.next_due_ms()
        self.now += passed_ms
        made = self.pass_time()
        # The coordinator wakes in time for everything but retention, of messages and dead letters,
        # and of subscriptions, for which it looks at each round.
        late = (Kind.RETIRED, Kind.UNSUBSCRIBED)
        in_time = [record for record in made if record.kind not in late and record.reason != Removal.PURGED]
        assert not in_time or (due_ms is not None and due_ms <= self.now), in_time

    def pass_time(self) -> list[Record]:
        """Let both sides do what is due; returns the engine's records."""
        before = len(self.log)
        self.do(lambda: self.engine.tick(now_ms=self.now))
        self.model.tick(self.now)
        for path, rows in list(self.files.standing.items()):
            if self.model.retired.issuperset(rows) and (self.merge is None or path not in self.merge[2]):
                del self.files.standing[path]
        return self.log[before:]

    @rule(data=st.data(), what=st.sampled_from(["crash", "crash", "snapshot", "compact"]))
    def keep(self, data: st.DataObject, what: str) -> None:
        """Let something happen to what is stored, or to who writes it."""
        match what:
            case "crash":
                self.crash(from_snapshot=data.draw(st.booleans()))
            case "snapshot":
                self.snapshot = (len(self.log), encode(self.engine.state))
            case "compact":
                self.compact(data)

    def compact(self, data: st.DataObject) -> None:
        """Merge some neighbours among the files that stand; the log hears of it a while later, and the old ones are gone then."""
        if self.merge is not None:
            path, parts, old = self.merge
            version = len(self.files.bodies) + len(self.log)
            made = moved_record("json", version=version, token="t", files=[MergedFile(path=path, parts=parts)])
            merged = [self.files.standing.pop(each) for each in old]
            self.files.standing[path] = [row for rows in merged for row in rows]
            self.do(lambda: self.engine.note([made], now_ms=self.now))
            self.model.files = [each for each in self.model.files if each not in merged] + [self.files.standing[path]]
            self.merge = None
            return
        files = sorted((rows, path) for path, rows in self.files.standing.items() if not self.model.retired.issuperset(rows))
        if len(files) < 2:
            return
        start = data.draw(st.integers(0, len(files) - 2))
        chosen = files[start : data.draw(st.integers(start + 2, len(files)))]
        # What retention let go stands between its neighbours, and is left alone.
        chosen = [each for at, each in enumerate(chosen) if at == 0 or each[0][0] == chosen[at - 1][0][-1] + 1]
        if len(chosen) > 1 and chosen[-1][0][-1] - chosen[0][0][0] + 1 == sum(len(rows) for rows, _ in chosen):
            parts = tuple(MovedRows(path=path, first_row=0, row_count=len(rows), bookmark=rows[0]) for rows, path in chosen)
            self.merge = (f"merged {len(self.log)}", parts, [path for _, path in chosen])

    def crash(self, *, from_snapshot: bool) -> None:
        """Let the coordinator die; the next one folds the log, and gives every lease time to be renewed (15.2)."""
        state = self._folded(from_snapshot=from_snapshot)
        if not self.model.retired:
            differing = _differing(digest(self.engine.state), digest(state))
            assert not differing, differing
        self.begin_reign(state)

    def begin_reign(self, state: JournalState) -> None:
        """Let the next coordinator go on from the log."""
        self._recover(state)
        self.model.looked_at = 0
        for queue in self.model.queues.values():
            for subscription in queue.subscriptions.values():
                # An idle poll leaves no record, so silence counts from the beginning of the reign (R140).
                subscription.heard_at = self.now
            for lease in queue.leases():
                # Nobody knows any more what was asked for, so it counts as asked for.
                lease.asked, lease.sure, lease.returned_in = True, False, None
                if queue.outstanding(lease):
                    lease.due = max(lease.due, self.now + queue.rules.lease_ms // 3)
        self.asked.clear()
        self._note_more_active()

    def _note_more_active(self) -> None:
        """Let those be active that a fold finds so beyond the target.

        A message whose file is gone is known by the records that name it alone, and until one does, it keeps nobody from its turn.
        """
        for name, ledger in self.engine.state.queues.items() if self.model.retired else ():
            for message in self.model.queues[name].having("inactive"):
                if message.bookmark in ledger.rows[State.AVAILABLE] | ledger.rows[State.DELAYED]:
                    message.state = "available"
                    delay_new(message)

    @invariant()
    def both_hold_the_same(self) -> None:
        """Compare every message of every queue."""
        if not hasattr(self, "engine"):
            return
        assert of_state(self.engine.state) == []
        assert list(self.engine.state.queues) == list(self.model.queues)
        for name, queue in self.model.queues.items():
            self._compare(name, queue)
        retired = {
            row
            for each in self.engine.state.message_types["json"].segments
            if each.retired
            for row in range(each.first, each.until)
        }
        assert retired == self.model.retired, (retired - self.model.retired, self.model.retired - retired)

    def _compare(self, name: str, queue: Queue) -> None:
        ledger = self.engine.state.queues[name]
        found = {state.value: set(ledger.rows[state]) for state in State}
        wanted: dict[str, set[int]] = {state: set() for state in found}
        for message in queue.messages.values():
            wanted[message.state].add(message.bookmark)
        # What is retired is not remembered after a crash.
        for each in (found, wanted):
            each["removed"] -= self.model.retired
        differing = {state: (found[state], wanted[state]) for state in found if found[state] != wanted[state]}
        assert not differing, (name, differing)
        for message in queue.messages.values():
            if message.state in ("available", "leased", "delayed"):
                assert ledger.delivered.of(message.bookmark) == message.deliveries, (name, message)
                assert ledger.cancelled.of(message.bookmark) == message.cancels, (name, message)
                assert ledger.lone_failures.of(message.bookmark) == message.lone, (name, message)
        reasons = {row: letter.reason for letter in ledger.dead_letters for row in letter.rows}
        assert reasons == {each.bookmark: each.reason for each in queue.having("dead")}, name
        assert list(ledger.subscriptions) == list(queue.subscriptions), (name, self.now)
        for who, asked in queue.subscriptions.items():
            known = ledger.subscriptions[who]
            assert (set(known.suspects), known.is_stopped) == (set(asked.suspects), asked.alarm is not None), (name, who)
            assert (set(known.failed), known.isolation_limit) == (asked.failed, asked.most), (name, who)
            assert set(known.barriers) == set(asked.barriers), (name, who)

    def decide(self, command: commands.AnyCommand) -> Any:
        """Let the engine decide about a command now, and commit it; returns the reply."""
        return self.do(lambda: self.engine.decide(command, now_ms=self.now))

    def do(self, command: Callable[[], Any]) -> Any:
        """Let the engine do something, and commit it."""
        answer = command()
        self.log += self.engine.drain_records()
        return answer

    def _folded(self, *, from_snapshot: bool = False) -> JournalState:
        known, state = 0, JournalState(self.files)
        if from_snapshot and self.snapshot is not None:
            known, state = self.snapshot[0], decode(self.snapshot[1])
            state.traits = self.files
        folds.fold_all(state, self.log[known:])
        return state

    def _recover(self, state: JournalState) -> None:
        self.engine = Engine(state)
        claim(self.engine, epoch=state.epoch + 1, host="h", address="a", pid=1, now_ms=self.now)
        self.engine.take_over(now_ms=self.now)
        self.log += self.engine.drain_records()


def _differing(one: Any, other: Any, at: str = "") -> list[str]:
    """Return where two digests differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [each for key in one for each in _differing(one[key], other[key], f"{at}.{key}")]
    return [] if one == other else [f"{at}: {one} {other}"]
