"""`verb`: gives a verb its target, the journal that it is about with the options that verbs share. Loads nothing that is slow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from functools import cached_property, wraps
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, get_type_hints

import typer
from typer.models import ArgumentInfo

import spark_queue
from spark_queue.cli.arguments import bad_argument
from spark_queue.cli.output import say, show_json, warn
from spark_queue.errors import SparkQueueError, with_journal

if TYPE_CHECKING:
    from spark_queue.client.journal import Journal

#: Says which coordinator is asked where no option does.
COORDINATOR_VARIABLE = "SPARKQ_COORDINATOR"


@dataclass(frozen=True, kw_only=True)
class VerbTarget:
    """The journal that a verb is about. Its fields are the argument and options that verbs share, in the order that help has."""

    path: Annotated[str, typer.Argument(metavar="JOURNAL", help="Directory or object-store prefix of the journal.")] = ""
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,...]",
            envvar=COORDINATOR_VARIABLE,
            help="A coordinator that `sparkq serve` runs elsewhere, and its stand-ins.",
        ),
    ] = None
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File with your token, of mode 0600; default: SPARKQ_TOKEN or SPARKQ_TOKEN_FILE."),
    ] = None
    storage: Annotated[
        list[str] | None,
        typer.Option(
            "--storage-option",
            "-o",
            metavar="KEY=VALUE",
            help="Option of the object store; may repeat. No secrets: others can see them.",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables for people.")] = False

    @cached_property
    def journal(self) -> Journal:
        """The journal, and how its coordinator is asked."""
        if self.token_file == "":
            raise bad_argument("--token-file", self.token_file, "a path")
        options = self.storage_options(self.path)
        return spark_queue.Journal(self.path, storage_options=options, coordinator=self.coordinator, token_file=self.token_file)

    def storage_options(self, path: str) -> dict[str, str]:
        """Return the storage options of a place: those of the user's file of stores, and over them KEY=VALUE texts.

        The values may be secrets and are never shown.
        """
        from spark_queue.journal.store import Store, is_secret
        from spark_queue.journal.stores_file import options_of, stores_path

        options = options_of(Store(path).path) or {}
        for number, given in enumerate(self.storage or [], start=1):
            key, sign, value = given.partition("=")
            if not sign or not key:
                raise bad_argument("--storage-option", f"number {number}", "KEY=VALUE")
            options[key] = value
            if is_secret(key):
                visible = "the list of processes and the shell's history show it"
                text = f"'{key}' is given by -o: {visible}. Write it to {stores_path()}, or set it in the environment."
                warn("warning", text, style="yellow")
        return options

    def show(self, value: Any, text: str) -> None:
        """Print the outcome of a verb: a value for programs, or text for people."""
        if self.as_json:
            show_json(value)
        else:
            say(text)


#: What a verb shares that needs the store of a journal alone, and one that asks its coordinator.
OF_STORE = frozenset({"path", "storage", "as_json"})
OF_COORDINATOR = OF_STORE | {"coordinator", "token_file"}


def _parameters() -> dict[str, Parameter]:
    """Return the fields of `VerbTarget` as parameters of a verb: an argument has to be given, an option has its default."""
    annotations, found = get_type_hints(VerbTarget, include_extras=True), dict[str, Parameter]()
    for entry in fields(VerbTarget):
        annotation = annotations[entry.name]
        is_argument = isinstance(annotation.__metadata__[0], ArgumentInfo)
        kind = Parameter.POSITIONAL_OR_KEYWORD if is_argument else Parameter.KEYWORD_ONLY
        default = Parameter.empty if is_argument else entry.default
        found[entry.name] = Parameter(entry.name, kind, default=default, annotation=annotation)
    return found


_PARAMETERS = _parameters()


def verb(shared: Collection[str]) -> Callable[[Callable[Concatenate[VerbTarget, ...], None]], Callable[..., None]]:
    """Give a verb its target: the fields of `VerbTarget` that are named become its arguments and options, around its own."""
    chosen = [_PARAMETERS[name] for name in sorted(shared, key=list(_PARAMETERS).index)]
    arguments = [each for each in chosen if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    options = [each for each in chosen if each.kind is Parameter.KEYWORD_ONLY]

    def declare(body: Callable[Concatenate[VerbTarget, ...], None]) -> Callable[..., None]:
        @wraps(body)
        def run(**given: Any) -> None:
            target = VerbTarget(**{name: given.pop(name) for name in shared if name in given})
            try:
                body(target, **given)
            except SparkQueueError as refusal:
                refusal.args = (with_journal(str(refusal), target.path),)
                raise

        _, *own = inspect.signature(body, eval_str=True).parameters.values()
        # Typer declares what this says.
        run.__dict__["__signature__"] = inspect.Signature([*arguments, *own, *options])
        return run

    return declare
