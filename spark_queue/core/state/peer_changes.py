"""What somebody said of the peers of a journal, where no definition says it (DESIGN 17.3)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PeerChanges:
    """What was said of peers, by the name of their instance.

    Attributes
    ----------
    skips : set of str
        Whose next records are taken over although messages of them are lost: until something of it is pulled.
    """

    skips: set[str] = field(default_factory=set)
