"""What a coordinator process is told on stdin, and the one line that it answers with on stdout."""

from __future__ import annotations

import msgspec

from spark_queue.coordinator.server import Bind


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a coordinator process is told. Storage options hold secrets, so orders travel on stdin only (DESIGN 15.14)."""

    path: str
    storage_options: dict[str, str]
    journal_id: str
    #: Where it listens.
    bind: Bind = Bind()
    #: Whether it ends when nobody has called for the journal's `coordinator_idle`.
    ends_idle: bool = True
    #: Reign although the log is more than a day ahead of this host's clock.
    accept_clock: bool = False


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Where the journal's coordinator serves now, or the code and facts of what kept this process from it."""

    address: str | None = None
    code: str | None = None
    facts: dict[str, object] = {}
