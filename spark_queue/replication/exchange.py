"""Values between pullers and the coordinator's loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap64

from spark_queue.core.deciding.instances.replicating import Pulled
from spark_queue.core.definitions.definition import Definitions, Disagreement
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.state.ownership import Watermark
from spark_queue.errors import SparkQueueError
from spark_queue.ports import PulledFiles

#: Longest wait, in milliseconds, for what peers say: of replicated queues for what they said while nobody reigned here, and of all
#: that would enter for what is lost here.
HEARS_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The content of a message type here, as far as publishers may have brought the same elsewhere."""

    #: Oldest first; none where no publisher has a name.
    segments: Sequence[Segment] = ()
    #: The highest number of each named publisher.
    highest: Mapping[str, int] = field(default_factory=dict)
    #: Bookmark after the last message.
    until: int = 0


@dataclass(frozen=True, slots=True)
class PullState:
    """The own journal, as a puller must know it: its UUID, how far the peer is pulled, and what is here by message type."""

    journal: str
    watermark: Watermark | None
    held: Mapping[str, Mapping[str, BitMap64]]
    #: What publishers have brought here.
    standing: Mapping[str, Standing]
    #: Whether somebody said to go on without the messages that the peer let go before they were pulled.
    skips: bool = False
    #: UUIDs of the own origin since the journal was restored from a backup, oldest first.
    renewed: Sequence[str] = ()
    #: How the peer's definitions break rules, as the own log says.
    disagreements: Sequence[Disagreement] = ()
    #: The names of instances by the UUID of their journal, this one's too.
    instances: Mapping[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """UUID of the origin of what is published here now."""
        return self.renewed[-1] if self.renewed else self.journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a puller, and how the peer is pulled since."""

    #: Whether there was something new.
    found: bool
    #: Whether it came to the end of the log, and will not begin it anew.
    is_at_end: bool
    #: The last record of the own journal that the peer has pulled; -1 before the first, None where it pulls nothing.
    pulled_here: int | None = -1
    #: An obstacle to pulling messages of one type, while all else is pulled.
    trouble: SparkQueueError | None = None
    #: What the peer has by message type and origin, as its log says up to where it was read; None where nobody asked for it.
    held: Mapping[str, Mapping[str, BitMap64]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardPeer:
    """How a peer is pulled, and what it has seen of this instance."""

    #: How long ago it was, at least, where it is pulled to; None where it is pulled to no end.
    level_age_ms: int | None = 0
    #: Whether it can be read now.
    is_readable: bool = True
    #: The newest number of the own beacon that it says to have seen; -1 for none.
    seen_own: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Signs of life, by pullers and by looks at beacons."""

    #: How often the beacon of each instance was seen to rise, by name.
    rises: Mapping[str, int] = field(default_factory=dict)
    #: How long ago the last look at the beacon of each peer began, at most; one that gets no answer has found none.
    look_age_ms: int = 0
    #: The peers, by name.
    peers: Mapping[str, HeardPeer] = field(default_factory=dict)
    #: How long ago the own beacon was written, and its number; None before the first time.
    own_age_ms: int | None = 0
    own_number: int | None = 0
    #: How long it was not written, whenever that was two of its periods or more; None where nobody knows.
    own_gaps_ms: Sequence[int | None] = ()

    @property
    def level_age_ms(self) -> int | None:
        """How long ago each peer that can be read was, at least, where it is pulled to; None where one is pulled to no end."""
        found = [peer.level_age_ms for peer in self.peers.values() if peer.is_readable]
        return None if None in found else max((age_ms for age_ms in found if age_ms is not None), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPulled:
    """A reading of a peer, for the loop: files of messages first, then what the records say."""

    pulled: Pulled
    #: By which it was read.
    definitions: Definitions
    files: Sequence[PulledFiles] = ()
    #: Whether its puller was told to end meanwhile: another one begins anew, by what somebody said.
    is_over: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class PullProgressQuery:
    """The question for the `PullState` about one peer."""

    peer: str


class EndedError(Exception):
    """The loop has ended, and nothing is pulled any more."""


#: What may be over at the next look; what a peer's log says will say the same again.
_PASSING = frozenset({"STORE_FAILED", "PEER_AWAY"})


def may_pass(trouble: BaseException | None) -> bool:
    """Return whether what keeps a peer from being pulled may be over soon."""
    return not isinstance(trouble, SparkQueueError) or trouble.code in _PASSING


@dataclass(slots=True)
class PullReport:
    """How a peer is pulled since its puller began."""

    #: What was copied of its messages.
    rows: int = 0
    bytes: int = 0
    #: What keeps it from being pulled.
    trouble: BaseException | None = None
    #: Whether its log was searched for what the own log has lost.
    is_compared: bool = True

    def count(self, pull: ApplyPulled) -> None:
        """Count what was copied."""
        files = [file for files in pull.files for file in files.files]
        self.rows += sum(rows for file in files for _, rows, _, _ in file.origins)
        self.bytes += sum(file.size_bytes for file in files)
