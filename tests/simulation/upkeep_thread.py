"""The threads of a simulated process: upkeep that goes on when the world lets it, and readers that do not run side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from tests.simulation.loop_node import KilledError

if TYPE_CHECKING:
    from tests.simulation.loop_node import Node


class UpkeepThread:
    """Stands in for the executor of one process's upkeep: one piece of work at a time, begun when the world says so."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: list[Work] = []

    def submit(self, act: Callable[..., Any], **arguments: Any) -> Work:
        """Take a piece of work."""
        work = Work(lambda: act(**arguments))
        self._waiting.append(work)
        return work

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to do, in a process that lives."""
        return bool(self._waiting) and self._node.alive

    def go_on(self) -> None:
        """Do what waits."""
        self._waiting.pop(0).run(self._node)


class Work:
    """Stands in for the future of a piece of work."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act
        self._is_done = False
        self._found: Any = None
        self._failure: Exception | None = None

    def run(self, node: Node) -> None:
        """Do it; the process may end on the way."""
        try:
            self._found = self._act()
        except KilledError:
            node.alive = False
        except Exception as failure:  # noqa: BLE001  # As a future keeps it.
            self._failure = failure
        self._is_done = True

    def done(self) -> bool:
        """Return whether it was done."""
        return self._is_done

    def result(self) -> Any:
        """Return what it found."""
        if self._failure is not None:
            raise self._failure
        return self._found


class InlineReaders:
    """Stands in for an executor of readers."""

    def __init__(self, _readers: int) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, act: Callable[[Any], Any], each: Iterable[Any]) -> Iterator[Any]:
        """Do one after the other."""
        return map(act, each)
