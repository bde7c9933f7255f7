"""Which worlds a test runs: so many that each test takes a chunk of them, and names the one that fails."""

from __future__ import annotations

import gc
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.drawn_cases import DRAWS
from tests.seed_window import window

#: Worlds of the real loop; other simulations take a part of them. `make test` runs 45, `make nightly` 100,000.
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "400"))

#: Worlds of the real loop in one test: enough to forget what a test costs by itself, and few enough to spread over processes.
#: Of larger worlds, of which fewer run, a test takes fewer.
CHUNK = 50

#: A world is large where no more than one in so many runs.
LARGE = 25

#: What a chunk may take where other work takes the processors, in seconds; reached only when something hangs.
CHUNK_S = 1_200


def over_seeds(*, every: int = 1, kept: Iterable[int] = ()) -> Callable[[Callable[..., None]], Any]:
    """Let a test of one `seed` run in as many worlds as `SEEDS` says, or one in so many, and in those that once failed.

    Of large worlds that once failed a run that draws its cases takes none: of what a seed draws little is as it was by then.
    """
    known = [] if DRAWS and every >= LARGE else kept
    seeds = list(dict.fromkeys([*known, *window(-(-SEEDS // every))]))
    size = max(1, CHUNK // every)
    chunks = [seeds[start : start + size] for start in range(0, len(seeds), size)]

    def decorate(check: Callable[..., None]) -> Any:
        def run(seeds: list[int], **others: Any) -> None:
            _in_each(seeds, check, others)

        run.__name__, run.__doc__, run.__module__ = check.__name__, check.__doc__, check.__module__
        # What pytest asks for: the test's own arguments, with many seeds for one.
        asked = inspect.signature(check).parameters.values()
        renamed = [each.replace(name="seeds") if each.name == "seed" else each for each in asked]
        run.__signature__ = inspect.Signature(renamed)  # type: ignore[attr-defined]  # pytest reads it, as `inspect` does.
        by_chunk = pytest.mark.parametrize("seeds", chunks, ids=[f"{chunk[0]}-{chunk[-1]}" for chunk in chunks])
        return pytest.mark.timeout(CHUNK_S)(by_chunk(run))

    return decorate


def _in_each(seeds: Iterable[int], check: Callable[..., None], others: dict[str, Any]) -> None:
    try:
        for seed in seeds:
            _check(seed, check, others)
    finally:
        # By itself the collector would come to these worlds too late to keep them from filling the memory.
        gc.collect()


def _check(seed: int, check: Callable[..., None], others: dict[str, Any]) -> None:
    try:
        check(seed, **others)
    except BaseException as failure:
        failure.add_note(f"This was the world of seed {seed}; keep it in KEPT_SEEDS.")
        raise
