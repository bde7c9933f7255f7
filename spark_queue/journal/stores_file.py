"""Storage options that a file of the user says of stores: of peers (DESIGN 17.2), followed tables, and journals that verbs name."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from spark_queue.errors import ConfigError

#: Names a file of stores other than the user's own.
STORES_FILE_VARIABLE = "SPARKQ_STORES_FILE"


def options_of(path: str) -> dict[str, str] | None:
    """Return what the file says of a path's store; None where it says nothing.

    The file has a table for each store, named by how paths of that store begin; the longest such name counts. It is read each
    time, so whoever tries again has the newest credentials.
    """
    stores = _stores()
    names = [name for name in stores if f"{path}/".startswith(f"{name.rstrip('/')}/")]
    return stores[max(names, key=len)] if names else None


def stores_path() -> Path:
    """Return the file of stores: the one that `STORES_FILE_VARIABLE` names, or the user's own."""
    named, root = os.environ.get(STORES_FILE_VARIABLE), os.environ.get("XDG_CONFIG_HOME")
    return Path(named) if named else (Path(root) if root else Path.home() / ".config") / "spark_queue" / "stores.toml"


def _stores() -> dict[str, dict[str, str]]:
    path = stores_path()
    if STORES_FILE_VARIABLE not in os.environ and not path.exists():
        return {}
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as reason:
        raise ConfigError("STORES_UNREADABLE", file=str(path), reason=f"{reason}.") from None
    for name, options in found.items():
        if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
            raise ConfigError("STORES_UNREADABLE", file=str(path), reason=f"'{name}' is not a table of texts.")
    return found
