"""The check whether the definitions of peers fit, with those of each that can be reached (DESIGN 17.7)."""

from __future__ import annotations

from dataclasses import dataclass

from spark_queue.core.definitions.definition import TEXTS, Definitions, Rule
from spark_queue.errors import ConfigError, SparkQueueError
from spark_queue.journal.reader import open_with_definitions
from spark_queue.journal.store import Store
from spark_queue.replication import validation
from spark_queue.replication.peer_stores import peer_store
from spark_queue.replication.restored import read_definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCheck:
    """The result of comparing the definitions of instances."""

    #: The demand of each rule.
    rules: dict[str, str]
    broken: list[validation.BrokenRule]
    #: Instances whose definitions were read.
    read: list[str]
    #: The reason why those of others could not be, by instance.
    unread: dict[str, str]
    #: Whether every peer of this journal was read, and no rule is broken but R113.6, which may be.
    fits: bool


def check_peers(store: Store) -> PeerCheck:
    """Read the definitions of a journal's peers, and of theirs as far as they can be read, and check them all."""
    reader, (_, own) = open_with_definitions(store)
    if not own.peers or own.journal.instance is None:
        raise ConfigError("NO_PEERS", path=store.path)
    known, journals = {own.journal.instance: own}, {reader.journal_id: own.journal.instance}
    unread: dict[str, str] = {}
    waiting = list(own.peers.values())
    while waiting:
        peer = waiting.pop(0)
        if peer.name in known or peer.name in unread:
            continue
        try:
            # Its options are those of the own journal: a definition holds no secrets.
            journal, theirs = read_definitions(peer_store(store, peer), peer.name)
        except SparkQueueError as trouble:
            unread[peer.name] = str(trouble)
            continue
        same = journals.setdefault(journal, peer.name)
        if same != peer.name or theirs.journal.instance != peer.name:
            unread[peer.name] = _misnamed(peer.journal, theirs, same, peer.name)
            continue
        known[peer.name] = theirs
        waiting += theirs.peers.values()
    broken = validation.find(known)
    return PeerCheck(
        rules={str(rule): TEXTS[rule] for rule in Rule}, broken=broken, read=list(known), unread=unread,
        fits=all(each.rule == Rule.SAME_MEMBERS for each in broken) and not own.peers.keys() & unread.keys(),
    )  # fmt: skip


def _misnamed(path: str, found: Definitions, same: str, name: str) -> str:
    if same != name:
        return f"'{path}' is the journal of '{same}', or a copy of it."
    return f"'{path}' is " + ("no instance." if found.journal.instance is None else f"instance '{found.journal.instance}'.")
