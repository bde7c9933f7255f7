"""Which storage options executors can take over, and which are refused at load (DESIGN 15.14)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from spark_queue.errors import ConfigError
from spark_queue.source.object_store import ExecutorFiles


@pytest.mark.parametrize(
    ("root", "options"),
    [
        ("/data/journal/messages/json", {}),
        ("s3://bucket/journal/messages/json", {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "r"}),
        ("s3://bucket/journal/messages/json", {"AWS_ENDPOINT_URL": "http://localhost:1", "AWS_ALLOW_HTTP": "true"}),
        ("s3://bucket/journal/messages/json", {"aws_conditional_put": "etag"}),
        ("abfss://box@account.dfs.core.windows.net/journal", {"azure_storage_account_key": "a"}),
        ("az://box/journal", {"account_name": "a", "sas_token": "b"}),
        ("gs://bucket/journal", {"google_service_account": "/key.json"}),
    ],
)
def test_common_options_are_taken_over(root: str, options: dict[str, str]) -> None:
    ExecutorFiles(root=root, options=options).check()


@pytest.mark.parametrize(
    ("root", "option"),
    [
        ("s3://bucket/journal", "aws_server_side_encryption"),
        ("s3://bucket/journal", "azure_storage_account_key"),
        ("/data/journal", "aws_region"),
        ("gs://bucket/journal", "google_service_account_key"),
    ],
)
def test_option_without_a_counterpart_is_refused_by_name_without_its_value(root: str, option: str) -> None:
    with pytest.raises(ConfigError, match=f"STORAGE_OPTION_UNSUPPORTED.*{option}") as refused:
        ExecutorFiles(root=root, options={option: "a secret"}).check()
    assert "a secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({}, {}),
        ({"aws_endpoint_url": "http://h:9", "aws_allow_http": "true"}, {"endpoint_override": "h:9", "scheme": "http"}),
        ({"endpoint": "https://h"}, {"endpoint_override": "h", "scheme": "https"}),
        (
            {"access_key_id": "a", "aws_token": "t", "virtual_hosted_style_request": "TRUE", "aws_skip_signature": "false"},
            {"access_key": "a", "session_token": "t", "force_virtual_addressing": True, "anonymous": False},
        ),
        ({"aws_conditional_put": "etag", "AWS_REGION": "r"}, {"region": "r"}),
    ],
)
def test_options_reach_the_reader_under_its_names(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], arguments: dict[str, Any]
) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(fs, "S3FileSystem", lambda **found: given.append(found))
    ExecutorFiles(root="s3://bucket/journal/messages/json", options=options).opener()
    assert given == [arguments]


def test_unknown_scheme_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*hdfs://"):
        ExecutorFiles(root="hdfs://cluster/journal", options={}).check()


def test_secrets_stay_out_of_texts() -> None:
    files = ExecutorFiles(root="s3://bucket/journal", options={"aws_secret_access_key": "hush"})
    assert "hush" not in repr(files)


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_local_files_open_by_path_and_by_uri(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "a b.parquet").write_bytes(b"body")
    open_file = ExecutorFiles(root=f"{prefix}{tmp_path}", options={}).opener()
    # Delta's log encodes paths as URIs.
    with open_file("a%20b.parquet") as source:
        assert source.read() == b"body"


@pytest.mark.parametrize(
    ("root", "told"),
    [("/data/journal", r"'/data/journal' is a local path.*Supported: none\."), ("s3://b/j", "so reads.*Supported: .*aws_region,")],
)
def test_refusal_of_an_option_lists_those_that_work(root: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ExecutorFiles(root=root, options={"aws_regoin": "x"}).check()
