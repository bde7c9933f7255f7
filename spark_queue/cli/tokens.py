"""``sparkq token``: tokens of principals (R12)."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_queue.cli.verb import VerbTarget, verb
from spark_queue.errors import ConfigError

group = typer.Typer(name="token", help="Make tokens of principals.", no_args_is_help=True)


@group.command()
@verb({"as_json"})
def new(
    target: VerbTarget,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The principal: NAME of [principals.NAME] in the definitions.")],
) -> None:
    """Make a token, print it this once, and print the hash for the definitions."""
    from spark_queue.core.definitions.keys import valid_name
    from spark_queue.protocol.tokens import new_token, token_hash
    from spark_queue.protocol.user_files import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE

    if not valid_name(name):
        raise ConfigError("NAME_INVALID", what="principal", name=name)
    token = new_token()
    lines = [
        f"Token of {name}, printed this once; it is stored nowhere:",
        f"  {token}",
        "Save it in a file of mode 0600, followed by a space and the journal's path. Name the file by --token-file, token_file= in",
        f"Python, the option tokenFile of a stream, or {TOKEN_FILE_VARIABLE}; or put the same text into {TOKEN_VARIABLE}.",
        f"In the definitions, under [principals.{name}]:",
        f'  token_hash = "{token_hash(token)}"',
    ]
    target.show({"principal": name, "token": token, "token_hash": token_hash(token)}, "\n".join(lines))
