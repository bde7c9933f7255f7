"""The reference of what programs import: signatures, and docstrings, whose NumPy sections become tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from inspect import Parameter
from typing import Any

import spark_queue
from spark_queue.client.publisher import Publisher
from spark_queue.receiver.batch import MessageBatch
from spark_queue.receiver.message import Settlement

#: The parts of the reference. `Publisher` is what `Journal.publisher` gives; messages are settled with a `Settlement`, or come in a
#: `MessageBatch`.
SHOWN: tuple[Any, ...] = (
    *(spark_queue.configure_spark, spark_queue.Journal, Publisher, spark_queue.Queue, spark_queue.is_json),
    *(spark_queue.Receiver, spark_queue.Message, Settlement, MessageBatch, spark_queue.Retry, spark_queue.Expire),
    spark_queue.SparkQueueError,
)

#: A section of a docstring, and an entry in it: a line of its own, and what is indented below.
_SECTION = re.compile(r"^([A-Z]\w+)\n-+\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\S.*)((?:\n+ .*)*)", re.MULTILINE)

_SIGNATURE_MAX = 110


def api() -> str:
    """Return every public class and function."""
    return "\n" + "\n".join(part for shown in SHOWN for part in _parts(shown))


def members(shown: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class by name; a function has none."""
    # What a class has from another one of ours comes first, as it stands there.
    homes = (
        [each for each in reversed(inspect.getmro(shown)) if each.__module__.startswith("spark_queue")]
        if inspect.isclass(shown)
        else []
    )
    for name in dict.fromkeys(name for home in homes for name in vars(home)):
        found = getattr(shown, name)
        if not name.startswith("_") and (callable(found) or isinstance(found, property)):
            yield name, found


def explained(function: Any) -> set[str]:
    """Return the parameters that a docstring explains."""
    entries = _ENTRY.findall(dict(_sections(function)).get("Parameters", ""))
    return {name.lstrip("*") for head, _ in entries for name in head.partition(" : ")[0].split(", ")}


def _parts(shown: Any) -> Iterator[str]:
    name = shown.__name__
    # What only methods make has nothing to tell of its making.
    is_made_by_users = not inspect.isclass(shown) or explained(shown)
    yield _part(f"## {name}", _call(name, shown) if is_made_by_users else "", shown)
    for each, member in members(shown):
        is_property = isinstance(member, property)
        is_awaited = inspect.iscoroutinefunction(inspect.unwrap(member)) if callable(member) else False
        called = f"{'await ' if is_awaited else ''}{each}"
        code = f"{each}: {_return(member.fget)}" if is_property else f"{_call(called, member)} -> {_return(member)}"
        yield _part(f"### {name}.{each}", code, member)


def _part(heading: str, code: str, shown: Any) -> str:
    """Return one heading, its code and its docstring."""
    [(_, text), *sections] = _sections(shown)
    parts = [heading, f"```py\n{code}\n```" if code else "", text.strip(), *(_table(*each) for each in sections)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _sections(shown: Any) -> list[tuple[str, str]]:
    """Return the parts of a docstring, each with its title; what comes first has none."""
    parts = ["", *_SECTION.split(inspect.getdoc(shown) or "")]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _table(title: str, body: str) -> str:
    rows = []
    for name, text in _ENTRY.findall(body):
        meaning = " ".join(text.split()).replace("|", "\\|")
        rows.append(f"| `{name.partition(' : ')[0]}` | {meaning} |")
    return "\n".join([f"| {title} | |", "| --- | --- |", *rows])


def _call(name: str, shown: Any) -> str:
    """Return a call as it is declared; a long one has a line for each parameter."""
    given: list[str] = []
    for each in inspect.signature(shown).parameters.values():
        if each.kind is Parameter.KEYWORD_ONLY and "*" not in given:
            given.append("*")
        if each.name != "self":
            given.append(_parameter(each))
    line = f"{name}({', '.join(given)})"
    return line if len(line) <= _SIGNATURE_MAX else "\n".join([f"{name}(", *(f"    {each}," for each in given), ")"])


def _parameter(each: Parameter) -> str:
    begin = "**" if each.kind is Parameter.VAR_KEYWORD else ""
    default = "" if each.default is Parameter.empty else f" = {each.default!r}"
    return f"{begin}{each.name}: {each.annotation}{default}"


def _return(function: Any) -> str:
    return str(inspect.signature(function).return_annotation)
