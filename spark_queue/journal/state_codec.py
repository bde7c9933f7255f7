"""A journal's state as bytes and back: every attribute of every object, under any name."""

from __future__ import annotations

import importlib.resources
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import chain
from typing import Any, TypeVar

import msgspec
import numpy as np
from pyroaring import BitMap64

from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.log_history import LogHistory
from spark_queue.errors import SparkQueueError, error

_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_SEQUENCES: dict[str, type] = {each.__name__: each for each in (list, tuple, set, frozenset, deque)}
_MAPPINGS: dict[str, type] = {each.__name__: each for each in (dict, Counter)}
_BUILT_IN = (*_PLAIN - {type(None)}, *_SEQUENCES.values(), *_MAPPINGS.values())
_CORE = "spark_queue.core."
_T = TypeVar("_T")

#: Attributes of `JournalState` that are no part of the fold: the source of traits.
_LEFT_OUT = frozenset({"traits"})


def encode(state: JournalState | LogHistory) -> bytes:
    """Return a state, or a history, as bytes."""
    try:
        return msgspec.msgpack.encode(_packed(state))
    except OverflowError as reason:
        raise TypeError(f"a number is too large to be stored: {reason}") from None


def decode(data: bytes) -> JournalState:
    """Make the state of `encode`; it has no source of traits yet."""
    return decoded(data, JournalState)


def decoded(data: bytes, kind: type[_T]) -> _T:
    """Return the value in some bytes, refused unless it is of a kind."""
    try:
        value = _unpacked(msgspec.msgpack.decode(data))
    except (msgspec.DecodeError, TypeError, AttributeError, KeyError, IndexError, ImportError) as reason:
        raise ValueError(f"it holds no state: {reason}") from None
    if not isinstance(value, kind):
        raise ValueError("it holds no state")  # noqa: TRY004 - the bytes are wrong, not a type
    return value


def _packed(value: Any) -> Any:
    """Return a value as msgpack knows it: one that is not plain becomes a list that begins with its kind."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is BitMap64:
        return ["bitmap", value.serialize()]
    if kind is np.ndarray:
        return ["array", value.dtype.str, value.tobytes()]
    if isinstance(value, Enum) and kind.__module__.startswith(_CORE):
        return ["enum", _name(kind), value.value]
    if kind in _SEQUENCES.values():
        return [kind.__name__, _packed_list(list(value))]
    if kind in _MAPPINGS.values():
        return [kind.__name__, _packed_list(list(value)), _packed_list(list(value.values()))]
    if isinstance(value, SparkQueueError):
        return ["error", value.code, _packed(dict(value.facts))]
    if kind.__module__.startswith(_CORE):
        return ["objects", *_packed_objects(kind, [value])]
    raise TypeError(f"a {kind.__module__}.{kind.__qualname__} cannot be stored")


def _packed_list(values: list[Any]) -> Any:
    """Return many values: plain ones as they are, objects of one class as columns, since there may be very many."""
    kinds = set(map(type, values))
    if kinds <= _PLAIN:
        return ["plain", values]
    (kind, *others) = kinds
    if not others and kind.__module__.startswith(_CORE) and not issubclass(kind, Enum):
        distinct = {id(value): value for value in values}
        if 2 * len(distinct) <= len(values):
            # Many segments have the columns of one table.
            places = {key: place for place, key in enumerate(distinct)}
            return ["shared", _packed_list(list(distinct.values())), [places[id(value)] for value in values]]
        return ["objects", *_packed_objects(kind, values)]
    return ["mixed", [_packed(value) for value in values]]


def _packed_objects(kind: type, values: Sequence[Any]) -> Iterator[Any]:
    if issubclass(kind, _BUILT_IN):
        # Its attributes would not be all of it.
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} cannot be stored")
    names = sorted(set(chain.from_iterable(map(_attributes, values))) - _LEFT_OUT)
    yield _name(kind)
    yield names
    yield [_packed_list([getattr(value, name) for value in values]) for name in names]


def _attributes(value: Any) -> Iterator[str]:
    yield from getattr(value, "__dict__", ())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _name(kind: type) -> str:
    return f"{kind.__module__.removeprefix(_CORE)}:{kind.__qualname__}"


def _unpacked(value: Any) -> Any:
    if type(value) is not list:
        return value
    match value:
        case ["bitmap", data]:
            return BitMap64.deserialize(data)
        case ["array", dtype, data]:
            return np.frombuffer(data, dtype=np.dtype(dtype)).copy()
        case ["enum", name, of]:
            return _class(name)(of)
        case ["error", code, facts]:
            return error(code, _unpacked(facts))
        case ["objects", *_]:
            return _unpacked_list(value)[0]
        case [name, members] if name in _SEQUENCES:
            return _SEQUENCES[name](_unpacked_list(members))
        case [name, keys, values] if name in _MAPPINGS:
            return _MAPPINGS[name](dict(zip(_unpacked_list(keys), _unpacked_list(values), strict=True)))
    raise ValueError(f"it holds a {value[:1]}")


def _unpacked_list(packed: Any) -> list[Any]:
    match packed:
        case ["plain", values]:
            return list(values)
        case ["shared", values, places]:
            distinct = _unpacked_list(values)
            return [distinct[place] for place in places]
        case ["mixed", values]:
            return [_unpacked(value) for value in values]
        case ["objects", name, names, columns]:
            kind, rows = _class(name), list(zip(*map(_unpacked_list, columns), strict=True))
            return [_made(kind, names, row) for row in rows]
    raise ValueError("it holds no list where there must be one")


def _made(kind: type, names: Sequence[str], values: Sequence[Any]) -> Any:
    if issubclass(kind, msgspec.Struct):
        return kind(**dict(zip(names, values, strict=True)))
    made: Any = object.__new__(kind)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made


def _class(name: str) -> Any:
    module, _, qualified = name.partition(":")
    found = getattr(importlib.import_module(_CORE + module), qualified)
    if not (isinstance(found, type) and found.__module__ == _CORE + module):
        raise ValueError(f"{name} is no class of the core")
    return found
