"""Findings about journals, for pages: the list of what is wrong, and the notes on the page of one journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from spark_queue.core.state.findings import QueueFinding, of_set_aside
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.sparkq_command import SparkqCommand
from spark_queue.dashboard import formatting
from spark_queue.errors import SparkQueueError, counted, with_journal
from spark_queue.following.follower import FollowedView, JournalFollower
from spark_queue.journal import snapshot
from spark_queue.journal.store import Store
from spark_queue.protocol.discovery import read_advertisement

#: Findings that a page lists; it counts the others.
LISTED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFinding:
    """A finding as pages list it."""

    #: The journal, and the first of the queues that it is about.
    where: str
    #: The number of its further queues.
    more_queues: int
    href: str
    text: str
    #: Since when it is so, in milliseconds; 0 where nobody knows.
    since_ms: int
    #: Whether that is when this process saw it first: no record tells.
    is_first_seen: bool
    now_ms: int
    command: str
    is_alarm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingList:
    """Findings about some journals, the alarms first, and of these the newest."""

    findings: Sequence[ListedFinding]
    #: The number of those that are not listed.
    more: int
    journals: int
    #: The number of journals that were not read yet.
    unread: int
    #: When the journals were looked at, the earliest of them, in milliseconds; 0 for none.
    as_of_ms: int


def finding_list(found: Iterable[ListedFinding], *, times_ms: Sequence[int]) -> FindingList:
    """Return the list of findings in journals that were looked at at some times, 0 for one that was not read yet."""
    known = sorted(found, key=lambda each: (not each.is_alarm, -each.since_ms))
    looked_ms = [each for each in times_ms if each]
    return FindingList(
        findings=known[:LISTED], more=max(0, len(known) - LISTED), journals=len(times_ms), unread=len(times_ms) - len(looked_ms),
        as_of_ms=min(looked_ms, default=0),
    )  # fmt: skip


def unreadable(follower: JournalFollower, now_ms: int) -> list[ListedFinding]:
    """Return the finding that a journal cannot be read; none where it can."""
    trouble = follower.trouble
    if trouble is None:
        return []
    finding = QueueFinding(
        text=f"This journal cannot be read now. {trouble}", since_ms=follower.trouble_since_ms, command=SparkqCommand("doctor")
    )
    return [_listed(follower, finding, (), {}, now_ms)]


def journal_findings(
    follower: JournalFollower,
    look: FollowedView,
    of_queues: Mapping[str, Iterable[QueueFinding]],
    of_journal: Iterable[QueueFinding],
) -> list[ListedFinding]:
    """Return the findings about a journal and its queues; one that is the same in several queues is listed once."""
    queues: dict[QueueFinding, list[str]] = {each: [] for each in of_journal}
    for name, found in of_queues.items():
        for each in found:
            queues.setdefault(each, []).append(name)
    return [_listed(follower, each, names, look.first_seen_ms, look.now_ms) for each, names in queues.items()]


def _listed(
    follower: JournalFollower, finding: QueueFinding, queues: Sequence[str], first_seen_ms: Mapping[str, int], now_ms: int
) -> ListedFinding:
    return ListedFinding(
        where=f"{follower.name} / {queues[0]}" if queues else f"journal {follower.name}",
        more_queues=len(queues[1:]),
        href=_href(follower.name, finding, queues),
        text=with_journal(finding.text, follower.store.path),
        since_ms=finding.since_ms or first_seen_ms.get(finding.text, 0),
        is_first_seen=not finding.since_ms,
        now_ms=now_ms,
        command=finding.command.line(follower.store.path),
        is_alarm=finding.is_alarm,
    )


def _href(journal: str, finding: QueueFinding, queues: Sequence[str]) -> str:
    """Return the address of the page that shows most of a finding."""
    base, command = f"/j/{quote(journal, safe='')}", finding.command
    queue = f"{base}/queues/{quote(queues[0], safe='')}" if queues else ""
    if command.verb.startswith("peers "):
        return f"{base}/peers"
    if not queues or queues[1:] or command.verb in ("follow", "revive", "verify"):
        return f"{base}/journal"
    if command.verb == "explain":
        return f"{queue}/messages/{command.names[1]}"
    if command.verb == "redrive":
        return f"{queue}/dead-letters?{urlencode({'since': formatting.field_time(finding.since_ms // 1_000 * 1_000)})}"
    return queue


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFinding:
    """Something to know, or to do."""

    level: str
    text: str


def findings(state: JournalState, troubles: Sequence[str], now_ms: int) -> list[JournalFinding]:
    """Return the findings about a journal by its state; `sparkq doctor` also tries things."""
    found = [JournalFinding(level="bad", text=text) for text in troubles]
    found += [JournalFinding(level="bad", text=of_set_aside(state, name).text) for name in state.set_aside_queues()]
    found += [JournalFinding(level="bad", text=each.error) for each in state.peer_troubles.values()]
    for name, known in state.message_types.items():
        if known.foreign_files:
            text = (
                f"Other software appended {known.foreign_files:,} file(s) to message type '{name}'. They are not messages of the "
                "journal."
            )
            found.append(JournalFinding(level="warn", text=counted(text)))
    if state.last_at_ms > now_ms + 60_000:
        text = f"The log is {(state.last_at_ms - now_ms) / 1_000:,.0f} s ahead of this host's clock."
        found.append(JournalFinding(level="warn", text=text))
    return found


def store_findings(store: Store, journal_id: str, records: int) -> list[JournalFinding]:
    """Return the findings about the store: the cost of a start, and whether a coordinator was seen."""
    try:
        known_snapshots = snapshot.stored(store)
        advertised = read_advertisement(store, journal_id)
    except SparkQueueError as refusal:
        return [JournalFinding(level="warn", text=str(refusal))]
    found = []
    newest = known_snapshots[0][0] if known_snapshots else None
    if newest is None:
        found.append(JournalFinding(level="ok", text=f"No snapshot yet: a start folds all {records:,} records."))
    else:
        found.append(JournalFinding(level="ok", text=f"The newest snapshot is of record {newest} of {records - 1}."))
    if advertised is None:
        found.append(JournalFinding(level="ok", text="No coordinator is advertised. The next caller that needs one starts it."))
    else:
        found.append(JournalFinding(level="ok", text=f"A coordinator was last seen at {advertised.address}."))
    return found
