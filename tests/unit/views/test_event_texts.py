"""What each record says of a message, in words."""

from __future__ import annotations

from typing import Any

import pytest

from spark_queue.core.records import Kind, Removal
from spark_queue.views.event_texts import event_text
from tests.records import record_of

LEASE = {"subscription": "s", "lease": 3, "ranges": ((0, 2), (5, 6)), "due_at_ms": 60_000}
ATTEMPT = {"attempt": 4, "table": "lake/booked"}
COUNTED = {"deliveries": 2, "cancels": 1}


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        (Kind.ENTERED, {"message_type": "line", "detail": {"version": 4, "path": "a"}}, "version 4 of line, file a"),
        (Kind.RETIRED, {}, "retired: no queue needed it"),
        (Kind.GRANTED, LEASE, "leased to 's' until 1970-01-01T00:01:00+00:00, in lease 3 of 3 message"),
        (Kind.GRANTED, {**LEASE, "detail": {"barrier": True}}, "given to 's' as a barrier, a batch of its own (lease 3)"),
        (Kind.RESUMED, LEASE, "'s' came back and resumed its batch until 1970-01-01T00:01:00+00:00, in lease 3"),
        (Kind.RENEWED, LEASE, "'s' renewed lease 3"),
        (Kind.RENEWED, {**LEASE, "reason": "takeover"}, "a coordinator that started or woke kept lease 3"),
        (Kind.OUTCOMES, {**LEASE, "reason": "failed", "detail": {"error": "boom"}}, "the batch of lease 3 failed: boom"),
        (Kind.OUTCOMES, {**LEASE, "reason": "cancel"}, "'s' said cancel, not before 1970-01-01T00:01:00+00:00"),
        (Kind.OUTCOMES, {**LEASE, "reason": "cancel", "due_at_ms": None}, "'s' said cancel; that counts when"),
        (Kind.PROVEN, LEASE, "Spark committed the batch of lease 3"),
        (Kind.RETURNED, {"reason": "cancelled"}, "returned to the queue (cancelled)"),
        (Kind.RETURNED, {"reason": "isolated", "detail": {"alone": True}}, "(isolated, it failed alone)"),
        (Kind.RETURNED, {"reason": "cancelled", "due_at_ms": 1_000}, "available again from 1970-01-01T00:00:01+00:00"),
        (Kind.REMOVED, {"reason": Removal.TIME_LIMIT}, "expired: its time was over"),
        (Kind.REMOVED, {"reason": Removal.MAX_CANCELS, "detail": COUNTED}, "too many cancels (deliveries: 2, cancels: 1)"),
        (Kind.REMOVED, {"reason": "of tomorrow"}, "left the queue (of tomorrow)"),
        (Kind.DEAD_LETTERED, {"queue": "D", "reason": "r", "detail": {"source": "Q", **COUNTED}}, "'D' from 'Q' (r, deliveries: 2"),
        (Kind.DEFERRED, LEASE, "that counts until 1970-01-01T00:01:00+00:00"),
        (Kind.BARRIER_RELEASED, {"detail": {"subscriptions": ["a", "b"]}}, "barrier released to a, b"),
        (Kind.BARRIER_RECEIVED, {"subscription": "s"}, "'s' received the barrier"),
        (
            Kind.BARRIER_RECEIVED, {"subscription": "s", "reason": "r", "detail": {"deliveries": 4}},
            "gave the barrier up, delivered 4 times",
        ),
        (Kind.BARRIER_RECEIVED, {"subscription": "s", "reason": "hidden"}, "principal of 's' may no longer see the barrier"),
        (Kind.BARRIERS_DECIDED, {"queue": "Q", "detail": {"barrier": True}}, "after it had been set aside: it is a barrier"),
        (Kind.BARRIERS_DECIDED, {"queue": "Q"}, "had been set aside: it is no barrier of it"),
        (Kind.PAUSED, {"reason": "user"}, "paused"),
        (Kind.PAUSED, {"subscription": "s", "reason": "alarm", "detail": {"error": "boom"}}, "one message at a time: boom"),
        (Kind.UNPAUSED, {"reason": "user"}, "unpaused"),
        (Kind.UNPAUSED, {"subscription": "s", "reason": "probe"}, "which ended the alarm of 's'"),
        (Kind.REDRIVEN, {"queue": "Q"}, "redriven: in queue 'Q'"),
        (Kind.CLAIMED, LEASE, "its rows were handed to 's'"),
        (Kind.LAPSED, LEASE, "lease 3 ran out"),
        (Kind.PREPARED, {**LEASE, "detail": ATTEMPT}, "attempt 4 of 's' to append its batch to 'lake/booked' was prepared"),
        (Kind.LANDED, {**LEASE, "detail": {**ATTEMPT, "version": 9}}, "landed in 'lake/booked', version 9, by attempt 4 of 's'"),
        (Kind.LANDED, {**LEASE, "detail": {**ATTEMPT, "forced": True}}, "of 's', by force (its sink could not be read)"),
        (Kind.FENCED, {**LEASE, "detail": ATTEMPT}, "attempt 4 of 's' was fenced: it is not in 'lake/booked'"),
        (Kind.SINK_UNREADABLE, {**LEASE, "detail": {"attempt": 4, "error": "gone"}}, "whether attempt 4 of 's' landed: gone"),
        (Kind.TRANSFER_REQUESTED, {"detail": {"requester": "f", "owner": "v"}}, "'f' asked its owner, instance 'v', for it or"),
        (Kind.TRANSFERRED, {"detail": {"owner": "f", "term": 2}}, "transferred to instance 'f', by a request or a drain (term 2)"),
        (Kind.TRANSFERRED, {"reason": "claimed", "detail": {"owner": "f", "term": 2}}, "claimed by this instance, 'f', since"),
        (Kind.NAMED, {"detail": {"names": [], "instances": {"u": "virginia"}}}, "published it to another instance ('virginia')"),
        (Kind.REPLICATED, {"reason": "acknowledged", "detail": {"peer": "v", "stage": 2}}, "'v' reported: acknowledged: it left"),
        (
            Kind.REPLICATED, {"reason": "transferred", "detail": {"peer": "v", "owner": "f", "term": 1}},
            "instance 'v' reported: it belongs to instance 'f' from now on, in term 1",
        ),
        (
            Kind.REPLICATED, {"reason": "redriven", "detail": {"peer": "v", "owner": "v", "life": 1}},
            "redriven: it belongs to instance 'v', in life 1",
        ),
        (
            Kind.REPLICATED, {"reason": Removal.MAX_CANCELS, "detail": {"peer": "v", "owner": "t", "stage": 1}},
            "'v' reported: became a dead letter: too many cancels; instance 't' owns the dead letter",
        ),
        (
            Kind.REPLICATED, {"reason": "dead_lettered", "queue": "D", "detail": {"peer": "v", "owner": "v"}},
            "'v' reported: came to dead-letter queue 'D' of instance 'v'",
        ),
        ("of_tomorrow", {}, "of_tomorrow"),
    ],
)  # fmt: skip
def test_each_kind_of_record_has_its_words(kind: str, fields: dict[str, Any], text: str) -> None:
    assert text in event_text(record_of(kind=kind, record=1, **fields))


def test_what_somebody_did_by_hand_says_who() -> None:
    """R12: of an instance with principals the log knows who, and from where."""
    by = {"principal": "ops", "host": "10.0.0.7"}
    purged = record_of(kind=Kind.REMOVED, queue="WORK", ranges=((1, 2),), reason="purged", detail={"by": by})
    assert event_text(purged) == "purged by ops (10.0.0.7)"
