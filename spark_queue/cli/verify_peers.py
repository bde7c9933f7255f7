"""``sparkq verify`` of an instance: its state against the logs of its peers, as far as they can be read (DESIGN 17.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_queue.core.definitions.agreement import WITHHOLDING
from spark_queue.core.definitions.definition import PeerDefinition
from spark_queue.core.records import Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ownership import Watermark
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal.open import DeltaJournal, open_journal
from spark_queue.replication.peer_log import digest_of
from spark_queue.replication.peer_stores import peer_store
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
            pair = _Pair(journal, folded, records, definition, watermark)
            problems += list(pair.problems())
        except SparkQueueError as trouble:
            # What cannot be read is no fault of this journal; that it cannot is worth to be known.
            warnings.append(f"Peer '{definition.name}' is not compared: {trouble}")
            continue
        if pair.is_rewound:
            warnings.append(
                f"Peer '{definition.name}' is not compared: its log does not have record {watermark.record} as it was pulled, "
                "as after a backup was restored. What it has is pulled anew."
            )
    return problems, warnings


class _Pair:
    """An instance and one of its peers.

    Raises
    ------
    JournalError
        What keeps the peer from being read; PEER_REPLACED.
    """

    def __init__(
        self,
        journal: DeltaJournal,
        folded: PointInTime,
        records: Sequence[Record],
        definition: PeerDefinition,
        watermark: Watermark,
    ) -> None:
        self._journal, self._folded, self._records = journal, folded, records
        self._definition, self._watermark = definition, watermark
        # Its options are those of the own journal, as when it is pulled.
        self._peer = open_journal(peer_store(journal.store, definition))
        if self._peer.journal_id != watermark.journal:
            facts = {"expected": watermark.journal, "found": self._peer.journal_id, "journal": journal.store.path}
            raise JournalError("PEER_REPLACED", peer=definition.name, **facts)
        self._of_peer = self._peer.records()
        self.is_rewound = not _has(self._of_peer, watermark)

    def problems(self) -> Iterator[str]:
        """Yield what one of the two has pulled of the other and does not know."""
        here, own = self._folded.state, self._folded.state.definitions.journal.instance
        there = self._fold(self._peer, self._of_peer, None)
        if not self.is_rewound:
            then = self._fold(self._peer, self._of_peer, self._watermark.record)
            yield from of_what_was_pulled(
                here, then, _compared(here, self._definition.name, self._definition.queues),
                passes=self._definition.passes, who="this instance", whom=f"'{self._definition.name}'",
            )  # fmt: skip
        back, of_this = there.definitions.peers.get(str(own)), there.pulled.get(str(own))
        if back is not None and of_this is not None and of_this.journal == here.journal_id and _has(self._records, of_this):
            yield from of_what_was_pulled(
                there, self._fold(self._journal, self._records, of_this.record), _compared(there, str(own), back.queues),
                passes=back.passes, who=f"'{self._definition.name}'", whom="this instance",
            )  # fmt: skip

    def _fold(self, journal: DeltaJournal, records: Sequence[Record], until: int | None) -> JournalState:
        return point_in_time(records, journal.traits, as_of=until, now_ms=self._folded.now_ms).state


def _compared(hearer: JournalState, speaker: str, queues: Sequence[str]) -> tuple[str, ...]:
    """Return those of some queues of which an instance takes over news: it has said of the others that they are not the same."""
    withheld = {each.queue for each in hearer.disagreements.get(speaker, ()) if each.rule in WITHHOLDING}
    return tuple(queue for queue in queues if queue not in withheld)


def _has(records: Sequence[Record], watermark: Watermark) -> bool:
    """Return whether a log has the record to which it was pulled."""
    return 0 <= watermark.record < len(records) and digest_of(records[watermark.record]) == watermark.digest
