"""The tables of the reference that the product's types give: errors, views, figures, columns of rows, verbs, the lifecycle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import pyarrow as pa
import typer

from spark_queue import errors as product
from spark_queue.cli.app import app
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state.lifecycle import TRANSITIONS, State
from spark_queue.errors import CATALOGUE
from spark_queue.metrics.table import LABELS, METRICS, Scope
from spark_queue.session import LACKS
from spark_queue.settings.read import load_definitions
from spark_queue.settings.types import VIEWS
from spark_queue.source.columns import read_columns
from spark_queue.views.tables import view_schema
from tests.docs.meanings import COLUMNS, FIGURES, VIEW_MEANINGS

#: The columns of the message type that stands for anybody's own.
_OWN = "item STRING"

_DEFINITIONS: Definitions = load_definitions(
    {
        "journal": {"instance": "frankfurt"},
        "message_types": {"order": {"columns": _OWN, "topics": ["ORDERS"]}},
        "queues": {"ORDERS": {}},
    }
)

_PLAIN = {pa.string(): "STRING", pa.int64(): "BIGINT", pa.int32(): "INT", pa.bool_(): "BOOLEAN", pa.float64(): "DOUBLE"}


def errors() -> str:
    """Return every error by class: its code as a heading, and its text."""
    parts = []
    for kind in dict.fromkeys(refusal.error for refusal in CATALOGUE.values()):
        # The first line of the class's own words.
        about = (getattr(product, kind.__name__).__doc__ or "").splitlines()[0]
        codes = [f"### {code}\n\n{_with_gaps(refusal.text)}\n" for code, refusal in CATALOGUE.items() if refusal.error is kind]
        parts += [f"## {kind.__name__}\n\n{about}\n", *codes]
    return "\n" + "\n".join(parts) + "\n"


def _with_gaps(text: str) -> str:
    """Show where values are filled in, as *value* in angle quotation marks."""
    return re.sub(r"\{(\w+)[^}]*\}", r"‹\1›", text).replace("*", "\\*")


def sparks() -> str:
    """Return the Sparks that queues run on, and what each lacks."""
    return _table(("Spark", "What it lacks"), [(spark, " ".join(lacks) or "nothing") for spark, lacks in LACKS.items()])


def figures() -> str:
    """Return the figures of a queue's status."""
    unexplained = [entry.name for entry in fields(QueueStatus) if entry.name not in FIGURES]
    assert not unexplained, f"FIGURES in tests/docs/meanings.py does not say what {unexplained} mean"
    return _table(("Figure", "Meaning"), [(f"`{entry.name}`", FIGURES[entry.name]) for entry in fields(QueueStatus)])


def metrics() -> str:
    """Return every metric, by what it is about."""
    parts = []
    for scope in Scope:
        mine = [metric for metric in METRICS if metric.scope is scope]
        labels = ", ".join(f"`{label}`" for label in LABELS[scope])
        cells = [(f"`{each.name}`", f"{each.kind}, by `{each.by}`" if each.by else str(each.kind), each.help) for each in mine]
        heading = f"## Of each {scope}" if scope is not Scope.PROCESS else "## Of the process of a coordinator"
        parts.append(f"{heading}\n\nLabels: {labels}.\n\n{_table(('Metric', 'Type', 'Meaning'), cells)}")
    return "\n" + "\n".join(parts) + "\n"


def rows() -> str:
    """Return the columns that a stream of a queue adds to those of its message type."""
    return _columns(read_columns(_OWN, leased=True, of_instance=True))


def views() -> str:
    """Return every view: what it shows, and its columns."""
    parts = []
    for name in VIEWS:
        parts.append(f"## {name}\n\n{VIEW_MEANINGS[name]}\n")
        if name == "dead_letters":
            shown = set(view_schema("messages", _DEFINITIONS, "ORDERS").names)
            schema = pa.schema([field for field in view_schema(name, _DEFINITIONS, "ORDERS") if field.name not in shown])
            parts.append(_columns(schema))
        elif name != "status":
            parts.append(_columns(view_schema(name, _DEFINITIONS, "ORDERS"), of_view=name))
    return "\n" + "\n".join(parts) + "\n"


