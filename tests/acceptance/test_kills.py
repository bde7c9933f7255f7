"""Random kills of everything that takes part, on real Spark: nothing lost, nothing unexpected (R15, R19, P1 to P7).

`FARM_KILLS` and `FARM_SEED` make a run longer or another one; `make soak` sets them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.acceptance.farm.farm import Farm
from tests.acceptance.farm.judgement import judge

KILLS = int(os.environ.get("FARM_KILLS", "20"))
SEED = int(os.environ.get("FARM_SEED", "20111209"))


@pytest.mark.spark
@pytest.mark.timeout(600 + KILLS * 20)
def test_random_kills_lose_nothing_and_every_duplicate_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    farm = Farm(folder=tmp_path, seed=SEED)
    farm.run(kills=KILLS, drain_s=180)
    verdict = judge(tmp_path, farm.journal, farm.published)
    with capsys.disabled():
        sys.stdout.write(
            f"\nkilled {dict(farm.kills)}; {farm.published} messages published, "
            f"{verdict.explained_duplicates} delivered again, each explained\n"
        )
    assert farm.published > 0
    assert (verdict.unfinished, verdict.lost, verdict.contradicted, verdict.unexpected) == ([], [], [], [])
