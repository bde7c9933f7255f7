"""Journals of instances on disk, each with the loop of a coordinator, and attacks by who may write that of a peer (DESIGN 17.3)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_queue.coordinator.election import Candidate, ElectionPorts, elect
from spark_queue.coordinator.inbox import Call, Inbox
from spark_queue.coordinator.recovery import recover
from spark_queue.core import commands
from spark_queue.errors import SparkQueueError
from spark_queue.journal.open import open_journal
from spark_queue.journal.record_blocks import RecordBlock, stage_rows
from spark_queue.journal.record_table import CONTROL_SCHEMA, rows_of, rows_to_table
from spark_queue.journal.store import Store
from spark_queue.protocol import wire
from spark_queue.protocol.connection import Presence
from spark_queue.verification.of_state import of_state
from tests.fake_clock import FakeClock
from tests.no_peers import NoPeers
from tests.sites_on_disk import NOBODY, DiskInstance
from tests.unit.coordinator.loop_world import NoAdvertisements

COLUMNS = "id BIGINT, item STRING"
NAMES = ("frankfurt", "virginia", "tokyo")


def definitions(name: str, *, columns: str = COLUMNS, passthrough: tuple[str, ...] = ("^.*",)) -> dict[str, Any]:
    """Return the definitions of an instance that pulls from the two others."""
    peer = {"topics": ["T", "U"], "queues": ["WORK", "FAILED"], "passthrough": list(passthrough), "pull_interval": "1ms"}
    return {
        "journal": {"instance": name},
        "peers": {other: {"journal": f"/{other}", **peer} for other in NAMES if other != name},
        "message_types": {"order": {"columns": columns, "topics": ["T"]}, "json": {"topics": ["U"]}},
        "queues": {
            "WORK": {"underlying_topic": "T", "dead_letter_queue": "FAILED", "max_deliveries": 3, "lease_period": "60s"},
            "FAILED": {"message_type": "order"},
        },
    }


class Site(DiskInstance):
    """One instance, with the loop of its coordinator."""

    clock: FakeClock

    def __init__(self, path: Path, clock: FakeClock, definitions: Mapping[str, Any] | None = None) -> None:
        self.requests = 0
        super().__init__(path, clock, definitions)

    def begin(self) -> None:
        """Begin a reign."""
        journal = open_journal(self.store)
        candidate = Candidate(journal_id=journal.journal_id, path=journal.path, host="h", address=NOBODY, pid=1)
        around = ElectionPorts(
            advertisements=NoAdvertisements(), ping=lambda *_: Presence.GONE, clock=self.clock, pause=lambda _: None
        )
        self.loop = recover(elect(journal.control, candidate, around), journal, Inbox(), pullers=NoPeers(), ends_idle=False)
        self.engine = self.loop._engine
        self._pullers = {}

    def publish(self, *ids: int, message_type: str = "order") -> None:
        """Publish messages in one file."""
        rows = pa.table({"id": pa.array(ids, pa.int64()), "item": [f"item {each}" for each in ids]})
        if message_type == "json":
            rows = pa.table({"value": [f'{{"id": {each}}}' for each in ids]})
        self.publish_rows(rows, message_type)

    def enter(self) -> None:
        """Let in what was published."""
        self.clock.advance(2_000)
        self.loop.step([])

    def ask(self, request: Any, **fields: Any) -> Any:
        """Serve one call."""
        self.requests += 1
        call = Call(request(journal=self.state.journal_id, request=f"{self.path.name}-{self.requests}", **fields), lambda: False)
        self.loop.step([call])
        wire.raise_failed(call.reply) if call.reply is not None else None
        return call.reply

    def settle(self, outcome: str, *rows: int, queue: str = "WORK") -> None:
        """Say what became of messages, by hand."""
        said = commands.OutcomeRows(outcome=outcome, ranges=tuple((row, row + 1) for row in rows))
        self.ask(commands.Settle, queue=queue, outcomes=(said,))

    def flush(self) -> None:
        """Let data files have the records that entries hold."""
        control: Any = self.loop._journal.control
        control.flush(epoch=self.loop._epoch, at_ms=self.clock.wall_ms())

    def wait_for_messages(self) -> None:
        """Let a planner take all that is here, and wait for more, so that owners are asked."""
        who: dict[str, Any] = {"queue": "WORK", "subscription": f"s-{self.path.name}"}
        who["incarnation"] = self.ask(commands.DrawIncarnation, **who).incarnation
        self.ask(commands.Attach, **who, call=1, ack_mode="auto", max_backlog=100, filter=None, available_now=False)
        taken = self.ask(commands.Next, **who, call=2, finished=0, limit=100, wait_ms=0).lease
        self.ask(commands.Next, **who, call=3, finished=taken, limit=100, wait_ms=50)

    def pull(self, peer: str | None = None, path: Path | None = None, **other: Any) -> SparkQueueError | None:
        """Pull what is new from a peer's journal; returns what it was refused for, after which another puller is made."""
        try:
            return super().pull(peer, store=path and Store(str(path)), **other)
        except SparkQueueError as refusal:
            return refusal

    def _serve(self, call: Call) -> None:
        self.loop.step([call])

    def told(self) -> dict[str, dict[str, list[tuple[str, int]]]]:
        """Return the messages of each queue by their state, as origin and bookmark there."""
        return {
            name: {state: self._ids(rows) for state, rows in ledger.rows.items() if rows}
            for name, ledger in self.state.queues.items()
        }

    def _ids(self, rows: Any) -> list[tuple[str, int]]:
        origins = self.state.message_types["order"].origins
        return sorted((origin, row) for origin, there in origins.of(rows, own=self.state.journal_id) for row in there)

    def check(self) -> None:
        """Raise unless this instance is sound, knows no message twice, serves its callers, and reads its own log alike."""
        assert of_state(self.state) == []
        for known in self.state.message_types.values():
            pulled = sum(len(rows) for rows in known.origins.pulled.values())
            assert pulled == sum(len(rows) for rows in known.origins.held.values()), "a message is here twice"
        self.ask(commands.Pause, queue="WORK")
        self.ask(commands.Unpause, queue="WORK")
        before = self.told()
        self.begin()
        assert self.told() == before


