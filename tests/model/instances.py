"""Several instances of one queue, message by message: what DESIGN 17.4 to 17.6 say, in plain values and loops, slow on purpose.

Each instance has one consumer, which takes batches and finishes each by asking for the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: A message everywhere: the instance that it was published to, and its number among all messages there.
Id = tuple[str, int]

PRESENT, DEAD, GONE = 0, 1, 2

#: Of the queue: how long a lease lasts, how often a message is delivered, and how long a consumer that polled counts as waiting.
LEASE_MS, DELIVERIES, WINDOW_MS = 60_000, 2, 1_000

#: How long a coordinator that begins gives to leases that are open.
GRACE_MS = 20_000


class Value(NamedTuple):
    """What an instance says of a message; of two values the greater one is true."""

    life: int
    stage: int
    term: int = 0
    owner: str = ""


@dataclass(frozen=True)
class News:
    """What the log of an instance says: that messages came, what they or their letters are from now on, or who asks for them."""

    kind: str
    ids: Sequence[Id]
    value: Value | None = None
    deliveries: int = 0
    requester: str = ""
    #: How many of the messages who asks wants.
    limit: int = 0


@dataclass
class Known:
    """A message, as one instance knows it."""

    value: Value
    #: The value of its dead letter, while there is one.
    letter: Value | None = None
    deliveries: int = 0


@dataclass
class Batch:
    """What the consumer of an instance was given last: what it still holds, and what it may still settle."""

    due: int
    held: set[Id]
    claim: set[Id]


@dataclass
class Instance:
    """One instance."""

    name: str
    #: Known messages, in the order in which they came.
    messages: dict[Id, Known] = field(default_factory=dict)
    log: list[News] = field(default_factory=list)
    #: How far the log of each peer was read.
    read: dict[str, int] = field(default_factory=dict)
    batch: Batch | None = None
    polled_at: int | None = None
    #: Whether messages may be claimed here, and from whom: who cannot be reached.
    claims: bool = False
    lost: set[str] = field(default_factory=set)
    #: What is claimed and not granted before another look, by whose it was.
    claimed: dict[str, set[Id]] = field(default_factory=dict)

    def state(self, each: Id) -> str:
        """Return where a message is here."""
        value = self.messages[each].value
        if self.batch is not None and each in self.batch.held:
            return "leased"
        is_own = value.owner == self.name and not any(each in ids for ids in self.claimed.values())
        return ("available" if is_own else "remote", "dead", "removed")[value.stage]

    def having(self, state: str) -> list[Id]:
        """Return the messages in a state, in the order in which they came."""
        return [each for each in self.messages if self.state(each) == state]

    def claimable(self) -> list[Id]:
        """Return what may be claimed: what belongs to whom nobody reaches, while somebody allows it (R108)."""
        if self.claimed or not self.claims:
            return []
        return [each for each in self.having("remote") if self.messages[each].value.owner in self.lost]

    def publish(self, count: int) -> None:
        """Let messages enter that are published here."""
        first = len(self.messages)
        self._enter([(self.name, first + number) for number in range(count)])

    def take(self, limit: int, now: int) -> list[Id]:
        """Finish the batch, and return the next; what alone there is to claim for it is there after another look (R110)."""
        self.polled_at = now
        self._prove()
        given = self._choose({*self.messages}, limit)
        while not given and self.claimed:
            self.look()
            given = self._choose({*self.messages}, limit)
        for each in given:
            self.messages[each].deliveries += 1
        if given:
            self.batch = Batch(now + LEASE_MS, set(given), set(given))
        return given

    def _choose(self, among: set[Id], limit: int) -> list[Id]:
        """Return the oldest that are free; of these what may be claimed is claimed, and free after another look."""
        free = {*self.having("available"), *self.claimable()} & among
        chosen = [each for each in self.messages if each in free][:limit]
        foreign = [each for each in chosen if self.messages[each].value.owner != self.name]
        owners = {each: self.messages[each].value.owner for each in foreign}
        self._move(foreign, self.name)
        for each, owner in owners.items():
            self.claimed.setdefault(owner, set()).add(each)
        return [each for each in chosen if each not in owners]

    def look(self, *, remembers: bool = True) -> None:
        """Let what was claimed be granted where its owner is lost still, and go back where it is not, or nobody remembers."""
        claimed, self.claimed = self.claimed, {}
        for owner, ids in claimed.items():
            if not remembers or owner not in self.lost:
                self._move([each for each in self.messages if each in ids], owner)

    def tick(self, now: int) -> None:
        """Do what is due."""
        self._end_lease(now)
        self.look()

    def _end_lease(self, now: int) -> None:
        """End the lease whose time is over: what comes back is what its value says, or dead."""
        if self.batch is None or self.batch.due > now:
            return
        for each in sorted(self.batch.held, key=list(self.messages).index):
            self.batch.held.discard(each)
            known = self.messages[each]
            if known.deliveries >= DELIVERIES:
                self._die(each)
            elif known.value.owner != self.name:
                self.batch.claim.discard(each)

    def expire(self, each: Id) -> None:
        """Give up a leased message by hand."""
        assert self.batch is not None
        self.batch.held.discard(each)
        self.batch.claim.discard(each)
        self._die(each)

    def acknowledge(self, each: Id) -> None:
        """End a message that is owned here by hand."""
        self._end(each)

    def redrive(self) -> list[Id]:
        """Give back the dead letters that are owned here: each begins a new life, and belongs to who gave it back."""
        found = [each for each in self.having("dead") if self._has_letter(each)]
        for each in found:
            self._say(each, Value(self.messages[each].value.life + 1, PRESENT, 0, self.name))
            self.log.append(News("value", [each], self.messages[each].value))
        return found

    def crash(self, now: int) -> None:
        """Go on with the next coordinator, which gives everybody time to speak."""
        if self.batch is not None and self.batch.held:
            self.batch.due = max(self.batch.due, now + GRACE_MS)
        self.polled_at = now if self.polled_at is not None else None
        self.look(remembers=False)

    def pull(self, peer: Instance, now: int) -> None:
        """Take over what a peer has said since the last time: first the messages, then what is said of them, in order."""
        news = peer.log[self.read.get(peer.name, 0) :]
        self.read[peer.name] = len(peer.log)
        for each in news:
            if each.kind == "entered":
                self._enter([one for one in each.ids if one not in self.messages])
        for each in news:
            for one in each.ids if each.value is not None else ():
                self._hear(one, each)
            if each.kind == "request":
                self._answer(each, now)

    def _enter(self, ids: Iterable[Id]) -> None:
        come = list(ids)
        self.messages.update({each: Known(Value(0, PRESENT, 0, each[0])) for each in come})
        if come:
            self.log.append(News("entered", come))

    def _hear(self, each: Id, news: News) -> None:
        """Take over what is greater, and pass it on."""
        known, value = self.messages[each], news.value
        assert value is not None
        if news.kind == "letter":
            of_this_life = known.value.stage == DEAD and known.value.life == value.life
            if of_this_life and (known.letter is None or value > known.letter):
                known.letter = value
                self.log.append(News("letter", [each], value))
        elif value > known.value:
            before = known.deliveries if value.life == known.value.life else 0
            self._say(each, value)
            known.deliveries = max(before, news.deliveries)
            # What was heard, not what is known: what was counted here is told by who gives it away.
            self.log.append(News("value", [each], value, news.deliveries))

    def _answer(self, request: News, now: int) -> None:
        """Give who asks the oldest that are free here, unless somebody here waits for them (R105, R109).

        A request may come by several ways: what who asks has of it by now counts.
        """
        waits = self.polled_at is not None and now < self.polled_at + WINDOW_MS
        left = request.limit - sum(self.messages[each].value.owner == request.requester for each in request.ids)
        if request.requester != self.name and not waits and left > 0:
            self._move(self._choose({*request.ids}, left), request.requester)

    def _move(self, ids: Sequence[Id], owner: str) -> None:
        """Give messages to an owner, in a term above all that they had."""
        term = 1 + max((self.messages[each].value.term for each in ids), default=0)
        for each in ids:
            known = self.messages[each]
            self._say(each, Value(known.value.life, PRESENT, term, owner))
            self.log.append(News("value", [each], known.value, known.deliveries))

    def _prove(self) -> None:
        """Let the batch be acknowledged; what another has taken meanwhile is no longer its own, but for what it still holds."""
        batch, self.batch = self.batch, None
        for each in [] if batch is None else sorted(batch.claim, key=list(self.messages).index):
            known = self.messages[each]
            owned = known.value.owner == self.name or (batch is not None and each in batch.held)
            if (known.value.stage == PRESENT and owned) or (known.value.stage == DEAD and self._has_letter(each)):
                self._end(each)

    def _end(self, each: Id) -> None:
        self._say(each, Value(self.messages[each].value.life, GONE))
        self.log.append(News("value", [each], self.messages[each].value))

    def _die(self, each: Id) -> None:
        """Make a dead letter, which belongs to who made it."""
        known = self.messages[each]
        self._say(each, known.value._replace(stage=DEAD), keeps_claim=True)
        known.letter = Value(known.value.life, PRESENT, 0, self.name)
        self.log.append(News("value", [each], known.value))
        self.log.append(News("letter", [each], known.letter))

    def _has_letter(self, each: Id) -> bool:
        letter = self.messages[each].letter
        return letter is not None and letter.owner == self.name

    def _say(self, each: Id, value: Value, *, keeps_claim: bool = False) -> None:
        """Let a message be something else: a lease of an earlier life is over, and so is a letter."""
        known = self.messages[each]
        self.claimed = {owner: left for owner, ids in self.claimed.items() if (left := ids - {each})}
        is_over = value.life > known.value.life or value.stage != PRESENT
        # Who gives away what he no longer had says nothing new to its owner: nobody took it from here meanwhile.
        stays = not is_over and value.owner == known.value.owner == self.name
        if (value.life, value.stage) != (known.value.life, DEAD):
            known.letter = None
        if is_over:
            known.deliveries = 0
        if self.batch is not None:
            if is_over:
                self.batch.held.discard(each)
            if each not in self.batch.held and not keeps_claim and not stays:
                self.batch.claim.discard(each)
        known.value = value
