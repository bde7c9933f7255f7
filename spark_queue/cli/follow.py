"""``sparkq follow``: where a message type goes on that follows a table and was set aside."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_queue.cli.arguments import bad_argument
from spark_queue.cli.verb import OF_COORDINATOR, VerbTarget, verb


@verb(OF_COORDINATOR)
def follow(
    target: VerbTarget,
    message_type: Annotated[str, typer.Argument(metavar="TYPE", help="Name of the message type.")],
    *,
    from_: Annotated[
        str, typer.Option("--from", metavar="VERSION", help="First version of the table whose rows enter, or now for the next one.")
    ],
) -> None:
    """Let a message type that was set aside follow its table again (TABLE_CHANGED). What is skipped is recorded."""
    if from_ != "now" and not (from_.isascii() and from_.isdecimal()):
        raise bad_argument("--from", from_, "a version, or now")
    target.journal.follow(message_type, version=None if from_ == "now" else int(from_))
    where = "what is committed next" if from_ == "now" else f"version {from_} of its table"
    target.show({"message_type": message_type, "from": from_}, f"Message type '{message_type}' goes on with {where}.")
