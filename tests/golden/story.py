"""How the golden journal came about: a life that has every kind of record, every mark, and every file that a journal has.

It is told in the steps of `tests.scenario`, on disk, with a clock and a chance that are given: the same software tells it alike.
"""

from __future__ import annotations

import json
import random
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from spark_queue.clock import SystemClock
from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.records import TransferRequested
from spark_queue.journal import snapshot
from spark_queue.journal.reader import list_blocks
from spark_queue.journal.store import log_key, messages_key
from spark_queue.protocol.discovery import Advertisement, Advertiser
from spark_queue.replication.beacon import BeaconThread
from tests.fake_clock import FakeClock
from tests.golden.lake import LakeTable
from tests.golden.site import StorySite
from tests.sites_on_disk import NOBODY, exchange

HOUR_MS = 3_600_000


def definitions(home: Path, name: str, *peers: str) -> dict[str, Any]:
    """Return the definitions of an instance: shared lines, and at frankfurt also what is nobody else's."""
    shared: dict[str, Any] = {
        "WORK": {"underlying_topic": "LINES", "dead_letter_queue": "FAILED", "lease_period": "60s", "max_deliveries": 2},
        "FAILED": {"message_type": "line"},
    }  # fmt: skip
    found: dict[str, Any] = {
        "journal": {"instance": name, "retention": "1d"},
        "message_types": {"line": {"columns": "item STRING, n INT", "topics": ["LINES"]}},
        "queues": shared,
        "peers": {
            each: {"journal": str(home / each), "topics": ["LINES"], "queues": list(shared), "passthrough": ["^.*"]}
            for each in peers
        },
    }  # fmt: skip
    if name != "frankfurt":
        return found
    orders = {"columns": "item STRING, price STRING, n INT", "topics": ["ORDERS"]}
    sale = {"table": str(home / "lake" / "sales"), "from": "beginning", "on_change": "keep", "relocate_after": "1h"}
    refund = {"table": str(home / "lake" / "refunds")}
    found["message_types"] |= {"order": orders, "count": {"columns": "n INT", "topics": ["COUNTS"]}, "sale": sale, "refund": refund}
    found["queues"] |= {
        "ORDER": {
            "underlying_topic": "ORDERS", "priority": "CAST(price AS INT)", "lease_period": "60s",
            "dead_letter_queue": "LETTERS", "max_deliveries": 3,
        },
        "LETTERS": {"message_type": "order"},
        "CLOSED": {"underlying_topic": "ORDERS", "barrier": "item = 'close'", "lease_period": "60s"},
        "ONCE": {"underlying_topic": "ORDERS", "semantics": "at-most-once", "order_key": "item", "lease_period": "60s"},
        "ACTIVE": {"underlying_topic": "COUNTS", "target_queue_depth": 1000, "deferred_ack_expiration": "1h"},
        "SALES": {"underlying_topic": "sale", "lease_period": "60s"},
        "REFUNDS": {"underlying_topic": "refund"},
    }  # fmt: skip
    return found


@contextmanager
def same_chance(clock: FakeClock) -> Iterator[None]:
    """Draw the same names at the same times, and call the host alike wherever this runs."""
    chance = random.Random(1)  # Names are to be the same.

    def drawn() -> uuid.UUID:
        return uuid.UUID(int=chance.getrandbits(128), version=4)

    with (
        mock.patch.object(uuid, "uuid4", drawn),
        mock.patch.object(SystemClock, "wall_ms", side_effect=clock.wall_ms),
        mock.patch("tests.sites_on_disk.host_id", return_value="golden"),
        # As after a hundred commits.
        mock.patch("spark_queue.journal.upkeep.CONTROL_CHECKPOINT_COMMITS", 40),
    ):
        yield


def tell(home: Path) -> None:
    """Make the journals of frankfurt and virginia below `home`, and the tables that frankfurt follows."""
    clock = FakeClock()
    with same_chance(clock):
        Story(home, clock).tell()


