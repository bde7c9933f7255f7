"""A streaming query's checkpoint, as far as a queue depends on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyroaring import BitMap64


@dataclass
class Checkpoint:
    """What Spark keeps: the end offset of each batch, and how many batches are committed."""

    ends: list[int] = field(default_factory=list)
    committed: int = 0
    #: The rows of the last attempt of each batch: what a stateful query has counted once the batch is committed.
    contents: list[BitMap64] = field(default_factory=list)

    @property
    def start(self) -> int:
        """The offset at which the newest batch begins."""
        return self.ends[len(self.ends) - 2] if len(self.ends) > 1 else 0

    @property
    def is_caught_up(self) -> bool:
        """Whether no batch is under way."""
        return len(self.ends) == self.committed
