"""Lets any function that works on one queue raise, at random: those of deciding, of folding, and of entering."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from spark_queue.core import deciding, engine, folds, state
from spark_queue.core.deciding import handlers
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.state import faults
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.journal import entering
from spark_queue.journal.entering import PreparedTraits, Sequencer


class SabotageError(Exception):
    """What no code expects."""


def _modules() -> Iterator[str]:
    for package in (deciding, folds, state):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
            yield found.name


#: Where the functions stand that may raise: all but those that say what was raised.
_MODULES = frozenset({*_modules(), entering.__name__} - {faults.__name__})


def about(value: Any) -> str | None:
    """Return the queue that an argument is about, or a text as it is, which may be a message type; None for any other value."""
    if isinstance(value, str):
        return value
    if isinstance(value, UnitOfWork):
        value = value.ledger
    if isinstance(value, QueueLedger):
        return value.definition.name
    found = getattr(value, "queue", None)
    return found if isinstance(found, str) else None


def _methods(owner: type) -> dict[str, Any]:
    # What raises in entering is caught in `admit`, and noted.
    left_out = ("admit", "_note")
    return {
        name: each for name, each in vars(owner).items() if inspect.isfunction(each) and name[:2] != "__" and name not in left_out
    }


class Saboteur:
    """Raises in what works on a victim, and on no other queue or message type, as often as `chance` says.

    Parameters
    ----------
    victim : str
        The name of a queue, or of a message type.
    others : collection of str
        The names of all others.
    chance : callable
        Returns whether to raise now.
    place : str or None
        The one function that raises: among all, those that are called most would hide the others. None for none.
    """

    def __init__(self, victim: str, others: Collection[str], chance: Callable[[], bool], *, place: str | None) -> None:
        self.victim = victim
        self._place = place
        self._named = {victim, *others}
        self.chance = chance
        #: The functions that worked on the victim, and those in which it raised.
        self.called: set[str] = set()
        self.raised: list[str] = []

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that may raise before it does anything, or after."""

        @functools.wraps(function)
        def call(*values: Any, **named: Any) -> Any:
            acts = {about(value) for value in (*values, *named.values())} & self._named == {self.victim}
            if acts:
                self.called.add(function.__qualname__)
            acts = acts and self._place == function.__qualname__
            if acts and self.chance():
                self._raise(function)
            found = function(*values, **named)
            if acts and self.chance():
                self._raise(function)
            return found

        return call

    def _raise(self, function: Callable[..., Any]) -> None:
        self.raised.append(function.__qualname__)
        raise SabotageError(function.__qualname__)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Stand in every place from which one of the functions is called."""
        with mock.patch.multiple(engine, **_wrapped(vars(engine), self.around)) as _, _all(self._patches()):
            yield

    def _patches(self) -> Iterator[Any]:
        for name, module in list(sys.modules.items()):
            if name.startswith("spark_queue.") and module is not engine:
                for attribute, wrapped in _wrapped(vars(module), self.around).items():
                    yield mock.patch.object(module, attribute, wrapped)
        yield mock.patch.dict(handlers.HANDLERS, {key: self._handling(each) for key, each in handlers.HANDLERS.items()})
        yield mock.patch.dict(folds._FOLDS, {key: self.around(function) for key, function in folds._FOLDS.items()})
        yield mock.patch.object(engine, "CONSEQUENCES", tuple(map(self.around, handlers.CONSEQUENCES)))
        for owner in (QueueLedger, PreparedTraits, Sequencer):
            for name, method in _methods(owner).items():
                yield mock.patch.object(owner, name, self.around(method))

    def _handling(self, known: handlers.Handling) -> handlers.Handling:
        functions = (known.handler, known.done_before)
        return handlers.Handling(*(None if each is None else self.around(each) for each in functions))


def _wrapped(names: Mapping[str, Any], around: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: around(value) for name, value in names.items() if inspect.isfunction(value) and value.__module__ in _MODULES}


@contextmanager
def _all(patches: Iterator[Any]) -> Iterator[None]:
    begun = []
    try:
        for patch in patches:
            patch.start()
            begun.append(patch)
        yield
    finally:
        for patch in reversed(begun):
            patch.stop()