def _columns(schema: pa.Schema, *, of_view: str = "") -> str:
    """Return columns as a table, without those of the message type itself."""
    of_others = [field for field in schema if field.name != "item"]
    meanings = [COLUMNS.get(f"{of_view}.{field.name}") or COLUMNS[field.name] for field in of_others]
    named = [(f"`{field.name}`", _spark_type(field.type)) for field in of_others]
    return _table(("Column", "Type", "Meaning"), [(*name, about) for name, about in zip(named, meanings, strict=True)])


def _spark_type(arrow_type: pa.DataType) -> str:
    if pa.types.is_list(arrow_type):
        return f"ARRAY&lt;{_spark_type(arrow_type.value_type)}>"
    if pa.types.is_struct(arrow_type):
        return f"STRUCT&lt;{', '.join(f'{field.name}: {_spark_type(field.type)}' for field in arrow_type)}>"
    if pa.types.is_decimal(arrow_type):
        return f"DECIMAL({arrow_type.precision}, {arrow_type.scale})"
    if pa.types.is_timestamp(arrow_type):
        return "TIMESTAMP"
    return {pa.string(): "STRING", pa.int64(): "BIGINT", pa.int32(): "INT", pa.bool_(): "BOOLEAN", pa.float64(): "DOUBLE"}[
        arrow_type
    ]


def verbs() -> str:
    """Return every verb of the command line: what it does, and its arguments and options."""
    group: Any = typer.main.get_command(app)
    shown = {name: command for name, command in group.commands.items() if not command.hidden}
    found = {name: verb for each, command in shown.items() for name, verb in _verbs_of(each, command)}
    return "\n" + "\n".join(_verb(name, found[name]) for name in sorted(found)) + "\n"


def _verbs_of(name: str, command: Any) -> Iterable[tuple[str, Any]]:
    """Return a verb, or those of a group, with the words that are typed."""
    return [(f"{name} {each}", verb) for each, verb in getattr(command, "commands", {}).items()] or [(name, command)]


def _verb(name: str, command: Any) -> str:
    arguments = [entry for entry in command.params if entry.param_type_name == "argument"]
    options = [entry for entry in command.params if entry.param_type_name == "option" and entry.name != "help"]
    usage = " ".join(["sparkq", name, *(entry.metavar or entry.name.upper() for entry in arguments), "[OPTIONS]"])
    rows = [(f"`{entry.metavar or entry.name.upper()}`", entry.help or "") for entry in arguments]
    rows += [(_spelling(entry), (entry.help or "") + _default(entry)) for entry in options]
    return f"## {name}\n\n{command.help}\n\n```\n{usage}\n```\n\n{_table(('Argument, option', 'Meaning'), rows)}"


def _spelling(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or 'VALUE'}"
    names = [*sorted(option.opts, key=len, reverse=True), *option.secondary_opts]
    # A bar would end the cell.
    return ", ".join(f"`{name}{value}`".replace("|", "\\|") for name in names)


def _default(option: Any) -> str:
    if option.required:
        return " Required."
    return "" if option.is_flag or option.default is None else f" Default: `{option.default}`."


def lifecycle() -> str:
    """Return the transitions of a message: a row for each state that it leaves, a column for each that it comes to."""
    reached = [state for state in State if any(after is state for after in TRANSITIONS.values())]
    cells = [
        (f"**{before}**", *(", ".join(_events(before, after)) for after in reached))
        for before in State
        if any(origin is before for origin, _ in TRANSITIONS)
    ]
    return _table(("from \\ to", *map(str, reached)), cells)


def _events(before: State, after: State) -> Iterable[str]:
    moves: Mapping[tuple[State, Any], State] = TRANSITIONS
    return (f"`{event}`" for (origin, event), goal in moves.items() if (origin, goal) == (before, after))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