class Peer:
    """The journal of a peer as somebody changes it who may write there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> list[dict[str, Any]]:
        """Return its records as they are stored, with their details read."""
        held = [row for entry in self.entries() for row in rows_to_table(rows_of(_held_by(entry))).to_pylist()]
        found = {row["record"]: row for row in (*held, *(row for file in self._files() for row in pq.read_table(file).to_pylist()))}
        return [row | {"detail": json.loads(row["detail"])} for _, row in sorted(found.items())]

    def number(self, kind: str, **facts: Any) -> int:
        """Return the number of the last record of a kind that has some facts in its columns or its detail."""
        found = [row for row in self.rows() if row["kind"] == kind]
        return int(
            [row for row in found if all({**row["detail"], **row}.get(name) == fact for name, fact in facts.items())][-1]["record"]
        )

    def rewrite(self, number: int, change: Callable[[dict[str, Any]], None]) -> None:
        """Change one record wherever it stands; its detail is given as it is read, and may become a text."""

        def changed(row: dict[str, Any]) -> None:
            row["detail"] = json.loads(row["detail"])
            change(row)
            row["detail"] = row["detail"] if isinstance(row["detail"], str) else json.dumps(row["detail"])

        for file in self._files():
            rows = pq.read_table(file).to_pylist()
            for row in rows:
                if row["record"] == number:
                    changed(row)
                    pq.write_table(pa.Table.from_pylist(rows, CONTROL_SCHEMA), file)
        for entry in self.entries():
            rows = rows_to_table(rows_of(_held_by(entry))).to_pylist()
            for row in rows:
                if row["record"] == number:
                    changed(row)
                    _hold(entry, [_stored(each) for each in rows])

    def entries(self) -> list[Path]:
        """Return the entries of its control log, oldest first."""
        return sorted((self.path / "control" / "_delta_log").glob("*.json"))

    def use_a_file(self) -> Path:
        """Let the newest entry have its records in a data file, as one of many bytes; returns the entry."""
        entry = self.entries()[-1]
        table = rows_to_table(rows_of(_held_by(entry)))
        rows = table.select(["record", "kind"]).to_pylist()
        block = RecordBlock.new(rows[0]["record"], rows[-1]["record"], [row["kind"] for row in rows])
        file = stage_rows(Store(str(self.path)), block, table, at_ms=0)
        _hold(entry, [])
        lines = entry.read_text().splitlines()
        entry.write_text("\n".join([lines[0].replace('"actions":1', '"actions":2'), json.dumps({"add": file.entry()}), *lines[1:]]))
        return entry

    def message_file(self, number: int) -> Path:
        """Return the file that an `entered` record names."""
        row = self.rows()[number]
        return self.path / "messages" / str(row["message_type"]) / str(row["detail"]["path"])

    def orders(self) -> Path:
        """Return the file of two orders."""
        return self.message_file(self.number("entered", rows=2, message_type="order"))

    def _files(self) -> list[Path]:
        return sorted((self.path / "control").glob("*.parquet"))


def _held_by(entry: Path) -> Any:
    """Return the records that an entry holds, as they are stored."""
    return json.loads(entry.read_text().splitlines()[0])["commitInfo"].get("sparkqueue", {}).get("records", [])


def _hold(entry: Path, records: list[dict[str, Any]]) -> None:
    """Let an entry hold other records."""
    first, *others = entry.read_text().splitlines()
    info = json.loads(first)
    info["commitInfo"]["sparkqueue"]["records"] = records
    entry.write_text("\n".join([json.dumps(info, separators=(",", ":")), *others]) + "\n")


def _stored(row: dict[str, Any]) -> dict[str, Any]:
    """Return the form of a row in an entry."""
    times = {name: None if row[name] is None else int(row[name].timestamp() * 1000) for name in ("at", "due_at")}
    row = row | times | {"ranges": [[each["first"], each["until"]] for each in row["ranges"]]}
    return {name: value for name, value in row.items() if value is not None}


def three_sites(path: Path, clock: FakeClock) -> dict[str, Site]:
    """Return three instances, of which virginia has records of every kind that matters, and frankfurt has pulled nothing."""
    sites = {name: Site(path / name, clock, definitions(name)) for name in NAMES}
    virginia, tokyo = sites["virginia"], sites["tokyo"]
    tokyo.publish(100, 101, 102)
    virginia.publish(1, 2, 3)
    virginia.publish(4, 5)
    virginia.publish(7, 8, message_type="json")
    assert (virginia.pull("tokyo", tokyo.path), tokyo.pull("virginia", virginia.path)) == (None, None)
    virginia.settle("acknowledge", 0)
    virginia.settle("expire", 1)
    virginia.settle("expire", 2)
    virginia.ask(commands.Redrive, queue="WORK", ranges=((1, 2),))
    # What follows stands in entries alone.
    virginia.flush()
    tokyo.settle("acknowledge", 0)
    tokyo.pull("virginia", virginia.path)
    clock.advance(5_000)
    tokyo.wait_for_messages()
    virginia.pull("tokyo", tokyo.path)
    tokyo.publish(103)
    virginia.pull("tokyo", tokyo.path)
    clock.advance(5_000)
    virginia.wait_for_messages()
    return sites


Home = tuple[Path, FakeClock, Any]


class Attack:
    """An instance that pulls from a peer whose journal somebody changes, and from one that is honest."""

    def __init__(self, home: Home, path: Path) -> None:
        #: What an instance knows that pulled from honest peers alone.
        self.home, clock, self.unharmed = home
        shutil.copytree(self.home / "frankfurt", path / "frankfurt")
        self.here = Site(path / "frankfurt", clock)
        shutil.copytree(self.home / "virginia", path / "virginia")
        self.peer = Peer(path / "virginia")

    def pull(self, code: str | None, says: str = "", **options: Any) -> None:
        """Pull from the changed peer, which is refused with a code, or taken where there is none."""
        refusal = self.here.pull("virginia", self.peer.path, **options)
        assert (refusal and refusal.code, says in str(refusal)) == (code, True), refusal or "it was believed"

    def go_on(self) -> None:
        """See that this instance pulls from another, and is sound."""
        assert self.here.pull("tokyo", self.home / "tokyo") is None, "other peers are pulled"
        self.here.check()

    def heal(self) -> None:
        """Go on, put the honest journal back, and see that nothing was lost and nothing came twice."""
        self.go_on()
        shutil.rmtree(self.peer.path)
        shutil.copytree(self.home / "virginia", self.peer.path)
        assert self.here.pull("virginia", self.peer.path) is None
        assert self.here.told() == self.unharmed


def made_home(path: Path) -> Home:
    """Make three honest instances; returns where, and what the one that has pulled nothing knows once it has."""
    clock = FakeClock()
    three_sites(path, clock)
    (path / "unharmed").mkdir()
    first = Attack((path, clock, None), path / "unharmed")
    first.pull(None)
    first.go_on()
    return path, clock, first.here.told()
