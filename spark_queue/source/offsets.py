"""Offsets of streams, as Spark writes them into a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from spark_queue.errors import LeaseError

OFFSET_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offset:
    """Base: the last field is the position; those before it name the journal and the queue or topic."""

    _about: ClassVar[str]

    journal: str

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark stores, in its fixed key order."""
        return {"v": OFFSET_VERSION, **asdict(self)}

    def check(self, stored: Mapping[str, Any]) -> Self:
        """Read a stored offset of the same journal, and queue or topic; CHECKPOINT_FOREIGN names the first difference."""
        *names, last = (entry.name for entry in fields(self))
        expected = {"v": OFFSET_VERSION, **{name: getattr(self, name) for name in names}}
        for name, value in expected.items():
            if stored.get(name) != value:
                said = "offset version" if name == "v" else name.replace("_", " ")
                what = f"{said} {stored.get(name)!r}"
                raise LeaseError("CHECKPOINT_FOREIGN", what=what, expected=f"{said} {value!r} of this {self._about}")
        position = stored.get(last)
        if set(stored) != {*expected, last} or isinstance(position, bool) or not isinstance(position, int):
            raise LeaseError("CHECKPOINT_FOREIGN", what=f"offset {dict(stored)!r}", expected=f"an offset of this {self._about}")
        return type(self)(**{name: stored[name] for name in (*names, last)})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOffset(_Offset):
    """How far a queue stream has come: the number of its latest lease, 0 before the first."""

    _about: ClassVar[str] = "queue stream"

    queue: str
    subscription: str
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffset(_Offset):
    """How far a topic stream has come: the first bookmark not yet read, -1 before the first batch (DESIGN 15.15)."""

    _about: ClassVar[str] = "topic stream"

    message_type: str
    topic: str
    bookmark: int = -1
