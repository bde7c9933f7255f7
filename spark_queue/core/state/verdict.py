"""The verdict on messages of a batch: kept with their lease until its proof, or with the attempt that puts them into a sink."""

from __future__ import annotations

import msgspec


class Verdict(msgspec.Struct, frozen=True):
    """An outcome, when a cancelled message is due again, in milliseconds, and the text of its error."""

    outcome: str
    due_at_ms: int | None
    error: str | None
