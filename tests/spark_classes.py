"""Runs what most tests with a JVM run, so that it stores the classes that they load: ``python -m tests.spark_classes ARCHIVE``.

A JVM that is given the archive (`-XX:SharedArchiveFile`) loads them in half of the processor time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.jvm import end_jvm

#: Streams of ours, tables of Delta, and workers of Python are in it.
_RUN = "tests/integration/test_source_into.py::test_rows_and_their_acknowledgement_are_one_commit"


def main(archive: Path) -> int:
    """Store the archive; returns what pytest does."""
    draft = archive.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -XX:ArchiveClassesAtExit={draft}"
    failed = pytest.main(["-q", "-p", "no:cacheprovider", _RUN])
    # It writes the archive then.
    end_jvm()
    draft.rename(archive)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
