"""A peer that speaks in the name of this instance, or of another one (DESIGN 17.3)."""

from __future__ import annotations

import pytest

from spark_queue.replication import puller, restored
from tests.unit.replication.attack import Attack


def test_a_watermark_that_names_us_with_any_number_is_told_as_a_backup_that_was_put_back(attack: Attack) -> None:
    """Who may write a peer's journal may say so; somebody looks, and nothing is changed meanwhile."""
    own = attack.here.state.journal_id
    number = attack.peer.number("pulled")
    attack.peer.rewrite(number, lambda row: row["detail"].update(peer="frankfurt", journal=own, number=2**50, digest="0" * 64))
    attack.pull("JOURNAL_RESTORED", "virginia")
    attack.go_on()


def test_messages_that_were_never_published_here_are_told_as_a_backup_that_was_put_back(attack: Attack) -> None:
    own, number = attack.here.state.journal_id, attack.peer.number("entered", rows=2, message_type="order")
    mine = {"origin": [[0, 2, own, 7]], "instances": {own: "frankfurt"}, "v": 2}
    attack.peer.rewrite(number, lambda row: row["detail"].update(mine))
    attack.pull("JOURNAL_RESTORED", "has pulled message 8 of type 'order'")
    attack.heal()


def test_messages_that_were_never_published_here_are_no_messages_of_ours(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come while its log is read on, when nobody looks ahead."""
    own, number = attack.here.state.journal_id, attack.peer.number("entered", rows=2, message_type="order")
    mine = {"origin": [[0, 2, own, 7]], "instances": {own: "frankfurt"}, "v": 2}
    attack.peer.rewrite(number, lambda row: row["detail"].update(mine))
    monkeypatch.setattr(puller, "check_own", lambda _, store, peer, known, *__: restored.told_ahead(store, peer, known)[0])
    attack.pull("PEER_REFUSED", "never published here")
    attack.heal()


def test_this_journal_under_another_name_is_refused(attack: Attack) -> None:
    own, number = attack.here.state.journal_id, attack.peer.number("entered", rows=2, message_type="order")
    mine = {"origin": [[0, 2, own, 7]], "instances": {own: "tokyo"}, "v": 2}
    attack.peer.rewrite(number, lambda row: row["detail"].update(mine))
    attack.pull("PEER_REFUSED", "is instance 'tokyo', and it is 'frankfurt'")


@pytest.mark.parametrize("whose", ["frankfurt", "tokyo"])
def test_a_restored_journal_takes_nobody_elses_origin(attack: Attack, whose: str) -> None:
    """Its messages would be here as those of another instance."""
    attack.go_on()
    own = attack.here.state.journal_id
    number = attack.peer.number("pulled")
    origin = own if whose == "frankfurt" else attack.here.state.pulled["tokyo"].journal
    told = {"v": 1, "critical": True, "origin_uuid": origin, "since": {"order": 0}}
    attack.peer.rewrite(number, lambda row: row.update(kind="restored", detail=told))
    attack.pull("PEER_REFUSED", f"is instance 'virginia', and it is '{whose}'")
    assert own not in attack.here.state.message_types["order"].origins.held
    attack.heal()
