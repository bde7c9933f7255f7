"""Letting the files of retired messages go from their table (DESIGN 4): the control log has said so before."""

from __future__ import annotations

import logging
from collections.abc import Collection

from spark_queue.journal import delta
from spark_queue.journal.message_work import MessageTableWork

_LOG = logging.getLogger(__name__)

#: Most files that one commit takes away.
_COMMIT_FILES = 10_000


def drop_retired(work: MessageTableWork, paths: Collection[str]) -> None:
    """Take files from the table, as far as they still stand there; they stay in the store for a day.

    Raises
    ------
    CoordinatorError
        COORDINATOR_DEPOSED.
    JournalError
        STORE_FAILED, PUBLISH_CONTENDED.
    """
    standing = sorted(work.sizes().keys() & set(paths))
    for start in range(0, len(standing), _COMMIT_FILES):
        part = standing[start : start + _COMMIT_FILES]
        work.commit(delta.Mark(writer="coordinator", retired=part), removed=part)
        _LOG.info("%d files of message type '%s' are over their retention and left the table.", len(part), work.message_type)
