"""Tables by their names in a catalog, whose locations an active Spark session tells.

delta-rs cannot (1.6.6, tried): it opens a table of Unity Catalog by its name, and does not tell where it lies.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from spark_queue.errors import ConfigError

#: How Spark names a table of a catalog: two to four parts, such as ``main.sales.orders``; a part with odd characters is quoted.
_NAME = re.compile(r"(?:`[^`./]+`|[^`./\s]+)(?:\.(?:`[^`./]+`|[^`./\s]+)){1,3}")

#: The modules of Spark's two kinds of session. Who has a session has imported its module, and nobody else pays for it.
_SESSIONS = ("pyspark.sql.session", "pyspark.sql.connect.session")

#: Most characters of a reason of Spark's.
_REASON_LENGTH = 300


def is_name(table: str) -> bool:
    """Return whether a table is named as by a catalog; a directory of such a name begins with ``./``."""
    return _NAME.fullmatch(table) is not None


def location_of(table: str, *, where: str) -> str:
    """Return the path or URL of a table: as it was given, or as an active Spark session knows the table of that name.

    Raises
    ------
    ConfigError
        TABLE_NAME_UNKNOWN where no session is active, or it does not know a Delta table of that name.
    """
    if not is_name(table):
        return table
    session = _active_session()
    if session is None:
        raise _unknown(table, where, "no Spark session is active in this process.")
    quoted = ".".join(f"`{part.strip('`')}`" for part in table.split("."))
    try:
        [found] = session.sql(f"DESCRIBE DETAIL {quoted}").collect()
    except Exception as reason:  # noqa: BLE001  # Spark's errors are of many classes, and none of them can be imported here.
        text = " ".join(str(reason).split())[:_REASON_LENGTH]
        raise _unknown(table, where, f"the active Spark session says: {text}") from None
    if found["format"] != "delta" or not found["location"]:
        raise _unknown(table, where, f"the active Spark session knows it as one of format {found['format']}.")
    # As Hadoop calls what object stores call by one name.
    return re.sub(r"^s3[an]://", "s3://", str(found["location"]))


def _active_session() -> Any:
    for name in _SESSIONS:
        module = sys.modules.get(name)
        session = None if module is None else module.SparkSession.getActiveSession()
        if session is not None:
            return session
    return None


def _unknown(table: str, where: str, reason: str) -> ConfigError:
    return ConfigError("TABLE_NAME_UNKNOWN", table=table, where=where, reason=reason)
