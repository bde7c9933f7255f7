"""Who may deliver what another instance holds, as the kill farm judges it: who claimed it, and who had not heard of that."""

from __future__ import annotations

from typing import Any

import pytest

from spark_queue.core.records import CLAIMED, Kind
from tests.acceptance.farm.judgement_of_instances import Holders, Id
from tests.records import record_of

MESSAGE: Id = ("journal", 0)

DELIVERS: dict[str, Any] = {"kind": Kind.GRANTED}
RETURNS: dict[str, Any] = {"kind": Kind.RETURNED}
RESUMES: dict[str, Any] = {"kind": Kind.RESUMED}
CLAIMS: dict[str, Any] = {"kind": Kind.TRANSFERRED, "reason": CLAIMED}


def pulls(peer: str, number: int) -> dict[str, Any]:
    """Return what an instance says that has read the log of another up to a record."""
    return {"kind": Kind.PULLED, "detail": {"peer": peer, "journal": peer, "number": number, "digest": ""}}


#: What two instances say one after the other, and whether the last of them may deliver.
STORIES: dict[str, tuple[list[tuple[str, dict[str, Any]]], bool]] = {
    "both deliver": ([("a", DELIVERS), ("b", DELIVERS)], False),
    "one got it back": ([("a", DELIVERS), ("a", RETURNS), ("b", DELIVERS)], True),
    "one claimed it": ([("a", DELIVERS), ("b", CLAIMS), ("b", DELIVERS)], True),
    "the other claimed it": ([("a", DELIVERS), ("a", CLAIMS), ("b", DELIVERS)], True),
    "the other claimed it, and this one knows": ([("a", CLAIMS), ("a", DELIVERS), ("b", pulls("a", 1)), ("b", DELIVERS)], False),
    "the other claimed it, and this one does not know yet": (
        [("a", RETURNS), ("a", CLAIMS), ("a", DELIVERS), ("b", pulls("a", 1)), ("b", DELIVERS)], True,
    ),
    "its own lease goes on": ([("b", DELIVERS), ("a", CLAIMS), ("a", DELIVERS), ("b", pulls("a", 1)), ("b", RESUMES)], True),
    "a lease that had ended goes on": (
        [("b", DELIVERS), ("b", RETURNS), ("a", CLAIMS), ("a", DELIVERS), ("b", pulls("a", 1)), ("b", RESUMES)], False,
    ),
    "somebody else claimed it": ([("a", DELIVERS), ("c", CLAIMS), ("b", DELIVERS)], False),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_who_delivers_what_another_holds_has_claimed_it_or_has_not_heard(story: str) -> None:
    said, may_deliver = STORIES[story]
    holders, numbers = Holders(), dict.fromkeys("abc", 0)
    for name, facts in said:
        numbers[name] += 1
        holders.hear(name, record_of(record=numbers[name], **facts), [MESSAGE])
    assert holders.shared == ([] if may_deliver else [MESSAGE])
