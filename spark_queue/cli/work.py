"""``sparkq work``."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_queue.cli.arguments import QueueName, bad_argument
from spark_queue.cli.verb import OF_COORDINATOR, VerbTarget, verb

if TYPE_CHECKING:
    from collections.abc import Callable


@verb(OF_COORDINATOR)
def work(
    target: VerbTarget,
    queue: QueueName,
    function: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="Gets each message; found as `python -m` finds it.")],
    *,
    concurrency: Annotated[int, typer.Option(min=1, help="Messages in work at once.")] = 1,
    subscription: Annotated[
        str | None, typer.Option(metavar="NAME", help="Receive under this name; default: one that ends with this process.")
    ] = None,
    max_backlog: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Most messages in hand; default: twice the concurrency.")
    ] = None,
    only: Annotated[str | None, typer.Option("--filter", metavar="SQL", help="Only messages that match this filter.")] = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when each message that is there now had its turn.")
    ] = False,
    wait: Annotated[str | None, typer.Option(metavar="DURATION", help="End when nothing came for so long.")] = None,
    stop_timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="How long messages in work may go on after SIGTERM or Ctrl-C.")
    ] = "30s",
) -> None:
    """Run a Python function on each message: acknowledged when it returns, cancelled when it raises.

    With --until-empty or --wait it exits with 3 if the function failed on messages and did not succeed on them since, or if the
    queue or its subscription is paused.
    """
    done = target.journal.queue(queue).process(
        _found(function), concurrency=concurrency, subscription=subscription, max_backlog=max_backlog, filter=only,
        until_empty=until_empty, wait=wait, stop_timeout=stop_timeout, signals=True,
    )  # fmt: skip
    target.show(asdict(done), str(done))
    if done.exit_code:
        raise SystemExit(done.exit_code)


def _found(text: str) -> Callable[..., Any]:
    """Return the function that a text names."""
    module, sign, name = text.partition(":")
    if not (sign and module and name):
        raise bad_argument("MODULE:FUNCTION", text, "a module and a function of it, such as shop.mail:send")
    # As `python -m` does, which a console script does not.
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - the path of modules is a list of texts.
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as reason:
        raise bad_argument("MODULE:FUNCTION", text, f"a function that can be imported ({reason})") from None
    if not callable(found):
        raise bad_argument("MODULE:FUNCTION", text, "a function")
    return found  # type: ignore[no-any-return]  # It is called with a message.