class Story:
    """What happens to frankfurt."""

    def __init__(self, home: Path, clock: FakeClock) -> None:
        self.clock = clock
        self.sales = LakeTable(home / "lake" / "sales", now_ms=self.clock.wall_ms())
        self.first_sales = self.sales.append(1, 2, 3, 4, now_ms=self.clock.wall_ms(), deleted=(2,))
        self.refunds = LakeTable(home / "lake" / "refunds", now_ms=self.clock.wall_ms())
        self.clock.advance(1_000)
        self.here = StorySite(home / "frankfurt", self.clock, definitions(home, "frankfurt", "virginia"))
        self.there = StorySite(home / "virginia", self.clock, definitions(home, "virginia", "frankfurt"))

    def tell(self) -> None:
        """Tell all of it."""
        for part in (BATCHES, BY_HAND, BARRIERS, AT_MOST_ONCE, SINKS, RECEIVERS):
            self.here.run(part)
        self._share()
        self._ask_for_messages()
        self._claim()
        self._say_what_became_of_peers()
        self._read_on()
        self._go_on_elsewhere()
        self._bring_strange_commits()
        self._keep_up()
        self._go_on()

    def _share(self) -> None:
        """Frankfurt and virginia publish, one publisher at both, and hear what became of each other's messages."""
        here, there, rows = self.here, self.there, pa.table({"item": ["lamp", "kettle"], "n": pa.array([1, 2], pa.int32())})
        here.run("publish LINES 0..3 item=lamp n=1")
        there.run("publish LINES 0..3 item=clock n=2")
        here.publish_as("app", 1, rows, "line")
        there.publish_as("app", 1, rows, "line")
        there.publish_as("other", 7, rows, "line")
        exchange(here, there)
        there.run("settle WORK acknowledge 0")
        there.run("settle WORK expire 1 error=broken")
        here.run("settle WORK expire 0 error=broken")
        exchange(here, there)

    def _ask_for_messages(self) -> None:
        """Each asks the other for messages; virginia asks in vain for one that has ended."""
        here, there = self.here, self.there
        for asker in (here, there):
            asker.run("planner w WORK/w")
            asker.run("next w limit=100")
            self.clock.advance(11_000)
            asker.run("next w limit=100")
            self.clock.advance(11_000)
            asker.run("next w limit=100")
            exchange(here, there)
            asker.run("leave w")

        row = here.known.entered_until
        here.run(f"publish LINES {row} item=lamp n=5")
        there.pull()
        here.run(f"settle WORK acknowledge {row}")
        known = there.known.origins.here(here.state.journal_id, BitMap64([row]))
        asked = TransferRequested(requester="virginia", owner="frankfurt", limit=10)
        for _ in range(2):
            self.clock.advance(11_000)
            there.note(asked, queue="WORK", ranges=tuple(to_ranges(known)))
            here.pull()

    def _claim(self) -> None:
        """Virginia is silent, and frankfurt claims and grants what she owned."""
        here, there = self.here, self.there
        row = there.known.entered_until
        there.run(f"publish LINES {row}..{row + 1} item=clock n=3")
        here.pull()
        here.decide(commands.ProxiedTransfer(queue="WORK", on=True))
        here.run("planner w WORK/w")
        here.miss("virginia", silent_ms=31_000)
        here.run("next w limit=100")
        here.look("virginia")
        here.run("next w limit=100")

    def _say_what_became_of_peers(self) -> None:
        """Frankfurt was away, hears from nobody, and is told about virginia and about a backup that was put back."""
        here = self.here
        here.engine.begin_return(joins=False, now_ms=self.clock.wall_ms())
        here.engine.note_trouble("virginia", "[PEER_AWAY] nobody answers", now_ms=self.clock.wall_ms())
        here.commit()
        here.decide(commands.ReturnWithout(peer="virginia"))
        here.decide(commands.ResetPeer(peer="virginia"))
        here.decide(commands.Restored(origin=str(uuid.uuid4()), after=here.state.next_record - 1))

    def _read_on(self) -> None:
        """The table of sales is appended to, compacted and changed, and what is needed of its files is copied."""
        here, now_ms = self.here, self.clock.wall_ms
        second = self.sales.append(5, 6, 7, now_ms=now_ms())
        here.enter()
        here.run("planner s SALES/s")
        here.run("next s limit=2")
        self.sales.compact(self.first_sales, 1, 2, 4, now_ms=now_ms())
        self.sales.rewrite(second, 5, 6, 8, now_ms=now_ms())
        here.enter()
        self.clock.advance(2 * HOUR_MS)
        here.keep_up()

    def _go_on_elsewhere(self) -> None:
        """The table of refunds is changed, which sets its type aside, and somebody lets it go on behind that."""
        here, now_ms = self.here, self.clock.wall_ms
        path = self.refunds.append(1, 2, now_ms=now_ms())
        here.enter()
        self.refunds.rewrite(path, 1, 3, now_ms=now_ms())
        here.admit_all()
        here.ask(commands.Follow, message_type="refund")

    def _bring_strange_commits(self) -> None:
        """A stranger appends a file to a message table, and a commit of ours comes to stand in a log twice."""
        here, of_orders, of_counts = self.here, messages_key("order"), messages_key("count")
        folder = here.path / of_orders
        file = min(folder.glob("*.parquet"))
        shutil.copy(file, folder / "stranger.parquet")
        version = len(list((folder / "_delta_log").glob("*.json")))
        add = {
            "path": "stranger.parquet",
            "partitionValues": {},
            "size": file.stat().st_size,
            "modificationTime": self.clock.wall_ms(),
            "dataChange": True,
            "stats": json.dumps({"numRecords": pq.read_metadata(file).num_rows}),
        }
        (here.path / log_key(of_orders, version)).write_text(json.dumps({"add": add}) + "\n")
        shutil.copy(here.path / log_key(of_counts, 1), here.path / log_key(of_counts, 2))
        here.enter()

    def _keep_up(self) -> None:
        """Upkeep merges, retires, flushes, checkpoints and takes a snapshot; then some more happens."""
        here = self.here
        here.run("publish COUNTS 1001..1002 n=1")
        here.keep_up()
        self.clock.advance(8 * 24 * HOUR_MS)
        here.run("purge ACTIVE\ntick 48h")
        here.keep_up()
        snapshot.capture(here.store, list_blocks(here.store), here.opened.traits)

    def _go_on(self) -> None:
        """Another coordinator begins, says where it is and that it lives, and grants what is left."""
        here = self.here
        here.recover()
        here.pull()
        heard = {"ORDER": {"p": self.clock.wall_ms()}}
        said = Advertisement(
            journal=here.state.journal_id, address=NOBODY, host="golden", host_name="golden.example", epoch=here.epoch, pid=1,
            renewed_at_ms=self.clock.wall_ms(),
        )  # fmt: skip
        advertiser = Advertiser(here.store, said, wall_ms=self.clock.wall_ms, deposed=print)
        advertiser.know(lambda: heard)
        advertiser._renew()
        BeaconThread(here.store, "frankfurt", lambda: {"virginia": 7}, self.clock, []).renew()
        here.run(LEFT)


