"""Who may change a journal by the page, and by what: forms of its own sessions, in the name of the principal of its token."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from spark_queue.core import commands
from spark_queue.core.commands import Caller
from spark_queue.protocol.tokens import token_hash
from spark_queue.protocol.user_files import TOKEN_VARIABLE
from tests.unit.dashboard import dashboard_world
from tests.unit.dashboard.asking import asker
from tests.unit.dashboard.changing import QUEUE, Held, confirmed


def test_the_log_names_the_principal_in_whose_name_the_page_has_paused(held: Held) -> None:
    """R12."""
    held.caller = Caller(principal="ann", host="10.0.0.9", signs=True)
    confirmed(held.visitor, f"{QUEUE}/changes", {"verb": "pause"})
    held.visitor.followers[0].refresh()
    log = held.visitor.get("/j/shop/log?queue=BILLING&people=1").text
    assert re.search(r"<td>paused</td>.*by ann \(10\.0\.0\.9\)", log)


@pytest.mark.parametrize("token", ["", "wrong", "0" * 64])
def test_a_form_without_its_token_changes_nothing(held: Held, token: str) -> None:
    form = {"verb": "purge", "confirmed": "20", "form_token": token}
    answer = held.visitor.post("/j/shop/queues/SHIPPING/changes", form)
    assert (answer.status, held.asked) == (403, [])


def test_nothing_changes_by_a_get(held: Held) -> None:
    token = held.visitor.form_token
    assert held.visitor.get(f"{QUEUE}/changes?verb=purge&confirmed=20&form_token={token}").status == 405
    assert held.asked == []


def test_a_page_that_only_shows_has_no_forms_and_takes_none(held: Held) -> None:
    visitor = asker(held.journal)
    for path in (QUEUE, f"{QUEUE}/messages", f"{QUEUE}/dead-letters"):
        assert "/changes" not in visitor.get(path).text
    answer = visitor.change(f"{QUEUE}/changes", {"verb": "purge", "confirmed": "20"})
    assert (answer.status, held.asked) == (403, [])
    assert "--allow-changes" in answer.text


def test_a_right_that_is_taken_away_before_the_confirmation_is_missed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: the process asks by its token, so what that may not do is refused before anybody confirms it."""
    rights: dict[str, Any] = {name: [{"queues": "^.*", "rights": [name, "write"]}] for name in ("change", "read")}
    rights["change"].append({"queues": "SHIPPING", "rights": ["read"], "filter": "amount > 7"})
    principals = {
        "ops": {"token_hash": token_hash("ops"), "rights": [{"rights": ["administer"]}]},
        "ann": {"token_hash": token_hash("ann"), "rights": rights["change"]},
    }
    defined = {**dashboard_world.DEFINITIONS, "principals": principals}
    monkeypatch.setattr(dashboard_world, "DEFINITIONS", defined)
    monkeypatch.setenv(TOKEN_VARIABLE, "ann")
    held, path = Held(tmp_path, monkeypatch), "/j/shop/queues/SHIPPING/changes"
    asked = held.visitor.change(path, {"verb": "purge"}).text
    assert "4 messages would be purged" in asked, "the others are hidden from the process"
    definitions = {**defined, "principals": {**principals, "ann": {**principals["ann"], "rights": rights["read"]}}}
    held.decide(commands.Apply(definitions=definitions, request="r"), 5)
    held.commit()
    refused = held.visitor.change(path, {"verb": "purge", "confirmed": "4"})
    assert (refused.status, held.asked) == (400, [])
    assert "ACCESS_DENIED" in refused.text
    held.may_change = False
    for verb in ("pause", "unpause"):
        refused = held.visitor.change(path, {"verb": verb})
        assert (refused.status, "ACCESS_DENIED" in refused.text) == (400, True), "also where nothing is counted"
