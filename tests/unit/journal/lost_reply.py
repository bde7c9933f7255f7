"""A commit that lands while the store goes away, so that its writer cannot know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_queue.errors import JournalError
from spark_queue.journal.delta_head import DeltaHead


def lose_reply(patch: pytest.MonkeyPatch) -> None:
    """Let each commit behind a known head land, and neither its reply nor a look at the log arrive."""
    put = DeltaHead.put

    def unreachable(*_: Any) -> None:
        raise JournalError("STORE_FAILED", path="/j", doing="reading", reason="it is away.", next_step="Wait.")

    def land(*given: Any, **named: Any) -> None:
        put(*given, **named)
        unreachable()

    patch.setattr(DeltaHead, "put", land)
    patch.setattr(DeltaHead, "read_on", unreachable)


@contextmanager
def unanswered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a publish land that hears of no answer."""
    with monkeypatch.context() as patch:
        lose_reply(patch)
        with pytest.raises(JournalError, match="STORE_FAILED"):
            yield
