"""Attempts to append the rows of a lease's batch to a sink, by one commit there that is the acknowledgement (DESIGN 19).

From `prepared` on an attempt is *in doubt*: it may stand in its sink, or come to stand there while nobody looks. So nothing
becomes of its messages until somebody has read the sink, or fenced it, and recorded `landed` or `fenced`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyroaring import BitMap64

from spark_queue.core.records import Incarnation
from spark_queue.core.state.verdict import Verdict


@dataclass(slots=True, kw_only=True)
class Attempt:
    """A try to make a lease's batch one commit of a sink."""

    number: int
    table: str
    table_id: str
    #: The planner start whose run prepared it.
    incarnation: Incarnation
    prepared_at_ms: int
    #: The request by which it was prepared.
    request: str
    #: The outcomes of the messages that are not in the commit; all others are acknowledged by it.
    exceptions: dict[Verdict, BitMap64]
    #: Whether it stands in its sink.
    landed: bool = False
    #: Why nobody could decide about it.
    error: str | None = None
    #: Whether its sink could be read then, and only the fence could not be written.
    is_read: bool = False


@dataclass(slots=True)
class AttemptNumbers:
    """The numbers of one subscription name's attempts, which rise for ever (R124)."""

    last: int = 0
    fenced: BitMap64 = field(default_factory=BitMap64)
