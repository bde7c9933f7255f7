"""An instance that pulls from a peer whose journal somebody changes who may write there (DESIGN 17.3)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.fake_clock import FakeClock
from tests.unit.replication.sites import Peer, Site, three_sites

Home = tuple[Path, FakeClock, Any]


class Attack:
    """An instance that pulls from a peer whose journal somebody changes, and from one that is honest."""

    def __init__(self, home: Home, path: Path) -> None:
        #: What an instance knows that pulled from honest peers alone.
        self.home, clock, self.unharmed = home
        shutil.copytree(self.home / "frankfurt", path / "frankfurt")
        self.here = Site(path / "frankfurt", clock)
        shutil.copytree(self.home / "virginia", path / "virginia")
        self.peer = Peer(path / "virginia")

    def pull(self, code: str | None, says: str = "", **options: Any) -> None:
        """Pull from the changed peer, which is refused with a code, or taken where there is none."""
        refusal = self.here.pull("virginia", self.peer.path, **options)
        if code is None:
            assert refusal is None, refusal
        else:
            assert refusal is not None, "it was believed"
            assert (refusal.code, says in str(refusal)) == (code, True), refusal

    def go_on(self) -> None:
        """See that this instance pulls from another, and is sound."""
        assert self.here.pull("tokyo", self.home / "tokyo") is None, "other peers are pulled"
        self.here.check()

    def heal(self) -> None:
        """Go on, put the honest journal back, and see that nothing was lost and nothing came twice."""
        self.go_on()
        shutil.rmtree(self.peer.path)
        shutil.copytree(self.home / "virginia", self.peer.path)
        assert self.here.pull("virginia", self.peer.path) is None
        assert self.here.told() == self.unharmed


def made_home(path: Path) -> Home:
    """Make three honest instances; returns where, and what the one that has pulled nothing knows once it has."""
    clock = FakeClock()
    three_sites(path, clock)
    (path / "unharmed").mkdir()
    first = Attack((path, clock, None), path / "unharmed")
    first.pull(None)
    first.go_on()
    return path, clock, first.here.told()
