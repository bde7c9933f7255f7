"""The way back when nobody can administer a journal any more: the owner of its store replaces the principals (R12).

A writer of the store can do everything to the journal in any case, so no token is asked for. It is a reign like any other,
with a claim, one change and an end; it listens nowhere, and is refused while a coordinator serves.
"""

from __future__ import annotations

import getpass
import logging
import os
import platform
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from spark_queue.clock import SystemClock
from spark_queue.coordinator.election import Candidate, Reign, elect, election_ports
from spark_queue.coordinator.recovery import take_over
from spark_queue.core.commands import Apply, Caller
from spark_queue.errors import CoordinatorError
from spark_queue.journal.entering import PreparedTraits
from spark_queue.journal.expressions import check_command
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import Store
from spark_queue.ports import JournalPort
from spark_queue.protocol.host import host_id

_LOG = logging.getLogger(__name__)

#: The author of the change in the log. No principal can have this name.
STORE_OWNER = "(the owner of the store)"

#: The address in its claim: it listens nowhere, so the next starter finds nobody there and may claim.
_NOWHERE = "grpc://127.0.0.1:0"

#: How long a coordinator that was asked to stop may need for it, in seconds.
_ENDS_WITHIN_S = 15.0

_LOOK_S = 0.25


def apply_principals(store: Store, journal_id: str, principals: Mapping[str, Any], stop: Callable[[], object]) -> None:
    """Replace the principals of a journal, and nothing else of its definitions.

    Without any, every caller is let in that has the token of the user who runs the coordinator.
    """
    stop()
    journal = open_journal(store)
    reign = _claim(journal, store, journal_id)
    engine = take_over(reign, PreparedTraits(journal.traits))
    wanted = {**engine.state.definitions.stored, "principals": dict(principals)}
    command = Apply(definitions=wanted, journal=journal_id, request=uuid.uuid4().hex)
    caller = Caller(principal=STORE_OWNER, host=f"{getpass.getuser()}@{platform.node()}", signs=True)
    engine.decide(command, now_ms=reign.clock.now_ms(), check=check_command, caller=caller)
    journal.control.append(engine.drain_records(), epoch=reign.epoch)


def _claim(journal: JournalPort, store: Store, journal_id: str) -> Reign:
    candidate = Candidate(journal_id=journal_id, path=store.path, host=host_id(), address=_NOWHERE, pid=os.getpid())
    ports = election_ports(store, journal_id, SystemClock())
    deadline_s = time.monotonic() + _ENDS_WITHIN_S
    while True:
        try:
            return elect(journal.control, candidate, ports)
        except CoordinatorError as refusal:
            if refusal.code != "COORDINATOR_SERVES" or time.monotonic() >= deadline_s:
                raise
            _LOG.info("The coordinator at %s has not ended yet.", refusal.facts["address"])
            time.sleep(_LOOK_S)
