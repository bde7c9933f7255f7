"""``sparkq options``: the registry, for people, programs and the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from spark_queue.cli.output import draw, show_exact, show_json, table
from spark_queue.cli.verb import VerbTarget, verb

if TYPE_CHECKING:
    from spark_queue.settings.registry import RegistryRow

_TITLES = {"keys": "Keys of a definition file", "options": "Spark options"}


@verb({"as_json"})
def options(
    target: VerbTarget,
    *,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown, as the reference has them.")] = False,
) -> None:
    """List every key of a definition file and every Spark option."""
    from spark_queue.expression.functions import accepted
    from spark_queue.settings.registry import key_rows, option_rows

    tables = {"keys": key_rows(), "options": option_rows()}
    if target.as_json:
        show_json({name: [asdict(row) for row in rows] for name, rows in tables.items()} | {"expressions": accepted()})
    elif markdown:
        show_exact("\n".join([*map(to_markdown, tables.values()), expressions_to_markdown(accepted())]))
    else:
        for name, rows in tables.items():
            columns = ("name", "default", "applies_to", "about")
            draw(table([asdict(row) for row in rows], columns, title=_TITLES[name], cut=False))
        rows_of = [{"part": part, "accepted": text} for part, text in accepted().items()]
        draw(table(rows_of, ("part", "accepted"), title="What expressions may use", cut=False))


def to_markdown(rows: Sequence[RegistryRow]) -> str:
    """Return a table as Markdown, as it stands in the reference."""
    lines = ["| Name | Default | For | Meaning |", "|---|---|---|---|"]
    lines += [f"| `{row.name}` | {row.default} | {row.applies_to} | {row.about} |" for row in rows]
    return "\n".join(lines) + "\n"


def expressions_to_markdown(accepted: Mapping[str, str]) -> str:
    """Return what expressions may use as Markdown, as it stands in the reference."""
    lines = ["| Part | Accepted |", "|---|---|"]
    # A bar would end the cell.
    lines += [f"| {part} | {text.replace('|', chr(92) + '|')} |" for part, text in accepted.items()]
    return "\n".join(lines) + "\n"
