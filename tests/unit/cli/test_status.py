"""``sparkq status`` tells what somebody should look at (DESIGN 15.12)."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_queue import Journal
from spark_queue.journal.store import messages_key
from tests.fake_clock import FakeClock
from tests.sites_on_disk import exchange, two_sites
from tests.unit.cli.sparkq import Terminal
from tests.unit.dashboard.dashboard_world import DashboardWorld
from tests.unit.journal.journal_on_disk import Disk
from tests.unit.journal.reign import Reign

DEFINITIONS = {"message_types": {"json": {"topics": ["T"]}}, "queues": {"WORK": {"underlying_topic": "T"}}}


def test_status_exits_with_2_where_there_is_an_alarm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sparkq = Terminal(monkeypatch=monkeypatch, capsys=capsys)
    journal = Journal.create(str(tmp_path / "journal"), DEFINITIONS)
    calm = journal.view("status")
    assert sparkq("status", journal.path).code == 0
    alarmed = calm.set_column(calm.schema.get_field_index("alarm"), "alarm", pa.array(["the sink is down"]))
    monkeypatch.setattr(Journal, "view", lambda *_args, **_fields: alarmed)
    said = sparkq("status", journal.path)
    assert said.code == 3
    assert "ALARM: queue 'WORK': the sink is down" in said.out
    assert sparkq("status", journal.path, "--json").code == 3


def test_status_says_that_proxied_transfer_is_on(sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """R108, R111."""
    calm = journal.view("status")
    assert "proxied transfer" not in sparkq("status", journal.path).out
    on = pa.Table.from_pylist([{**calm.to_pylist()[0], "proxied_transfer_allowed": True}], schema=calm.schema)
    monkeypatch.setattr(Journal, "view", lambda *_args, **_fields: on)
    said = sparkq("status", journal.path)
    assert (said.code, "proxied transfer is on" in said.out) == (0, True)


def test_status_shows_ages_and_whose_batch_runs_longest_as_people_read_them(
    sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = journal.view("status")
    ages = {"seconds_behind": 10_680.0, "age_of_oldest_lease": 6_000.0, "longest_batch_seconds": 5_000.0}
    busy = pa.Table.from_pylist([{**calm.to_pylist()[0], **ages, "longest_batch_subscription": "slow"}], schema=calm.schema)
    monkeypatch.setattr(Journal, "view", lambda *_args, **_fields: busy)
    said = sparkq("status", journal.path).out
    assert [age for age in ("2 h 58 min", "1 h 40 min", "1 h 23 min, slow") if age not in said] == []
    (told,) = sparkq("status", journal.path, "--json").json
    assert {name: told[name] for name in ages} == ages


def test_watching_into_a_file_appends_what_stood_when(sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """No control characters, and each look is there as soon as it was made."""
    looks = iter(range(2))

    def stop_after_two(_seconds: float) -> None:
        if next(looks):
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", stop_after_two)
    said = sparkq("status", journal.path, "--watch")
    assert said.code == 130
    assert not [character for character in said.out if not character.isprintable() and character != "\n"]
    times = [datetime.fromisoformat(line) for line in said.out.splitlines() if line[:1].isdigit()]
    assert (len(times), {each.utcoffset() for each in times}) == (2, {timedelta(0)})
    assert said.out.count("WORK") == 2


def test_what_other_instances_own_has_a_column_where_there_is_some(sparkq: Terminal, tmp_path: Path) -> None:
    frankfurt, virginia = two_sites(tmp_path)
    virginia.publish("v0", "v1")
    exchange(frankfurt, virginia)
    assert "remote" in sparkq("status", frankfurt.journal.path).out
    assert "remote" not in sparkq("status", virginia.journal.path).out


def test_watching_tells_when_a_queue_is_empty(sparkq: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(40, 1)
    world.attach("BILLING", "east", 2)
    world.work("BILLING", 10, 3)
    world.commit()
    clock, steps = FakeClock(wall_ms=world.at(200)), iter(range(2))

    def work_on(_seconds: float) -> None:
        if next(steps):
            raise KeyboardInterrupt
        clock.advance(20_000)
        world.publish(5, 3.1)
        world.work("BILLING", 10, 3.2)
        world.commit()

    monkeypatch.setattr(time, "sleep", work_on)
    monkeypatch.setattr("spark_queue.cli.status.SystemClock", lambda: clock)
    said = sparkq("status", world.journal.path, "BILLING", "--watch")
    assert "Queue 'BILLING': in the last 20 s 15/min came, 30/min left; empty in 2 min 20 s." in said.out


def test_status_shows_as_an_alarm_what_keeps_messages_out(sparkq: Terminal, journal: Journal) -> None:
    """A stranger rewrote a message table: delivery stops before that, and a queue that only looks empty is not well."""
    journal.publish([{"amount": 1}], topic="LINES")
    journal.publish([{"amount": 2}], topic="LINES")
    DeltaTable(journal.store.messages_uri("line")).delete("amount = 2")
    journal.publish([{"amount": 3}], topic="LINES")
    said = sparkq("status", journal.path)
    assert said.code == 3
    assert "ALARM: queue 'WORK': [JOURNAL_REWRITTEN] Version 3 of " in said.out
    told = sparkq("status", journal.path, "--json")
    assert (told.code, told.json[0]["available"]) == (3, 2)
    assert told.json[0]["alarm"] == journal.queue("WORK").status().alarm
    before = sparkq("status", journal.path, "--as-of", "1", "--json")
    assert (before.code, before.json[0]["alarm"]) == (0, None)


def test_status_shows_a_file_that_consumers_will_not_be_able_to_read(sparkq: Terminal, journal: Journal) -> None:
    journal.publish([{"amount": 1}], topic="LINES")
    assert sparkq("status", journal.path).code == 0
    (file,) = (Path(journal.path) / "messages" / "line").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:100])
    said = sparkq("status", journal.path)
    assert said.code == 3
    assert f"ALARM: queue 'WORK': [MESSAGE_FILE_CORRUPT] Message file '{file.name}' of " in said.out
    told = sparkq("status", journal.path, "--json")
    assert (told.code, told.json[0]["available"]) == (3, 1)


def test_status_tells_what_can_be_told_of_a_queue_that_is_set_aside(sparkq: Terminal, tmp_path: Path) -> None:
    """DESIGN 4: which messages match a subscription's filter cannot be told without their file, and how many there are can."""
    disk = Disk(tmp_path / "journal")
    reign = Reign(disk, epoch=1)
    reign.subscribe("id > 2")
    disk.publish([1, 2, 3])
    reign.enter()
    told = sparkq("status", disk.store.path, "--json")
    assert (told.code, told.json[0]["available"]) == (0, 3)
    (Path(disk.store.path) / messages_key("order") / reign.segments[0].path).unlink()
    told = sparkq("status", disk.store.path, "--json")
    assert (told.code, told.json[0]["queue"], told.json[0]["available"]) == (3, "WORK", 3)
    said = sparkq("status", disk.store.path)
    assert said.code == 3
    assert "ALARM: queue 'WORK': [MESSAGE_FILE_MISSING]" in said.out


def test_status_of_many_queues_shows_what_matters_first_and_how_to_see_the_rest(
    sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = journal.view("status")
    row = calm.to_pylist()[0]
    quiet = [row | {"queue": f"Q{number:03}"} for number in range(500)]
    quiet[499] |= {"alarm": "the sink is down"}
    quiet[498] |= {"dead_letters": 2_000}
    quiet[497] |= {"queue_depth": 5}
    monkeypatch.setattr(Journal, "view", lambda *_args, **_fields: pa.Table.from_pylist(quiet, schema=calm.schema))
    told = sparkq("status", journal.path)
    assert [line.split()[0] for line in told.out.splitlines()[1:6]] == ["Q499", "Q498", "Q497", "Q000", "Q001"]
    assert "2,000" in told.out
    assert "Q036" in told.out
    assert "Q037" not in told.out
    assert "460 more queues, 0 of them with messages: add --all to see them, or name one." in told.out
    assert told.code == 3
    everything = sparkq("status", journal.path, "--all")
    assert all(f"Q{number:03}" in everything.out for number in range(500))
    assert "more queues" not in everything.out
    assert len(sparkq("status", journal.path, "--json").json) == 500
