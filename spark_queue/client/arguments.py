"""Arguments of the public methods, by their names: each name means the same everywhere, and is judged before anything is opened."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from spark_queue.errors import check_text, parsed

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

#: The wait of a publish for peers, unless it says otherwise.
REPLICATED_WITHIN = "30s"

#: The wait of a catch-up for copies, unless it says otherwise.
CATCH_UP_WITHIN = "10m"


def _text(value: Any) -> str:
    try:
        check_text(value, key="", where="")
    except Exception:  # noqa: BLE001 - its own error knows no argument's name.
        raise ValueError("a text in UTF-8") from None
    return str(value)


def _path(value: Any) -> Any:
    return value if isinstance(value, Path) else _text(value)


def _whole(value: Any, least: int | None = None) -> int:
    expected = "a whole number" if least is None else f"a whole number from {least}"
    try:
        # Numbers of numpy and pandas are taken; a yes or no is a number only to Python.
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        raise ValueError(expected)
    return number


def _flag(value: Any) -> bool:
    # numpy has its own, which is known by its name: nothing of numpy is loaded for that.
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise ValueError("True or False")


def _time(value: Any) -> datetime:
    # The missing time of pandas calls itself a time, and differs from itself.
    if isinstance(value, datetime) and value == value:  # noqa: PLR0124 - as said above.
        return value
    raise ValueError("an aware datetime")


def _moment(value: Any) -> datetime | int:
    try:
        return _time(value) if isinstance(value, datetime) else _whole(value)
    except ValueError:
        raise ValueError("an aware datetime or a record number") from None


def _wait(value: Any) -> str | timedelta:
    if isinstance(value, timedelta) and value == value:  # noqa: PLR0124 - as of times.
        return value
    try:
        return _text(value)
    except ValueError:
        raise ValueError('a duration such as "30s", or a timedelta') from None


def _names(value: Any) -> tuple[str, ...]:
    # A text is a series of texts, too: its letters.
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        try:
            return tuple(map(_text, value))
        except ValueError:
            pass
    raise ValueError("a list of names, each a text in UTF-8")


def _function(value: Any) -> Callable[..., Any]:
    if callable(value):
        return value  # type: ignore[no-any-return]  # Its type is known where it is called.
    raise ValueError("a function")


def _options(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        for name, given in value.items():
            _text(name)
            _text(given) if isinstance(given, str) else given
        return value
    raise ValueError("a dict of texts")


def _definitions(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value
    try:
        return _path(value)
    except ValueError:
        raise ValueError("the path of a TOML file, or its tables as a dict") from None


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("name", "message_type", "queue", "subscription", "owner", "where", "error", "reason", "outcome", "on_error", "writer",
         "expires_after", "deliver_after", "timeout", "filter", "wait", "linger", "stop_timeout"), _text,
    ),
    **dict.fromkeys(("path", "table", "checkpoint"), _text),
    **dict.fromkeys(("bookmark", "first_sequence", "replicated_to"), _whole),
    **dict.fromkeys(("after", "limit", "version"), functools.partial(_whole, least=0)),
    **dict.fromkeys(("per_second", "max_backlog", "concurrency", "max_messages"), functools.partial(_whole, least=1)),
    **dict.fromkeys(
        ("dry_run", "of_owner", "on", "merge_schema", "ack_early", "landed", "single_driver", "wants_empty", "next_first",
         "until_empty", "signals"), _flag,
    ),
    **dict.fromkeys(("since", "until"), _time),
    "as_of": _moment,
    "retry_after": _wait,
    **dict.fromkeys(("reset", "remove", "leave", "columns", "partition_by"), _names),
    **dict.fromkeys(("fn", "on_barrier", "on_progress", "on_lost", "merge"), _function),
    "storage_options": _options,
    "definitions": _definitions,
}  # fmt: skip

#: Judged where they are read, each by its own rule.
JUDGED_ELSEWHERE = frozenset({"self", "attempt", "bookmarks", "data", "publisher", "rows", "topic"})


def checked(method: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Let a public method refuse arguments without a meaning, by name; numbers of numpy become Python's.

    None stands for itself where it is an argument's default.
    """
    parameters = inspect.signature(method).parameters
    unknown = [name for name in parameters if name not in _CHECKS and name not in JUDGED_ELSEWHERE and name != "cls"]
    assert not unknown, f"{method.__qualname__}: nothing judges {unknown}; add a check to _CHECKS in {__name__}"
    in_order = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    checks = {name: (_CHECKS[name], each.default is None) for name, each in parameters.items() if name in _CHECKS}

    def judge(name: str, value: Any) -> Any:
        check, may_be_none = checks.get(name, (None, False))
        if check is None or (value is None and may_be_none):
            return value
        return parsed(check, value, key=name, where=method.__name__)

    @functools.wraps(method)
    def judged(*given: _Given.args, **named: _Given.kwargs) -> _Result:
        # `Signature.bind` takes a twentieth of a publish. Too many arguments, or too few, the method itself refuses.
        told = [judge(name, value) for name, value in zip(in_order, given, strict=False)]
        rest: Any = {name: judge(name, value) for name, value in named.items()}
        return method(*told, *given[len(told) :], **rest)  # type: ignore[arg-type]  # As given, or numbers of Python.

    return judged
