"""Two instances of replicated queues against each other: one that has heard of a value knows it, or a greater one (DESIGN 17.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyroaring import BitMap64

from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import MessageValue, Stage

#: Messages that are named of those that differ.
_EXAMPLES = 3


def of_origins(state: JournalState) -> Iterator[str]:
    """Yield faults of the origins of pulled messages: each is here once, and none of them is of here."""
    for name, message_type in state.message_types.items():
        origins = message_type.origins
        for origin, pulled in origins.pulled.items():
            instance = state.instances.get(origin, origin)
            # A journal that was restored gets back messages that it had lost.
            if origin == state.journal_id and not origins.renewed:
                yield f"message type '{name}': {len(pulled)} message(s) count as pulled that were first published here"
            elif len(pulled) + origins.name_count(origin) != len(origins.held[origin]):
                yield f"message type '{name}': messages of instance '{instance}' are here more than once"


def of_what_was_pulled(
    hearer: JournalState, speaker: JournalState, queues: tuple[str, ...], *, passes: Callable[[str, str], bool], who: str, whom: str
) -> Iterator[str]:
    """Yield values that a hearer does not know although it has pulled them from a speaker.

    `speaker` is the state as it stood when the hearer had pulled the last of it; `passes` returns whether messages of an
    instance, which is in a group, may come this way.
    """
    for queue in queues:
        here, there = hearer.queues.get(queue), speaker.queues.get(queue)
        # A queue that a side has set aside, or does not replicate, proves nothing.
        if here is None or there is None or not (here.is_replicated and there.is_replicated):
            continue
        message_type = here.definition.message_type
        if message_type != there.definition.message_type:
            # It is another queue there, and its news wait.
            continue
        names = _Names(hearer, speaker, message_type)
        for value, rows in _values(there):
            known, unknown = names.of_hearer(rows, passes)
            if unknown and value.stage != Stage.GONE:
                examples = _examples(speaker, message_type, unknown)
                yield f"queue '{queue}': {who} does not have {len(unknown)} message(s) of {whom}, such as {examples}"
            less = _less(hearer, here, known, value)
            if less:
                text = f"{who} does not know that {len(less)} message(s) are {_told(value)}, as {whom} says"
                yield f"queue '{queue}': {text}: such as {_examples(hearer, message_type, less)}"


class _Names:
    """The bookmarks of one instance at another."""

    def __init__(self, hearer: JournalState, speaker: JournalState, message_type: str) -> None:
        self._hearer, self._speaker = hearer, speaker
        self._here: MessageTypeState = hearer.message_types[message_type]
        self._there: MessageTypeState = speaker.message_types[message_type]

    def of_hearer(self, rows: BitMap64, passes: Callable[[str, str], bool]) -> tuple[BitMap64, BitMap64]:
        """Return bookmarks of the speaker as the hearer's; and those, of the speaker, that the hearer should have and has not."""
        known, told, unknown = BitMap64(), BitMap64(), BitMap64()
        for origin, there in self._there.origins.of(rows, own=self._speaker.journal_id):
            origins, own = self._here.origins, self._hearer.journal_id
            published = origins.published_here(origin, there, own=own, until=self._here.entered_until)
            missing = there - published - origins.held.get(origin, BitMap64())
            known |= published | origins.here(origin, there)
            told |= self._of_speaker(origin, there - missing, rows)
            instance = self._instance_of(origin)
            group = self._there.origins.groups.get(instance, instance)
            if instance in (_name(self._hearer), _name(self._speaker)) or passes(instance, group):
                unknown |= self._of_speaker(origin, missing, rows)
        # One name that is known is enough.
        return known, unknown - told

    def _of_speaker(self, origin: str, there: BitMap64, rows: BitMap64) -> BitMap64:
        """Return those of the speaker's messages that have one of some names."""
        origins, until = self._there.origins, self._there.entered_until
        published = origins.published_here(origin, there, own=self._speaker.journal_id, until=until)
        return rows & (published | origins.here(origin, there))

    def _instance_of(self, origin: str) -> str:
        """Return where the messages of an origin were published, a journal that was restored since included."""
        return _name(self._speaker) if origin == self._speaker.journal_id else self._speaker.instances.get(origin, "")


def _name(state: JournalState) -> str:
    return str(state.definitions.journal.instance)


def _examples(state: JournalState, message_type: str, rows: BitMap64) -> str:
    """Name some messages by where they were first published, as everybody knows them."""
    own = state.definitions.journal.instance
    found = [
        f"{own if origin == state.journal_id else state.instances[origin]}:{bookmark}"
        for origin, there in state.message_types[message_type].origins.of(BitMap64(list(rows[:_EXAMPLES])), own=state.journal_id)
        for bookmark in there
    ]
    return ", ".join(found)


def _values(ledger: QueueLedger) -> Iterator[tuple[MessageValue, BitMap64]]:
    """Yield the values of an instance's messages; barriers have none."""
    for life, members in ledger.ownership.by_life(ledger.entered - ledger.barriers):
        gone, dead = members & ledger.rows[State.REMOVED], members & ledger.rows[State.DEAD]
        if gone:
            yield MessageValue(life, Stage.GONE), gone
        for stage, rows in ((Stage.DEAD, dead), (Stage.PRESENT, members - gone - dead)):
            for term, owner, part in ledger.ownership.by_owner(rows):
                yield MessageValue(life, stage, term, owner), part


def _less(state: JournalState, ledger: QueueLedger, rows: BitMap64, value: MessageValue) -> BitMap64:
    """Return of which messages less is known than a value."""
    source = state.definitions.source_of(ledger.definition.name)
    missing = BitMap64()
    if source is not None and value.stage != Stage.GONE:
        # A letter exists while its message is dead in that life.
        of_source = state.queues[source]
        rows = of_source.ownership.of_life(of_source.rows[State.DEAD] & rows, value.life)
        missing = rows - ledger.entered
    # Messages that retention let go are in no state any more.
    return missing | ledger.ownership.lesser(ledger.rows, (rows & ledger.entered) - ledger.barriers, value)


def _told(value: MessageValue) -> str:
    life = f" in life {value.life}" if value.life else ""
    if value.stage == Stage.GONE:
        return f"gone{life}"
    where = "dead letters" if value.stage == Stage.DEAD else "in the queue"
    return f"{where}{life}, owned by '{value.owner}' in term {value.term}"
