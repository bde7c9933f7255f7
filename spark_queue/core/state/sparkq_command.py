"""A command to type: the verb of `sparkq` that mends something, or shows more of it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SparkqCommand:
    """A verb of `sparkq`, with the names and the options behind the journal's path."""

    verb: str
    names: tuple[str, ...] = ()
    #: As they are typed: ``--name`` or ``--name=value``.
    options: tuple[str, ...] = ()

    def line(self, path: str) -> str:
        """Return it as a shell reads it, for the journal at a path."""
        behind = [*self.names, *self.options]
        if any(name.startswith("-") for name in self.names):
            # It is none of the options.
            behind = [*self.options, "--", *self.names]
        return shlex.join(["sparkq", *self.verb.split(), path, *behind])
