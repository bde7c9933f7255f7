"""Asking a store several things beside each other: what an object store takes to answer is waiting, and no work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

_Asked = TypeVar("_Asked")
_Found = TypeVar("_Found")


def read_together(ask: Callable[[_Asked], _Found], asked: Sequence[_Asked], *, at_once: int) -> Iterator[_Found]:
    """Yield the answers to questions about things that are there, in their order; up to `at_once` are asked from the first."""
    if len(asked) < 2:
        yield from map(ask, asked)
        return
    with ThreadPoolExecutor(min(at_once, len(asked))) as readers:
        yield from readers.map(ask, asked)


def read_ahead(ask: Callable[[_Asked], _Found], asked: Iterable[_Asked], *, at_once: int) -> Iterator[_Found]:
    """Yield the answers to questions of which nobody knows how many there are, in their order.

    The first is asked alone, since it may tell that there is nothing more; then the more are under way the more have been answered,
    up to `at_once`. Some may have been asked in vain where the caller stops.
    """
    rest = iter(asked)
    yield from map(ask, islice(rest, 1 if at_once > 1 else None))
    if at_once == 1:
        return
    under_way, window = deque[Future[_Found]](), 1
    with ThreadPoolExecutor(at_once) as readers:
        try:
            while True:
                window = min(2 * window, at_once)
                under_way.extend(readers.submit(ask, each) for each in islice(rest, window - len(under_way)))
                if not under_way:
                    return
                yield under_way.popleft().result()
        finally:
            for each in under_way:
                each.cancel()
