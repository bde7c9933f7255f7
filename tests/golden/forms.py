"""The form of all that is stored and sent, as text: declared by classes, and seen in the files of a journal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import inspect

from spark_queue.core.commands import COMMAND_VERSION
from spark_queue.core.records import BODIES, BODY_VERSION, FORMAT
from spark_queue.journal import snapshot
from spark_queue.journal.entry_parts import MARK_KEY, MARK_VERSION
from spark_queue.journal.pieces import PIECES
from spark_queue.journal.record_table import CONTROL_SCHEMA, Row
from spark_queue.journal.schema import ENVELOPE, ORIGIN
from spark_queue.protocol import wire
from spark_queue.protocol.discovery import Advertisement
from spark_queue.replication.beacon import Beacon
from spark_queue.source.offsets import OFFSET_VERSION, QueueOffset, TopicOffset

#: Forms by what they are of: names, and what stands under each.
Forms = dict[str, dict[str, str]]

#: The replies of a coordinator, by name.
REPLIES: Mapping[str, type[Any]] = {each.__name__: each for each in wire.AnyReply.__args__}


def declared() -> Forms:
    """Return the forms that classes and schemas declare."""
    found: Forms = {
        "numbers": {
            "journal": str(FORMAT), "detail of a record": str(BODY_VERSION), "mark": str(MARK_VERSION),
            "snapshot": str(snapshot.FORMAT), "offset in a checkpoint": str(OFFSET_VERSION), "call": str(COMMAND_VERSION),
        },
        "columns of the control log": _columns(CONTROL_SCHEMA),
        "columns of every message": _columns(ENVELOPE),
        "columns of a message of an instance": _columns(ORIGIN),
        "row in an entry": _fields(Row),
        "snapshot, first line": _fields(snapshot.Header),
        "coordinator.json": _fields(Advertisement),
        "beacon.json": _fields(Beacon),
        "offset of a queue's stream": _offset(QueueOffset),
        "offset of a topic's stream": _offset(TopicOffset),
        "columns beside a reply with rows": _columns(PIECES),
        "envelope of a call": _fields(wire.Envelope),
    }  # fmt: skip
    for kind, body in sorted(BODIES.items()):
        found[f"record {kind}"] = {"": "critical" if body.critical else "", **_fields(body)}
    for name, request in sorted(wire.REQUESTS.items()):
        found[f"call {name}"] = _fields(request)
    for name, reply in sorted(REPLIES.items()):
        found[f"reply {name}"] = _fields(reply)
    return found


def seen(journal: Path) -> Forms:
    """Return the forms that the files of a journal have, by what they are."""
    found: dict[str, set[str]] = {}
    for path in sorted(each for each in journal.rglob("*") if each.is_file()):
        for of, paths in _of_file(path, path.relative_to(journal)):
            found.setdefault(of, set()).update(paths)
    return {of: dict(sorted(each.partition(": ")[::2] for each in paths)) for of, paths in sorted(found.items())}


def _of_file(path: Path, key: Path) -> Iterator[tuple[str, list[str]]]:
    table = "control" if key.parts[0] == "control" else "a message table"
    if key.suffix == ".json" and "_delta_log" in key.parts:
        for line in path.read_text(encoding="utf-8").splitlines():
            yield from _of_action(table, json.loads(line))
    elif key.suffix == ".json":
        yield key.name, list(_paths(json.loads(path.read_bytes())))
    elif key.suffix == ".snapshot":
        yield "a snapshot's first line", list(_paths(json.loads(path.read_bytes().partition(b"\n")[0])))
    elif key.suffix == ".parquet" and "_delta_log" in key.parts:
        yield f"a checkpoint of {table}", [f"{each.name}: {each.type}" for each in pq.read_schema(path)]
    elif key.suffix == ".parquet":
        schema = pq.read_schema(path)
        of = f"a file of {table}" if table == "control" else f"a file of {key.parent.name}"
        yield of, [f"{each.name}: {each.type}{'' if each.nullable else ' not null'}" for each in schema]
        marked = (schema.metadata or {}).get(MARK_KEY.encode())
        if marked is not None:
            yield f"the metadata '{MARK_KEY}' of a file", list(_paths(json.loads(marked)))
    elif key.name == "_last_checkpoint":
        yield key.name, list(_paths(json.loads(path.read_bytes())))


def _of_action(table: str, action: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    for name, facts in action.items():
        mark = facts.pop(MARK_KEY, None) if name == "commitInfo" else None
        if name == "txn":
            yield f"transaction ids of {table}", [f"{facts['appId'].partition(':')[0]}:: {facts['appId'].count(':')} colons"]
        if name == "metaData":
            yield f"properties of {table}", [f"{each}: {value}" for each, value in facts.pop("configuration").items()]
        if isinstance(facts.get("stats"), str):
            yield f"statistics of {table}", list(_paths(json.loads(facts.pop("stats"))))
        yield f"{name} of {table}", list(_paths(facts))
        if mark is not None:
            yield f"mark of the {mark['writer']} in {table}", list(_paths(mark))


def _paths(value: Any, at: str = "") -> Iterator[str]:
    """Yield each place in a JSON value, and the type of what stands there."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _paths(inner, f"{at}.{name}" if at else str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, f"{at}[]")
    else:
        yield f"{at}: {type(value).__name__}"


def _columns(schema: pa.Schema) -> dict[str, str]:
    return {each.name: f"{each.type}{'' if each.nullable else ' not null'}" for each in schema}


def _fields(kind: type[Any]) -> dict[str, str]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType), "all of them are structs"
    return {each.encode_name: _text(each.type) + _default(each) for each in info.fields}


def _offset(kind: type[QueueOffset | TopicOffset]) -> dict[str, str]:
    return {"v": "int", **{each.name: str(each.type) for each in fields(kind)}}


def _default(field: inspect.Field) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f" = {field.default_factory()!r}"
    return "" if field.default is msgspec.NODEFAULT else f" = {field.default!r}"


def _text(kind: inspect.Type) -> str:
    """Return a type as text, without the limits of its values."""
    match kind:
        case inspect.UnionType(types=types):
            return " | ".join(map(_text, types))
        case inspect.TupleType(item_types=types):
            return f"[{', '.join(map(_text, types))}]"
        case inspect.VarTupleType(item_type=of) | inspect.ListType(item_type=of) | inspect.CollectionType(item_type=of):
            return f"[{_text(of)}, …]"
        case inspect.DictType(key_type=key, value_type=of):
            return f"{{{_text(key)}: {_text(of)}}}"
        case inspect.StructType(fields=of) | inspect.DataclassType(fields=of):
            return f"{{{', '.join(f'{each.encode_name}: {_text(each.type)}{_default(each)}' for each in of)}}}"
    return type(kind).__name__.removesuffix("Type").lower()
