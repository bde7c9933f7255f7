"""SIGTERM and SIGINT, which stop a run of `Queue.process`, and end what its function forks as they would without it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

_NUMBERS = (signal.SIGTERM, signal.SIGINT)

#: The handlers as they were before each block of this process that handles signals, outermost first.
_former: list[dict[int, Any]] = []


class _Forking(threading.local):
    #: The signals that were blocked before this thread began to fork; None while no block handles signals.
    blocked: Collection[int] | None = None


_forking = _Forking()


@contextmanager
def calling(stop: Callable[[], object]) -> Iterator[None]:
    """Call a function at each signal that comes within the block."""
    former: dict[int, Any] = {}
    _former.append(former)
    try:
        for number in _NUMBERS:
            former[number] = signal.signal(number, lambda _number, _frame: stop())
        yield
    finally:
        # A child that leaves the block has put them back already.
        if former in _former:
            _put_last_back()


def _put_last_back() -> None:
    for number, handler in _former.pop().items():
        # None stands for a handler that is not Python's, which cannot be put back.
        signal.signal(number, handler or signal.SIG_DFL)


def _hold_signals() -> None:
    """Let signals wait: between the fork and its end, Python would forget one that a child gets."""
    if _former:
        _forking.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)


def _let_signals_come() -> None:
    if _forking.blocked is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.blocked)
        _forking.blocked = None


def _let_signals_end_child() -> None:
    """Put the handlers back, so that the system ends a child: Python 3.13 often runs no handler in the child of a thread."""
    while _former:
        _put_last_back()
    _let_signals_come()


os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals_come, after_in_child=_let_signals_end_child)