#: A batch with outcomes, one that is taken up again, one that lapses, one that failed, and what was said by hand.
BATCHES = """
publish ORDERS 0 item=lamp price=4 n=1, ORDERS 1 item=kettle price=dear n=2, ORDERS 2 item=lamp price=7, ORDERS 3 item=clock price=1
planner p ORDER/s
next p limit=2                      -> lease 1: 0 2
rows p
wait 1s
renew p
start p
end p cancel 0 after=5s error=late, expire 2 error=broken
next p limit=1                      -> lease 2: 3
planner q ORDER/s
rows q                              -> 3
tick 61s
start q
end q failed=ValueError on_error=cancel
next q limit=2
leave q
unsubscribe ORDER/s
"""

#: What people say.
BY_HAND = """
pause ORDER
unpause ORDER
settle ORDER expire 3 error=useless
redrive ORDER 2
purge LETTERS
publish COUNTS 0..1000
settle ACTIVE acknowledge 1000      -> deferred 1
"""

#: Barriers, one of which entered while its queue was set aside.
BARRIERS = """
publish ORDERS 4 item=close, ORDERS 5 item=lamp price=2 n=1
planner c CLOSED/s
next c                              -> lease 1: 0..3
next c                              -> lease 2: barrier 4
rows c
next c                              -> lease 3: 5
set_aside CLOSED
publish ORDERS 6 item=close expires=24h, ORDERS 7 item=clock price=3 n=1 expires=24h
revive CLOSED
tick 1s
next c
"""

#: A lease that is claimed, and one that lapses.
AT_MOST_ONCE = """
planner o ONCE/s
next o limit=1                      -> lease 1: 0
rows o
next o limit=1
tick 61s
"""

#: An attempt that landed, after nobody could tell, and one that was fenced.
SINKS = """
publish ORDERS 8 item=lamp price=9 n=1 after=1s, ORDERS 9 item=lamp price=8 n=1, ORDERS 10 item=lamp price=8 n=1
tick 2s
planner t ORDER/t
next t limit=2
rows t
start t sink
prepare t into=booked cancel 8 after=5s -> attempt 1
unreadable ORDER/t 1 error=away
landed ORDER/t 1
end t
next t limit=1
rows t
start t sink
prepare t into=booked -> attempt 2
fenced ORDER/t 2
leave t
"""

#: A receiver that is late once.
RECEIVERS = """
publish ORDERS 11 item=lamp price=11 n=1, ORDERS 12 item=lamp price=12 n=1, ORDERS 13 item=lamp price=13 n=1
planner r ORDER/r mode=receive ends
next r limit=2                      -> lease 6: 12..13
held r acknowledge 13
wait 1s
renew r
tick 61s
held r acknowledge 12
"""

#: What happens after the snapshot, and stands in entries alone.
LEFT = """
publish ORDERS 14..16 item=lamp price=3 n=1 expires=24h, ORDERS 17 item=close expires=24h
publish ORDERS 18 item=kettle price=5 n=2 after=1h
planner p ORDER/p filter="n < 9"
next p limit=2
planner c CLOSED/c
settle ORDER expire 16 error=useless
"""
