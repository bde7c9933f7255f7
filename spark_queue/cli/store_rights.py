"""Findings of doctor about rights: whether the store allows the caller more than its principal has (R12)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spark_queue.client.journal import Journal
from spark_queue.core.definitions.definition import Definitions, PrincipalDefinition
from spark_queue.core.definitions.keys import READ, WRITE
from spark_queue.errors import SparkQueueError
from spark_queue.journal.store import CONTROL, SNAPSHOTS, Store, TooLargeError, messages_key
from spark_queue.protocol.tokens import token_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The finding of one trial."""

    result: Literal["ok", "warning", "failed"]
    found: str
    #: The next step; empty when nothing is to be done.
    advice: str = ""


def try_rights(journal: Journal) -> Finding:
    """Try, as the caller, the accesses that the store should refuse."""
    definitions = journal.definitions()
    if not definitions.principals:
        return Finding(result="ok", found="no principals: the token of the coordinator's user has every right")
    principal = definitions.principal_with(token_hash(journal.endpoint.token(journal.store)))
    if principal is None:
        advice = f"Call with a token of one of {', '.join(definitions.principals)}."
        return Finding(result="warning", found="the token belongs to no principal", advice=advice)
    beyond = list(_beyond(journal.store, definitions, principal))
    if not beyond:
        return Finding(result="ok", found=f"principal '{principal.name}'; the store refuses what it has no right to")
    advice = (
        f"Unless this user is meant to run the coordinator, the store allows '{principal.name}' more than its rights. The page on "
        "rights lists the permissions that the store needs."
    )
    return Finding(result="warning", found=f"principal '{principal.name}'; the store lets it {'; '.join(beyond)}", advice=advice)


def _beyond(store: Store, definitions: Definitions, principal: PrincipalDefinition) -> Iterator[str]:
    """Yield the accesses that the store allows a principal beyond its rights."""
    # Decisions are the coordinator's alone, with any right.
    for key in (CONTROL, SNAPSHOTS):
        if _may_write(store, key):
            yield f"write {key}/"
    for name, message_type in definitions.message_types.items():
        queues = [queue.name for queue in definitions.queues.values() if queue.message_type == name]
        if message_type.table is not None or (not queues and not message_type.topics):
            continue
        key = messages_key(name)
        if not any(principal.may(WRITE, each) for each in (*queues, *message_type.topics)) and _may_write(store, key):
            yield f"write {key}/"
        reads_all = any(principal.may(READ, each) and not principal.filters(each) for each in queues)
        if not reads_all and _may_read(store, key):
            yield f"read all of {key}/"


def _may_write(store: Store, key: str) -> bool:
    if store.is_local and not (Path(store.path) / key).is_dir():
        # To make the directory would leave it to this user.
        return False
    probe = f"{key}/.sparkq-doctor-{uuid.uuid4().hex}"
    try:
        store.write(probe, b"")
    except SparkQueueError:
        return False
    # Where it may be written and not deleted, it stays, and means nothing.
    with suppress(SparkQueueError):
        store.delete([probe])
    return True


def _may_read(store: Store, key: str) -> bool:
    try:
        files = [each.key for each in store.list(f"{key}/") if each.key.endswith(".parquet")]
        return bool(files) and store.read(files[0], most_bytes=0) is not None
    except TooLargeError:
        # It may be read, and the process that reads it is another.
        return True
    except SparkQueueError:
        return False
