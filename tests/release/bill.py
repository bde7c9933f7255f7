"""The packages of an environment: their size, their licences, and a bill of materials (CycloneDX 1.6)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.licences import licence_of

#: What every environment has, and no release brings.
_OF_VENV = frozenset({"pip", "setuptools"})

_MB = 1_000_000


def site_of(environment: Path) -> Path:
    """Return the folder of the packages of a virtual environment."""
    [found] = environment.glob("lib/python*/site-packages")
    return found


def size_mb(site: Path) -> float:
    """Return the size of packages on the disk, with the bytecode that pip has written, in MB; pip itself does not count."""
    ours = [each for each in site.rglob("*") if each.is_file() and not each.relative_to(site).parts[0].startswith(tuple(_OF_VENV))]
    return sum(each.stat().st_size for each in ours) / _MB


def packages(site: Path) -> dict[str, Distribution]:
    """Return the packages of a folder, by name."""
    found = {str(canonicalize_name(each.metadata["Name"])): each for each in distributions(path=[str(site)])}
    return {name: each for name, each in sorted(found.items()) if name not in _OF_VENV}


def bill_of(site: Path, *, release: Path) -> dict[str, Any]:
    """Return the bill of materials of an environment into which a file of a release was installed."""
    found = packages(site)
    parts = {name: _component(name, each) for name, each in found.items()}
    digest = {"alg": "SHA-256", "content": hashlib.sha256(release.read_bytes()).hexdigest()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**parts.pop("spark-queue"), "hashes": [digest]}},
        "components": list(parts.values()),
        "dependencies": [
            {"ref": _purl(name, each), "dependsOn": [_purl(other, found[other]) for other in _needed(each, found)]}
            for name, each in found.items()
        ],
    }


def _component(name: str, package: Distribution) -> dict[str, Any]:
    purl, licence = _purl(name, package), licence_of(package)
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": package.version, "purl": purl,
        "licenses": [{"license": {"name": "BSD"}} if licence == "BSD" else {"expression": licence}],
    }  # fmt: skip


def _purl(name: str, package: Distribution) -> str:
    return f"pkg:pypi/{name}@{package.version}"


def _needed(package: Distribution, found: dict[str, Distribution]) -> Iterator[str]:
    """Yield the packages that another one asks for, as far as they are there: an extra may ask for them, too."""
    asked = {str(canonicalize_name(Requirement(each).name)) for each in package.requires or ()}
    yield from sorted(asked & found.keys())
