"""The licences of all locked packages: ``python -m tests.licences`` writes LICENSES.md from what is installed.

A package that this machine does not need, such as one for another system, keeps the row that it had.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from spark_queue.session import SHA256
from tests.source_tree import ROOT

LICENSES_MD = ROOT / "LICENSES.md"
LOCK = ROOT / "requirements.lock"

#: Licences under which others' packages may be used here, by their SPDX names; "BSD" where a package does not say which one.
ALLOWED = frozenset(
    "0BSD Apache-2.0 BSD BSD-2-Clause BSD-3-Clause CC0-1.0 CNRI-Python ISC MIT MIT-0 MIT-CMU MPL-2.0 PSF-2.0 Zlib".split()
)

#: What packages say by older means than an SPDX expression: in a classifier, or in words of their own.
_SAID: Mapping[str, str] = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
}

#: Classifiers that name no licence.
_NO_LICENCE = frozenset({"DFSG approved", "OSI Approved"})

_HEAD = """# Licences of packages

The packages that requirements.lock names, for use, tests and documentation. `python -m tests.licences` writes this page from
what they say of themselves.

| Package | Version | Licence |
|---|---|---|
"""

_JARS = """
## Jars

What `sparkq doctor --fetch`, or the first start of a stream, fetches for Spark: Delta, and what Delta needs.

| Jar | Licence |
|---|---|
"""

#: Licences of jars, by their group: what their authors say of them in Maven.
_GROUPS: Mapping[str, str] = {
    "com.fasterxml.jackson.datatype": "Apache-2.0",
    "io.delta": "Apache-2.0",
    "io.unitycatalog": "Apache-2.0",
}


def jar_rows() -> list[tuple[str, str]]:
    """Return each jar that is fetched, and its licence."""
    return [(jar.removesuffix(".jar"), _GROUPS[jar.partition("_")[0]]) for jar in sorted(SHA256)]


def locked() -> dict[str, str]:
    """Return the version of each package of the lock."""
    return dict(re.findall(r"(?m)^([a-z0-9-]+)==([^ \\]+)", LOCK.read_text(encoding="utf-8")))


def written() -> dict[str, tuple[str, str]]:
    """Return version and licence of each package, as the page has them."""
    rows = re.findall(r"(?m)^\| ([a-z0-9-]+) \| (\S+) \| ([^|]+) \|$", LICENSES_MD.read_text(encoding="utf-8"))
    return {name: (version, licence) for name, version, licence in rows}


def installed(name: str) -> Distribution | None:
    """Return a package of this machine; None for one that it does not need."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licence_of(found: Distribution) -> str:
    """Return under which licence a package says that it stands: an SPDX expression, or what is nearest to one."""
    metadata: Any = found.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or [] if each.startswith("License")]
    named = [_SAID.get(each, each) for each in classifiers if each not in _NO_LICENCE]
    text = str(metadata.get("License") or "").strip().partition("\n")[0]
    # A text is longer than a name, and its classifier says the same; "BSD" alone says less than the words.
    said = _SAID.get(text, text)
    if said in ALLOWED and (not named or named == ["BSD"]):
        return said
    return " OR ".join(named) or said


def unknown_parts(licence: str) -> list[str]:
    """Return what of an expression is not allowed; of alternatives one is enough."""
    alternatives = [re.split(r" AND ", each.strip("() ")) for each in licence.split(" OR ")]
    refused = [[part for part in parts if part.strip("() ") not in ALLOWED] for parts in alternatives]
    return [] if [] in refused else refused[0]


def page(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return the page."""
    packages = "".join(f"| {name} | {version} | {licence} |\n" for name, version, licence in rows)
    return _HEAD + packages + _JARS + "".join(f"| {jar} | {licence} |\n" for jar, licence in jar_rows())


def main() -> int:
    """Write the page; returns 1 where nothing tells the licence of a package."""
    before = written() if LICENSES_MD.exists() else {}
    rows, untold = [], []
    for name, version in locked().items():
        found = installed(name)
        licence = licence_of(found) if found is not None else before.get(name, ("", ""))[1]
        rows.append((name, version, licence))
        if not licence:
            untold.append(name)
    LICENSES_MD.write_text(page(rows), encoding="utf-8")
    sys.stdout.write(f"{LICENSES_MD.name} is written. Write these rows by hand: {', '.join(untold) or 'none'}.\n")
    return 1 if untold else 0


if __name__ == "__main__":
    sys.exit(main())
