"""A checkpoint on an object store is told of, and what cannot be found out stops nobody."""

from __future__ import annotations

import logging
from typing import Any
from unittest.mock import MagicMock

import pytest

from spark_queue.source.far_checkpoint import warn_of_far_checkpoint


def session_with(location: str | Exception) -> Any:
    session = MagicMock()
    query = session._jsparkSession.sharedState().activeStreamingQueries().get.return_value
    if isinstance(location, Exception):
        query.resolvedCheckpointRoot.side_effect = location
    else:
        query.resolvedCheckpointRoot.return_value = location
    return session


@pytest.mark.parametrize(
    ("location", "is_told"),
    [
        ("s3a://bucket/checkpoints/a", True),
        ("abfss://box@account.dfs.core.windows.net/c", True),
        ("gs://bucket/c", True),
        ("S3A://bucket/c", True),
        ("file:/var/checkpoints/a", False),
        ("file:///var/checkpoints/a", False),
        ("/var/s3a://odd", False),
        ("s3a", False),
        ("hdfs://name/c", False),
        ("dbfs:/c", False),
        (RuntimeError("a vendor's own"), False),
    ],
)
def test_a_checkpoint_on_an_object_store_is_told_of(
    caplog: pytest.LogCaptureFixture, location: str | Exception, *, is_told: bool
) -> None:
    caplog.set_level(logging.INFO)
    warn_of_far_checkpoint(session_with(location), "6d0e7a4e-0000-4000-8000-000000000000")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [f"({location})" in text and "driver's own disk" in text for text in warnings] == [True] * is_told
    assert ("it is unknown where the checkpoint" in caplog.text) == isinstance(location, Exception)
