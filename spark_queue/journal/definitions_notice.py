"""Telling publishers of new definitions: each message log names the record of the newest ones (PROTOCOL 3)."""

from __future__ import annotations

import logging

from spark_queue.core.records import Record
from spark_queue.errors import JournalError
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.log_entry import DEFINITIONS_TXN
from spark_queue.journal.repair import open_repaired
from spark_queue.journal.store import Store, message_tables, messages_key
from spark_queue.journal.transaction import commit_transaction

_LOG = logging.getLogger(__name__)


def announce(store: Store, record: Record, *, durable: bool) -> None:
    """Commit the number of a record of definitions, which is committed itself, to each message log of the journal.

    Also to that of a type that they drop: a publisher may have it open. A log that names these or newer ones stays as it is. A
    fault of one type's table keeps no other from the news; whoever has that log open goes on by the old ones until it is mended.
    """
    for message_type in message_tables(store):
        try:
            _announce(store, message_type, record, durable=durable)
        except JournalError as trouble:
            if trouble.code in ("STORE_FAILED", "PUBLISH_CONTENDED"):
                raise
            _LOG.warning("Message type '%s' is not told of new definitions: %s", message_type, trouble)


def _announce(store: Store, message_type: str, record: Record, *, durable: bool) -> None:
    key = messages_key(message_type)
    table = open_repaired(store, key)
    if table is None:
        return
    commit_transaction(
        store, key, DeltaHead(store, key, table), name=DEFINITIONS_TXN,
        version=lambda found: record.record if found < record.record else None, writer="coordinator", at_ms=record.at_ms,
        durable=durable,
    )  # fmt: skip
