"""What the coordinator would answer to a request: its own commands, on the journal as it is now, and nobody commits them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from spark_queue.coordinator.commands import Commands
from spark_queue.core.deciding.engine import Engine
from spark_queue.journal.layout import Store
from spark_queue.journal.open import open_journal
from spark_queue.protocol import wire
from spark_queue.views import look


def rehearse(store: Store, request: Callable[..., wire.AnyRequest], **fields: Any) -> wire.AnyReply:
    """Give the answer to a request without doing what it says; starts nothing and changes nothing.

    Parameters
    ----------
    store
        Where the journal is.
    request
        The kind of request, one that reads no rows and makes no tables; `fields` are its own fields.

    Raises
    ------
    SparkQueueError
        The refusal.
    """
    journal = open_journal(store)
    moment = look(journal)
    asked = request(journal=journal.journal_id, request=uuid.uuid4().hex, **fields)
    answer = Commands(Engine(moment.state), cut=_unasked, make_table=_unasked).run(asked, now_ms=moment.now_ms)
    assert answer is not None, "only a poll waits"
    return answer.reply


def _unasked(*_: Any, **__: Any) -> Any:
    raise AssertionError("a rehearsal reads no rows and makes no tables")
