"""``sparkq follow``: what a person decides about followed tables, and the copies of what VACUUM may take."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_queue.cli.arguments import bad_argument
from spark_queue.cli.output import ALARM_EXIT_CODE, warn
from spark_queue.cli.verb import OF_COORDINATOR, VerbTarget, verb
from spark_queue.errors import with_journal


@verb(OF_COORDINATOR)
def follow(
    target: VerbTarget,
    message_type: Annotated[str | None, typer.Argument(metavar="[TYPE]", help="Name of the message type.")] = None,
    *,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="VERSION", help="First version of the table whose rows enter, or now for the next one."),
    ] = None,
    catch_up: Annotated[
        bool, typer.Option("--catch-up", help="Read all followed tables on, and copy what VACUUM may take soon; for cron.")
    ] = False,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Let messages be lost whose files are gone for good; their queue goes on.")
    ] = False,
    forget_lost: Annotated[
        bool, typer.Option("--forget-lost", help="End the alarm about lost messages, and remove their dead letters.")
    ] = False,
) -> None:
    """Let a message type that was set aside follow its table again (TABLE_CHANGED). What is skipped is recorded.

    With --catch-up it copies messages before VACUUM takes their files, and exits with 3 if some are left, or a type is set aside.
    """
    asked = {"--from": from_ is not None, "--catch-up": catch_up, "--give-up": give_up, "--forget-lost": forget_lost}
    given = [name for name, is_given in asked.items() if is_given]
    if len(given) != 1:
        raise bad_argument("--from", " and ".join(given) or "missing", "one of --from, --catch-up, --give-up and --forget-lost")
    if (message_type is None) != catch_up:
        expected = "left out with --catch-up" if catch_up else "the name of a message type"
        raise bad_argument("TYPE", message_type or "missing", expected)
    if catch_up:
        _catch_up(target)
    elif give_up:
        target.journal.give_up_files(str(message_type))
        target.show(
            {"message_type": message_type, "given_up": True}, f"The missing files of message type '{message_type}' are given up."
        )
    elif forget_lost:
        target.journal.forget_lost(str(message_type))
        text = f"What message type '{message_type}' has lost is forgotten."
        target.show({"message_type": message_type, "forgotten": True}, text)
    else:
        _go_on(target, str(message_type), str(from_))


def _go_on(target: VerbTarget, message_type: str, from_: str) -> None:
    if from_ != "now" and not (from_.isascii() and from_.isdecimal()):
        raise bad_argument("--from", from_, "a version, or now")
    target.journal.follow(message_type, version=None if from_ == "now" else int(from_))
    where = "what is committed next" if from_ == "now" else f"version {from_} of its table"
    target.show({"message_type": message_type, "from": from_}, f"Message type '{message_type}' goes on with {where}.")


def _catch_up(target: VerbTarget) -> None:
    found = target.journal.catch_up()
    all_read = "The followed tables are read, and what is due of them is copied."
    done = "Not every followed table could be read on." if found.troubles else all_read
    text = f"{found.files:,} file(s) are still to be copied." if found.files else done
    target.show({"files": found.files, "troubles": found.troubles}, text)
    for trouble in found.troubles.values() if not target.as_json else ():
        warn("warning", with_journal(trouble, target.path), style="yellow")
    if found.files or found.troubles:
        raise SystemExit(ALARM_EXIT_CODE)
