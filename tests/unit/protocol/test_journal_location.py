"""The place of a journal: one by every way that leads there, another for a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_queue.journal.store import Store
from spark_queue.protocol.host import location_of


def test_a_directory_keeps_its_place_when_it_moves_and_a_copy_has_its_own(tmp_path: Path) -> None:
    journal, link, copy = tmp_path / "journal", tmp_path / "link", tmp_path / "copy"
    journal.mkdir()
    link.symlink_to(journal)
    shutil.copytree(journal, copy)
    place = location_of(Store(str(journal)))
    assert location_of(Store(str(link))) == location_of(Store(journal.as_uri())) == place
    assert location_of(Store(str(copy))) != place
    journal.rename(tmp_path / "moved")
    assert location_of(Store(str(tmp_path / "moved"))) == place
    assert location_of(Store(str(journal))) == ""


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://bucket/a/shop", "bucket/a/shop"),
        ("s3a://bucket/a/shop/", "bucket/a/shop"),
        ("abfss://box@account.dfs.core.windows.net/a/shop", "box/a/shop"),
        ("https://account.blob.core.windows.net/box/a/shop", "box/a/shop"),
        ("gs://bucket/läden", "bucket/l%C3%A4den"),
    ],
)
def test_an_object_store_prefix_has_one_place_by_every_scheme(url: str, place: str) -> None:
    assert location_of(Store(url)) == place
