"""A journal with dead letters, and who changes it by the page."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from spark_queue.core import commands
from spark_queue.core.commands import Caller
from spark_queue.errors import AccessError
from spark_queue.protocol.endpoint import Endpoint
from tests.unit.dashboard.asking import Answer, Asker, asker
from tests.unit.dashboard.dashboard_world import DashboardWorld

QUEUE = "/j/shop/queues/BILLING"


class Held(DashboardWorld):
    """A journal with dead letters, whose engine here answers instead of a coordinator."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(place)
        self.asked: list[str] = []
        #: Whether a coordinator would let the page's principal change queues.
        self.may_change = True
        #: Whose token the page has.
        self.caller: Caller | None = None
        self.publish(20, 1)
        self.expire("BILLING", range(6), "card declined", 2)
        self.expire("BILLING", range(6, 10), "timeout", 3)
        self.commit()
        monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", self._answer)
        self.visitor = asker(self.journal, allows_changes=True)

    def _answer(self, _store: Any, _journal: str, command: commands.AnyCommand, *, endpoint: Endpoint) -> Any:
        # Whoever may not pause is to be refused before a form is confirmed: this asks for the right, and changes nothing.
        if not isinstance(command, commands.FindAttempts):
            self.asked.append(type(command).__name__)
        elif not self.may_change:
            raise AccessError("ACCESS_DENIED", principal="ann", right="change", what=f"queue '{command.queue}'")
        reply = self.engine.decide(command, now_ms=self.at(60), caller=self.caller)
        self.commit()
        return reply

    def group(self, error: str) -> str:
        page = self.visitor.get(f"{QUEUE}/dead-letters").text
        return str(re.search(rf"\?group=([0-9a-f]+)#letters\">{error}", page)[1])  # type: ignore[index]  # It is there.


def ended(visitor: Asker, path: str) -> Answer:
    """Return the page of a change that has ended: none may outlive the engine that answers it."""
    shown = visitor.get(path)
    while 'id="change" data-live' in shown.text:
        shown = visitor.get(path)
    return shown


def confirmed(visitor: Asker, path: str, form: dict[str, str]) -> tuple[str, Answer]:
    """Ask what would be done, confirm it, and return both pages."""
    asked = visitor.change(path, form).text
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', asked)
    fields = {name: html.unescape(value) for name, value in found}
    begun = visitor.post(path, fields)
    assert begun.status == 303, begun.text
    return asked, ended(visitor, begun.headers["location"])
