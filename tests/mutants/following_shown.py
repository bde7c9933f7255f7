"""Bugs in what people see of followed tables, and in how tables are found by name."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SHOWN = ("tests/integration/test_following_shown.py",)
_CATALOG = ("tests/unit/journal/test_catalog.py",)

FOLLOWING_SHOWN: tuple[Mutant, ...] = (
    Mutant(
        "a table that is set aside is not behind",
        "head(known.columns.table, known.read_until))", "known.read_until)", _SHOWN,
    ),
    Mutant(
        "a table was read up to the last version that left a record",
        "    read_until = max(known.read_until, version)\n", "    read_until = known.read_until\n", _SHOWN,
    ),
    Mutant(
        "a table that is set aside was read up to the last version that left a record",
        "return self.last[0] if self.stopped is None else self.stopped.version - 1", "return self.last[0]", _SHOWN,
    ),
    Mutant(
        "a coordinator that lags is not behind a table",
        "asked.heads.get(queue))", "None)", _SHOWN,
    ),
    Mutant(
        "nobody is told how far a table was read",
        "for row in rows if row[\"table\"])", "for row in rows[:0])", _SHOWN,
    ),
    Mutant(
        "versions that were skipped are in no view",
        "            if body.skipped is None:\n", "            if body.table:\n", _SHOWN,
    ),
    Mutant(
        "the view of what passed begins with the oldest",
        "    return found[::-1]\n", "    return found\n", _SHOWN,
    ),
    Mutant(
        "the page says of each table that it is followed",
        "trouble=None if self.trouble is None else str(self.trouble),", "trouble=None,", _SHOWN,
    ),
    Mutant(
        "the view of what was passed over lags behind the figures",
        "np.searchsorted(numbers, recorded_until)]), *ahead]:", "np.searchsorted(numbers, recorded_until)])]:", _SHOWN,
    ),
    Mutant(
        "a message of a followed table is explained as one that was published",
        "        if segment.table is not None:\n            followed", "        if segment.table is None:\n            followed",
        _SHOWN,
    ),
    Mutant(
        "doctor takes any retention of a table",
        "    if found.retention_ms < needed_ms:\n", "    if found.retention_ms < 0:\n", _SHOWN,
    ),
    Mutant(
        "doctor does not miss statistics of a table",
        "uncounted=counts.count(False)", "uncounted=0", _SHOWN,
    ),
    Mutant(
        "doctor passes a table that cannot be listed",
        "            failed.append(message_type.name)\n", "", _SHOWN,
    ),
    Mutant(
        "verify looks only at commits of tables that entered",
        "                found[version], table_id = token, of_table_now\n", "                table_id = of_table_now\n", _SHOWN,
    ),
    Mutant(
        "verify judges a table by the one that was there before",
        "                if is_other or of_table_now != table_id:\n", "                if not records:\n", _SHOWN,
    ),
    Mutant(
        "a backup does not say which tables it leaves",
        "objects=len(keys) + len(control), tables=tables)", "objects=len(keys) + len(control))", _SHOWN,
    ),
    Mutant(
        "a queue that begins is told of messages that it has",
        "if segment.retired and segment.until > start)", "if segment.until > start)", _SHOWN,
    ),
    Mutant(
        "a part of a table's name is given to Spark as it is",
        "f\"`{part.strip('`')}`\" for part in", "part for part in", _CATALOG,
    ),
    Mutant(
        "a table of another format is taken by its name",
        "    if found[\"format\"] != \"delta\" or not found[\"location\"]:\n", "    if found is None:\n", _CATALOG,
    ),
)  # fmt: skip
