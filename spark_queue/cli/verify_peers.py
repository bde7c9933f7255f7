"""``sparkq verify`` of an instance: its state against the logs of its peers, as far as they can be read (DESIGN 17.4)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_queue.core.definitions.agreement import WITHHOLDING
from spark_queue.core.definitions.definition import PeerDefinition
from spark_queue.core.records import Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ownership import Watermark
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal.open import DeltaJournal
from spark_queue.journal.traits import FileTraits
from spark_queue.replication.comparing import read_records
from spark_queue.replication.peer_messages import PeerMessages
from spark_queue.replication.peer_records import DAMAGE
from spark_queue.replication.peer_stores import peer_store
from spark_queue.replication.places import refused
from spark_queue.replication.restored import has_record
from spark_queue.verification.instances import of_origins, of_what_was_pulled
from spark_queue.views import PointInTime, point_in_time


def of_peers(journal: DeltaJournal, folded: PointInTime, records: Sequence[Record]) -> tuple[list[str], list[str]]:
    """Return problems and warnings: what an instance has pulled it knows, and so do its peers; who cannot be read is named.

    Parameters
    ----------
    journal : DeltaJournal
        The journal.
    folded : PointInTime
        Its control log.
    records : Sequence of Record
        The same, record by record.
    """
    problems, warnings = list(of_origins(folded.state)), list[str]()
    for definition in folded.state.definitions.peers.values():
        watermark = folded.state.pulled.get(definition.name)
        if watermark is None or watermark.record < 0:
            warnings.append(f"Peer '{definition.name}' is not compared: nothing of it is pulled yet, or it is read anew.")
            continue
        try:
            found = _of_peer(journal, folded, records, definition, watermark)
        except SparkQueueError as trouble:
            # What cannot be read is no fault of this journal; that it cannot is worth to be known.
            warnings.append(f"Peer '{definition.name}' is not compared: {trouble}")
            continue
        problems += found[0]
        warnings += found[1]
    return problems, warnings


def _of_peer(
    journal: DeltaJournal, folded: PointInTime, records: Sequence[Record], definition: PeerDefinition, watermark: Watermark
) -> tuple[list[str], list[str]]:
    """Return what one of the two has pulled of the other and does not know, and what was not compared.

    Raises
    ------
    JournalError
        What keeps the peer from being read, such as PEER_AWAY or PEER_REFUSED; PEER_REPLACED.
    """
    here, name, own = folded.state, definition.name, str(folded.state.definitions.journal.instance)
    # Its options are those of the own journal, as when it is pulled.
    store = peer_store(journal.store, definition)
    of_peer = read_records(store, name)
    found = str(of_peer[0].detail["journal"])
    if found != watermark.journal:
        raise JournalError("PEER_REPLACED", peer=name, expected=watermark.journal, found=found, journal=journal.store.path)
    peer_traits = FileTraits(store, PeerMessages(store, name))

    def peer_state(until: int | None) -> JournalState:
        try:
            state = point_in_time(of_peer, peer_traits, as_of=until, now_ms=folded.now_ms).state
        except DAMAGE as reason:
            raise refused(name, "its log", f"its records make no journal ({reason!r})") from None
        for trouble in state.troubles.values():
            raise refused(name, "its log", str(trouble))
        return state

    problems, warnings = list[str](), list[str]()
    if has_record(of_peer, watermark):
        problems += of_what_was_pulled(
            here, peer_state(watermark.record), _compared(here, name, definition.queues),
            passes=definition.passes, who="this instance", whom=f"'{name}'",
        )  # fmt: skip
    else:
        warnings.append(
            f"Peer '{name}' is not compared: its log does not have record {watermark.record} as it was pulled, "
            "as after a backup was restored. What it has is pulled anew."
        )
    there = peer_state(None)
    back, of_this = there.definitions.peers.get(own), there.pulled.get(own)
    if back is not None and of_this is not None and of_this.journal == here.journal_id and has_record(records, of_this):
        problems += of_what_was_pulled(
            there, point_in_time(records, journal.traits, as_of=of_this.record, now_ms=folded.now_ms).state,
            _compared(there, own, back.queues), passes=back.passes, who=f"'{name}'", whom="this instance",
        )  # fmt: skip
    return problems, warnings


def _compared(hearer: JournalState, speaker: str, queues: Sequence[str]) -> tuple[str, ...]:
    """Return those of some queues of which an instance takes over news: it has said of the others that they are not the same."""
    withheld = {each.queue for each in hearer.disagreements.get(speaker, ()) if each.rule in WITHHOLDING}
    return tuple(queue for queue in queues if queue not in withheld)
