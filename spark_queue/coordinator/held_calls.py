"""Calls whose answers nobody needs soon: they wait a moment for the next one of their subscription (DESIGN 6).

Both share a commit, or a look at the control log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands

#: How long a call of each kind waits at most, in milliseconds. A stream that has a batch behind it asks for the next one at once,
#: and one that has taken the rows of a batch begins its function once Spark has planned it. Only the listener of its query, or a
#: thread, waits for the answer.
HELD_MS: Mapping[type, int] = MappingProxyType({commands.Prove: 150, commands.RowsTaken: 1_000})


@dataclass(frozen=True, slots=True)
class _Held:
    call: Call
    until_ms: int


class HeldCalls:
    """Such calls, until their stream makes its next one, or has had the time to."""

    def __init__(self) -> None:
        self._held: list[_Held] = []

    @property
    def due_ms(self) -> int | None:
        """When the first of them waits no longer; None where none waits."""
        return min(self._until_ms().values(), default=None)

    def release(self, calls: Sequence[Call], waiting: Iterable[Call], *, is_due: bool, now_ms: int) -> list[Call]:
        """Return the calls to serve now, held ones first; `waiting` are polls that wait at the coordinator already.

        Where something `is_due` none is held: their leases must not end while they wait.
        """
        self._held += [_Held(call, now_ms + HELD_MS[type(call.request)]) for call in calls if type(call.request) in HELD_MS]
        if not self._held:
            return list(calls)
        others = [call for call in calls if type(call.request) not in HELD_MS]
        heard = {_subscription(call) for call in (*others, *waiting)}
        over = {about for about, until_ms in self._until_ms().items() if until_ms <= now_ms}
        ready = [each for each in self._held if is_due or _subscription(each.call) in heard | over]
        self._held = [each for each in self._held if each not in ready]
        return [*(each.call for each in ready), *others]

    def _until_ms(self) -> dict[tuple[str, str] | None, int]:
        """Return until when the calls of each subscription wait: together, as long as any of them may."""
        found: dict[tuple[str, str] | None, int] = {}
        for each in self._held:
            about = _subscription(each.call)
            found[about] = max(found.get(about, 0), each.until_ms)
        return found

    def close(self) -> None:
        """Send those that wait elsewhere."""
        for each in self._held:
            each.call.answer(None)
        self._held = []


def _subscription(call: Call) -> tuple[str, str] | None:
    request = call.request
    found = getattr(request, "subscription", None)
    return None if found is None else (getattr(request, "queue", ""), found)
