"""What verbs share: one argument and a few options, which `verb` declares for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import typer

from spark_queue.cli.app import app
from spark_queue.cli.verb import OF_COORDINATOR, VerbTarget, verb

SHARED = ("coordinator", "token_file", "storage", "as_json")


def _verbs(group: Any) -> Iterator[Any]:
    for found in group.commands.values():
        yield from _verbs(found) if hasattr(found, "commands") else [found]


def test_every_verb_has_the_shared_options_last_and_in_one_order() -> None:
    for found in _verbs(typer.main.get_command(app)):
        names = [each.name for each in found.params if each.name != "help"]
        shared = [name for name in SHARED if name in names and (found.name, name) != ("dashboard", "token_file")]
        assert names[len(names) - len(shared) :] == shared, found.name


def test_a_verb_has_its_own_parameters_between_the_shared_ones() -> None:
    seen: list[tuple[VerbTarget, str, bool]] = []
    own = typer.Typer(add_completion=False)

    @own.command()
    @verb(OF_COORDINATOR)
    def look(target: VerbTarget, queue: str, *, closely: Annotated[bool, typer.Option("--closely")] = False) -> None:
        seen.append((target, queue, closely))

    command = typer.main.get_command(own)
    assert [each.name for each in command.params] == ["path", "queue", "closely", *SHARED]
    command(["there", "WORK", "--closely", "-o", "a=b", "--json"], standalone_mode=False)
    look(path="there", queue="WORK")
    assert seen == [
        (VerbTarget(path="there", storage=["a=b"], as_json=True), "WORK", True),
        (VerbTarget(path="there"), "WORK", False),
    ]


def test_a_verb_shares_what_there_is() -> None:
    with pytest.raises(ValueError, match="colour"):
        verb({"path", "colour"})
