"""Known weaknesses of the locked packages, from a list that lies here: no test asks a network.

``python -m tests.advisories SOURCE`` writes the list anew. SOURCE holds records in OSV's form: an export of the OSV database for
PyPI (``all.zip``), or a directory of them.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.licences import locked
from tests.source_tree import ROOT

ADVISORIES = ROOT / "tests" / "advisories.json"


def known() -> list[dict[str, Any]]:
    """Return the advisories that lie here."""
    found: list[dict[str, Any]] = json.loads(ADVISORIES.read_text(encoding="utf-8"))["advisories"]
    return found


def hits(version: str, advisory: Mapping[str, Any]) -> bool:
    """Return whether an advisory is about a version of its package."""
    if version in advisory["versions"]:
        return True
    return any(_within(Version(version), events) for events in advisory["ranges"])


def _within(version: Version, events: Iterable[Mapping[str, str]]) -> bool:
    """Return whether a version lies in a range: OSV lists what begins it and what ends it, in order."""
    affected = False
    for event in events:
        [(kind, text)] = event.items()
        # "0" begins before every version.
        bound = Version(text)
        if kind == "introduced":
            affected = affected or version >= bound
        elif kind == "fixed":
            affected = affected and version < bound
        elif kind == "last_affected":
            affected = affected and version <= bound
    return affected


def _records(source: Path) -> Iterator[dict[str, Any]]:
    if source.is_dir():
        yield from (json.loads(path.read_text(encoding="utf-8")) for path in sorted(source.rglob("*.json")))
    else:
        with zipfile.ZipFile(source) as packed:
            for name in sorted(packed.namelist()):
                yield json.loads(packed.read(name))


def chosen(records: Iterable[Mapping[str, Any]], packages: Iterable[str]) -> list[dict[str, Any]]:
    """Return what of OSV's records concerns some packages: which versions, and under which names more is found."""
    wanted, found = frozenset(packages), []
    for record in records:
        for each in record.get("affected", []):
            package = each.get("package", {})
            name = canonicalize_name(str(package.get("name", "")))
            if package.get("ecosystem") != "PyPI" or name not in wanted or record.get("withdrawn"):
                continue
            ranges = [part["events"] for part in each.get("ranges", []) if part.get("type") == "ECOSYSTEM"]
            found.append({
                "package": name, "id": record["id"], "aliases": sorted(record.get("aliases", [])), "ranges": ranges,
                # The list of versions repeats the ranges, where there are some.
                "versions": [] if ranges else each.get("versions", []),
            })  # fmt: skip
    return sorted(found, key=lambda advisory: (advisory["package"], advisory["id"]))


def main(source: Path) -> int:
    """Write the list anew."""
    records = list(_records(source))
    newest = max(str(record.get("modified", "")) for record in records)
    lines = ",\n".join(json.dumps(each, separators=(", ", ": ")) for each in chosen(records, locked()))
    ADVISORIES.write_text(f'{{"newest_record": "{newest[:10]}", "advisories": [\n{lines}\n]}}\n', encoding="utf-8")
    sys.stdout.write(f"{ADVISORIES.name} is written from {len(records):,} records, the newest of {newest[:10]}.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
