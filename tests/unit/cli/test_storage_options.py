"""Storage options of verbs: secrets come from a file or the environment, since what is typed is seen by others."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue import Journal
from spark_queue.cli.verb import VerbTarget
from spark_queue.errors import ConfigError
from spark_queue.journal.stores_file import STORES_FILE_VARIABLE
from tests.unit.cli.sparkq import Terminal

STORES = """
["s3://shop"]
aws_region = "us-east-1"
aws_secret_access_key = "hidden"
"""


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "stores.toml"
    file.write_text(STORES)
    monkeypatch.setenv(STORES_FILE_VARIABLE, str(file))
    return file


def test_an_option_of_a_local_path_is_refused_before_anything_is_made(sparkq: Terminal, tmp_path: Path) -> None:
    """The scheme of its address may have been forgotten."""
    place = tmp_path / "bucket" / "shop"
    for verb in ("init", "status", "publish"):
        answer = sparkq(verb, place, *(["rows.csv"] if verb == "publish" else []), "-o", "aws_region=eu-1")
        assert (answer.code, "[STORAGE_OPTION_UNSUPPORTED] Storage option 'aws_region'" in answer.err) == (1, True), answer.err
    with pytest.raises(ConfigError, match="STORAGE_OPTION_UNSUPPORTED"):
        Journal.create(str(place), storage_options={"aws_region": "eu-1"})
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_stores_says_the_options_and_the_arguments_go_before_it(
    stores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"aws_region": "us-east-1", "aws_secret_access_key": "hidden"}
    assert VerbTarget().storage_options("s3://shop/journal") == said
    assert VerbTarget(storage=["aws_region=eu-central-1"]).storage_options("s3://shop/journal") == {
        **said,
        "aws_region": "eu-central-1",
    }
    assert VerbTarget().storage_options("s3://shopping/journal") == {}
    assert capsys.readouterr().err == ""
    stores.write_text("[")
    with pytest.raises(ConfigError, match="STORES_UNREADABLE"):
        VerbTarget().storage_options("s3://shop/journal")


@pytest.mark.parametrize("key", ["aws_secret_access_key", "azure_storage_sas_token", "google_service_account_key", "password"])
def test_a_secret_among_the_arguments_is_taken_with_a_warning_that_says_where_to_put_it(
    stores: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    given = VerbTarget(storage=[f"{key}=v4lu3", "aws_region=eu-central-1"]).storage_options("s3://shopping/journal")
    assert given == {key: "v4lu3", "aws_region": "eu-central-1"}
    said = capsys.readouterr().err
    assert said.count("warning") == 1
    assert f"'{key}' is given by -o" in said
    assert str(stores) in said
    assert "v4lu3" not in said
