"""Who asks: a principal of the journal, and from where (R12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A principal whose token came with a call."""

    principal: str
    #: The address that the call came from.
    host: str
    #: Whether records say who asked: of what people do, not of what streams do for their subscription.
    signs: bool = False

    def signature(self) -> Mapping[str, str]:
        """Return who asked, as records keep it."""
        return {"principal": self.principal, "host": self.host}
