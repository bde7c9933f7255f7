"""Random kills of everything that takes part, on real Spark: nothing lost, nothing unexpected (R15, R19, P1 to P7).

`FARM_KILLS` and `FARM_SEED` make a run longer or another one; `make nightly` sets them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from spark_queue.journal.open import open_journal
from spark_queue.views.journal_view import state_of
from tests.acceptance.farm.farm import Farm
from tests.acceptance.farm.judgement import judge
from tests.acceptance.farm.load import FEATURES, PLAIN, Load
from tests.second_model.problems import problems

KILLS = int(os.environ.get("FARM_KILLS", "20"))
SEED = int(os.environ.get("FARM_SEED", "20111209"))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600 + KILLS * 20)
@pytest.mark.parametrize(
    ("load", "share", "into"),
    [
        pytest.param(PLAIN, 1.0, False, id="plain queue"),
        pytest.param(FEATURES, 0.5, False, id="all rules at once"),
        pytest.param(FEATURES, 1.0, True, id="all rules at once, into one table"),
    ],
)
def test_random_kills_lose_nothing_and_every_duplicate_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], load: Load, share: float, *, into: bool
) -> None:
    """With a filter, barriers, order per key, retries and dead letters on, everything also comes in order (R65 to R73).

    In a table that batches are appended to, what is acknowledged stands exactly once, and nothing else (R123 to R127).
    """
    farm = Farm(folder=tmp_path, seed=SEED, load=load, into=into)
    farm.run(kills=int(KILLS * share), patience_s=120)
    verdict = judge(farm.sites[0])
    with capsys.disabled():
        sys.stdout.write(
            f"\nkilled {dict(farm.kills)}; {farm.published} messages published, "
            f"{verdict.explained_duplicates} delivered again, each explained; {verdict.barriers} barriers\n"
        )
    assert farm.published > 0
    assert len(farm.kills) == min(len(farm.cards), int(KILLS * share)), "each kind was killed, as far as the kills allow"
    assert verdict.broken == {}
    opened = open_journal(farm.sites[0].journal.store)
    assert problems(state_of(opened.records(), opened.traits), opened.records(), {}) == []
