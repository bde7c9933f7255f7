"""Publishers that go on at another instance, with files and logs on disk (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.core.records import Kind
from spark_queue.core.state.findings import alarms
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import CallerError
from spark_queue.journal import message_file
from spark_queue.journal.log_entry import LogEntry, read_entry
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.publisher import Identity, Published
from spark_queue.journal.store import messages_key
from spark_queue.replication import copying
from spark_queue.replication.exchange import ApplyPulled
from tests.fake_clock import FakeClock
from tests.records import detail_of
from tests.sites_on_disk import DiskInstance


class Site(DiskInstance):
    """An instance to which publishers go that have a name."""

    def __init__(self, folder: Path, name: str, other: str) -> None:
        columns = "id BIGINT, price DOUBLE, lines ARRAY<STRUCT<item: STRING, count: INT>>"
        definitions: dict[str, Any] = {
            "journal": {"instance": name},
            "peers": {other: {"journal": str(folder / other), "topics": ["T"], "queues": ["WORK"]}},
            "message_types": {"order": {"topics": ["T"], "columns": columns}},
            "queues": {"WORK": {"underlying_topic": "T"}},
        }
        super().__init__(folder / name, FakeClock(), definitions)
        #: Called once, between copying and handing over.
        self.meanwhile: Callable[[], object] = int

    def publish(self, first: int, last: int, *, publisher: str = "app", price: float = 1.0) -> Published:
        """Publish orders under the numbers that are their ids."""
        ids = range(first, last + 1)
        lines = [[{"item": f"item {number}", "count": number}] for number in ids]
        rows = pa.table({"id": list(ids), "price": [price] * len(ids), "lines": lines})
        return self.publish_rows(rows, identity=Identity(publisher=publisher), first_sequence=first)

    def hand_over(self, pull: ApplyPulled) -> bool:
        meanwhile, self.meanwhile = self.meanwhile, int
        meanwhile()
        return super().hand_over(pull)


@pytest.fixture
def one(tmp_path: Path) -> Site:
    return Site(tmp_path, "frankfurt", "virginia")


@pytest.fixture
def two(tmp_path: Path) -> Site:
    return Site(tmp_path, "virginia", "frankfurt")


def commits(site: Site) -> Iterator[LogEntry]:
    """Yield what its message log says of messages that were pulled."""
    key = messages_key("order")
    for version in versions_after(site.store, key, -1):
        entry = read_entry(site.store, key, version)
        if entry is not None and entry.mark.get("writer") == "replicator":
            yield entry


def repeat(site: Site) -> None:
    """Publish what the other one has, too."""
    assert site.publish(1, 2).rows == 2


def test_a_commit_of_pulled_messages_tells_their_publishers_and_raises_their_numbers(one: Site, two: Site) -> None:
    one.publish(1, 3)
    one.publish(10, 12, publisher="other")
    two.pull()
    (commit,) = commits(two)
    assert commit.mark["publishers"] == [{"app": [1, 3]}, {"other": [10, 12]}]
    assert commit.transactions == {"p:app": 3, "p:other": 12, "q:T:app": 3, "q:T:other": 12}
    for each in (one, two):
        assert [detail_of(record)["publishers"] for record in each.records(Kind.ENTERED)] == commit.mark["publishers"]
    assert two.known.publishers == {"app": 3, "other": 12}


def test_a_publisher_that_resumes_elsewhere_repeats_nothing(one: Site, two: Site) -> None:
    """R94, R95: numbers that came over replication count as seen."""
    one.publish(1, 3)
    two.pull()
    assert two.publish(1, 3).duplicates == 3, "a batch whose reply was lost"
    assert two.publish(4, 6).rows == 3
    with pytest.raises(CallerError, match="SEQUENCE_BEHIND"):
        two.publish(2, 8)
    again = two.publish(1, 8)
    assert (again.rows, again.duplicates) == (2, 6), "it begins as a batch of the other instance does"
    one.pull()
    assert one.known.entered_until == two.known.entered_until == 8
    assert one.publish(7, 8).rows == 0


def test_numbers_never_go_back(one: Site, two: Site) -> None:
    one.publish(1, 3)
    two.publish(7, 9)
    two.pull()
    (commit,) = commits(two)
    assert commit.transactions == {}
    assert two.publish(4, 9).rows == 0


def test_rows_that_were_published_to_both_stand_once(one: Site, two: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    one.publish(1, 4, price=float("nan"))
    two.publish(3, 6, price=float("nan"))
    monkeypatch.setattr(message_file, "PIECE_ROWS", 1)
    one.pull()
    two.pull()
    assert one.known.entered_until == two.known.entered_until == 6
    (named,) = one.records(Kind.NAMED)
    assert named.ranges[0] == (2, 4)
    assert detail_of(named)["names"] == [[2, 2, two.state.journal_id, 0]]
    assert detail_of(two.records(Kind.NAMED)[0])["names"] == [[0, 2, one.state.journal_id, 2]]
    assert [len(each.state.queues["WORK"].rows[State.REMOTE]) for each in (one, two)] == [4, 2]
    assert [len(each.state.queues["WORK"].entered) for each in (one, two)] == [6, 6]
    one.begin()
    one.pull()
    assert one.known.entered_until == 6
    assert len(one.records(Kind.NAMED)) == 1


def test_rows_that_were_published_to_both_are_found_where_nothing_else_is_new(one: Site, two: Site) -> None:
    one.publish(1, 3)
    two.publish(1, 3)
    one.pull()
    assert not list(commits(one))
    assert one.known.origins.held[two.state.journal_id].to_array().tolist() == [0, 1, 2]


@pytest.mark.parametrize("enters", [True, False])
def test_what_a_publisher_brings_while_the_same_is_copied_is_found_also_before_it_has_entered(
    one: Site, two: Site, monkeypatch: pytest.MonkeyPatch, *, enters: bool
) -> None:
    two.publish(1, 3)
    if not enters:
        monkeypatch.setattr(one, "enter", lambda: None)
    one.meanwhile = lambda: repeat(one)
    one.pull()
    assert one.known.entered_until == 3
    assert len(one.records(Kind.NAMED)) == 1


def test_a_number_that_means_two_messages_is_an_alarm_and_both_are_delivered(one: Site, two: Site) -> None:
    one.publish(1, 3)
    two.publish(2, 4, price=2.0)
    one.pull()
    two.pull()
    for each in (one, two):
        assert each.known.entered_until == 6
        (alarm,) = alarms(each.state, each.state.queues["WORK"]).values()
        assert "PUBLISHER_CLASH" in alarm.text
    (entered,) = [record for record in one.records(Kind.ENTERED) if "clashes" in detail_of(record)]
    assert detail_of(entered)["clashes"] == [[0, 1, "app", 2], [1, 1, "app", 3]]
    one.begin()
    assert len(alarms(one.state, one.state.queues["WORK"])) == 1


def test_rows_without_a_publishers_name_are_compared_with_nothing(one: Site, two: Site) -> None:
    one.publish(1, 3)
    two.publish(4, 6)
    two.publish(1, 3, publisher="other")
    files = message_file.MessageFiles
    with mock.patch.object(files, "pieces", autospec=True, side_effect=files.pieces) as pieces:
        one.pull()
    assert one.known.entered_until == 9
    read = {call.args[1].path for call in pieces.call_args_list}
    assert read <= {segment.path for segment in two.known.segments}, "only the peer's files are read"


def test_a_number_that_a_peer_uses_for_everything_costs_little(one: Site, two: Site) -> None:
    one.publish(1, 300)
    two.publish(1, 300, price=2.0)
    for each in (one, two):
        file = Path(each.store.path) / messages_key("order") / each.known.segments[0].path
        rows = pq.read_table(file)
        at = rows.schema.get_field_index("sequence")
        pq.write_table(rows.set_column(at, rows.schema.field(at), pa.array([1] * 300, pa.int64())), file)
    with mock.patch.object(copying, "_same", side_effect=copying._same) as same:
        one.pull()
    assert [len(call.args[0]) for call in same.call_args_list] == [100 * 300]
    assert one.known.entered_until == 600
