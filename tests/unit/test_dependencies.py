"""The locked packages: none has a known weakness, and all may be used here. Nothing of it asks a network."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests import advisories
from tests.advisories import ADVISORIES, chosen, hits, known
from tests.licences import LICENSES_MD, installed, jar_rows, licence_of, locked, page, unknown_parts, written

#: Advisories that are about the locked version and do no harm here, with the reason why.
HARMLESS: dict[str, str] = {}


def test_no_locked_package_has_a_known_weakness() -> None:
    lock = locked()
    about = [each for each in known() if each["package"] in lock]
    assert len(about) > 100, "the list has lost what it was made from"
    hit = [(each["package"], lock[each["package"]], each["id"]) for each in about if hits(lock[each["package"]], each)]
    assert [each for each in hit if each[2] not in HARMLESS] == [], "take newer versions: tools/lock.sh --upgrade"


@pytest.mark.parametrize(
    ("package", "version", "advisory"),
    [("pyarrow", "14.0.0", "PYSEC-2023-238"), ("h11", "0.14.0", "GHSA-vqfr-h8mv-ghfj"), ("jinja2", "3.1.5", "GHSA-cpwx-vrp4-4pq7")],
)
def test_a_version_with_a_weakness_would_be_found(package: str, version: str, advisory: str) -> None:
    assert advisory in {each["id"] for each in known() if each["package"] == package and hits(version, each)}


@pytest.mark.parametrize(
    ("version", "is_hit"),
    [("0.9", False), ("1.0", True), ("1.4", True), ("1.5", False), ("2.0", True), ("2.1", True), ("2.2", False)],
)
def test_a_range_begins_and_ends_where_it_says(version: str, *, is_hit: bool) -> None:
    events = [{"introduced": "1.0"}, {"fixed": "1.5"}], [{"introduced": "2.0"}, {"last_affected": "2.1"}]
    assert hits(version, {"ranges": list(events), "versions": []}) is is_hit


def test_the_list_is_made_from_records_of_osv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of packages that nobody uses here, and of records that were withdrawn, nothing is kept."""

    def record(number: int, package: str, **more: Any) -> dict[str, Any]:
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2"}]}]
        affected = [{"package": {"ecosystem": "PyPI", "name": package}, "ranges": ranges}]
        return {"id": f"X-{number}", "modified": f"2026-01-0{number}T00:00:00Z", "affected": affected, **more}

    records = [record(1, "PyArrow"), record(2, "nobody-uses-it"), record(3, "rich", withdrawn="2026-01-01")]
    assert [each["package"] for each in chosen(records, locked())] == ["pyarrow"]
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as packed:
        for each in records:
            packed.writestr(f"{each['id']}.json", json.dumps(each))
    monkeypatch.setattr(advisories, "ADVISORIES", tmp_path / "advisories.json")
    advisories.main(tmp_path / "all.zip")
    assert known() == chosen(records, locked())
    assert json.loads((tmp_path / "advisories.json").read_text())["newest_record"] == "2026-01-03"


def test_the_list_says_how_new_it_is() -> None:
    assert json.loads(ADVISORIES.read_text(encoding="utf-8"))["newest_record"] >= "2026"


def test_the_page_of_licences_is_up_to_date() -> None:
    """A package that this machine does not need has the row that another machine wrote."""
    rows, lock = written(), locked()
    assert {name: version for name, (version, _) in rows.items()} == lock, "run `python -m tests.licences`"
    assert LICENSES_MD.read_text(encoding="utf-8") == page((name, *rows[name]) for name in lock)
    for name, (version, licence) in rows.items():
        found = installed(name)
        if found is not None and found.version == version:
            assert licence == licence_of(found), name


def test_all_packages_may_be_used_here() -> None:
    assert {name: parts for name, (_, licence) in written().items() if (parts := unknown_parts(licence))} == {}
    assert {jar: parts for jar, licence in jar_rows() if (parts := unknown_parts(licence))} == {}


@pytest.mark.parametrize(
    ("licence", "unknown"), [("MIT", []), ("MIT AND GPL-3.0-only", ["GPL-3.0-only"]), ("GPL-3.0-only OR MIT", []), ("", [""])]
)
def test_what_is_not_allowed_is_told(licence: str, unknown: list[str]) -> None:
    assert unknown_parts(licence) == unknown
