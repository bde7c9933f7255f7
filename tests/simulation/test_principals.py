"""Worlds of principals whose rights come and go: nobody is given or told what is hidden, and nothing is lost (R12, R47, R48).

A failure names the world's seed; keep it in `KEPT_SEEDS`.
"""

from __future__ import annotations

from tests.simulation.principal_promises import Judge
from tests.simulation.principals_world import PrincipalsWorld
from tests.simulation.seeds import over_seeds
from tests.simulation.test_loop import keeps_every_promise, run

#: Seeds that once failed, and what was broken.
KEPT_SEEDS: dict[int, str] = {
    10: "planted: new definitions hid nothing from who had subscribed, and a right that was taken away went on",
    37: "planted: what is hidden was purged, and settled by hand",
    97: "a released barrier was given to a subscription whose principal could not see it any more",
    254609497: "none: what was purged is told again to who repeats the request",
}


@over_seeds(every=25, kept=KEPT_SEEDS)
def test_principals_get_what_they_see_and_nothing_else(seed: int) -> None:
    """What one may not read another one gets, whatever dies meanwhile, and a right that was taken away is gone."""
    world = run(seed, PrincipalsWorld)
    assert isinstance(world, PrincipalsWorld)
    keeps_every_promise(world)
    judge = Judge(world)
    assert judge.hidden_grants == []
    assert judge.hidden_changes == []
    assert judge.answered_without_a_right() == []
    assert judge.refused_despite_a_right() == []
    assert judge.told_of_hidden() == []
