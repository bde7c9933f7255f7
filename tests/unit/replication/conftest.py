"""Honest instances, made once for all attacks on them, and pullers that do something else than pull."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.journal.store import Store
from spark_queue.replication import pullers
from spark_queue.replication.exchange import ApplyPulled, PullProgressQuery, PullState, Step
from spark_queue.replication.pullers import Pullers
from tests.fake_clock import FakeClock
from tests.sites_on_disk import Site, two_sites
from tests.unit.replication.sites import Attack, Home, made_home

Meet = Callable[[], None]
HandOver = Callable[[ApplyPulled], bool]
Ask = Callable[[PullProgressQuery | ApplyPulled], PullState | bool]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return made_home(tmp_path_factory.mktemp("home"))


@pytest.fixture
def attack(home: Home, tmp_path: Path) -> Attack:
    return Attack(home, tmp_path)


@pytest.fixture
def pair(tmp_path: Path, clock: FakeClock) -> tuple[Site, Site]:
    return two_sites(tmp_path, clock)


@pytest.fixture
def here(pair: tuple[Site, Site]) -> Site:
    return pair[0]


@pytest.fixture
def there(pair: tuple[Site, Site]) -> Site:
    return pair[1]


def definitions(path: Path, *names: str) -> Definitions:
    peers = {name: {"journal": str(path / name), "topics": ["T"], "pull_interval": "1ms"} for name in names or ("virginia",)}
    return parsing.parse({"journal": {"instance": "frankfurt"}, "peers": peers, "message_types": {"json": {"topics": ["T"]}}})


def nothing_is_asked(request: PullProgressQuery | ApplyPulled) -> PullState | bool:
    raise AssertionError(f"nothing is asked: {request}")


class Start:
    """Starts pullers of some peers, by default of virginia, that do something else than pull."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.monkeypatch = path, monkeypatch
        self.started: list[Pullers] = []

    def __call__(
        self, step: Callable[[str, Meet, HandOver], object], *peers: str, ask: Ask = nothing_is_asked, known: Collection[str] = ()
    ) -> Pullers:
        """Let `step` be what each does: by its peer, what it meets the others by and hands over by; whether that is the end."""

        class Stepping:
            def __init__(
                self, _reader: object, own: Store, peer: Store, *_: object, meet: Meet, hand_over: HandOver, **__: object
            ) -> None:
                self._given = (Path(peer.path).name, meet, hand_over)

            def step(self, *, tells_held: bool) -> Step:
                return Step(found=False, is_at_end=step(*self._given) is not False)

        self.monkeypatch.setattr(pullers, "SandboxedPuller", Stepping)
        self.started.append(Pullers(Store(str(self.path / "frankfurt")), ask, FakeClock()))
        assert not self.started[-1].are_compared(), "nobody is known yet"
        self.started[-1].keep(definitions(self.path, *peers), frozenset(known), shows_life=True)
        return self.started[-1]


@pytest.fixture
def goes_on() -> threading.Event:
    """What a step may wait for; at the latest the end of the test sets it."""
    return threading.Event()


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: threading.Event) -> Iterator[Start]:
    """Start pullers that end with the test."""
    start = Start(tmp_path, monkeypatch)
    yield start
    goes_on.set()
    for each in start.started:
        each.keep(parsing.parse({}), frozenset(), shows_life=False)
