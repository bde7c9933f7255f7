"""Random kills of everything that takes part in one queue on two instances, whose journals disappear for a while, too, and whose
definitions are altered, on one of them at a time.

`FARM_KILLS` and `FARM_SEED` make a run longer or another one; `make nightly` sets them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.acceptance.farm.farm import Farm
from tests.acceptance.farm.judgement_of_instances import judge_instances
from tests.acceptance.farm.load import PLAIN

KILLS = int(os.environ.get("FARM_KILLS", "20"))
#: Of the kills that are asked for; a journal that is away takes its time.
SHARE = 0.7
SEED = int(os.environ.get("FARM_SEED", "20111209"))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600 + KILLS * 30)
@pytest.mark.parametrize("consumers", [pytest.param(1, id="one each"), pytest.param(2, id="two each")])
def test_two_instances_lose_nothing_agree_and_every_duplicate_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], consumers: int
) -> None:
    """R100 to R105, R107 to R111 and R129, whatever dies, is away, or is another queue by now."""
    farm = Farm(folder=tmp_path, seed=SEED, load=PLAIN, instances=("frankfurt", "virginia"), consumers=consumers)
    farm.run(kills=int(KILLS * SHARE), patience_s=120)
    verdict = judge_instances(farm.sites)
    with capsys.disabled():
        sys.stdout.write(
            f"\nkilled {dict(farm.kills)}; {farm.published} messages published, {verdict.transferred} transferred, "
            f"{verdict.claimed} claimed, {verdict.explained_duplicates} delivered again, each explained\n"
        )
    assert farm.published > 0
    assert len(farm.kills) == min(len(farm.cards), int(KILLS * SHARE)), "each kind was killed, as far as the kills allow"
    assert min(verdict.transferred, verdict.claimed) > 0, "each run sees both, by its construction"
    assert verdict.broken == {}
