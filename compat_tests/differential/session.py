"""A run of seeds with restarts in between, after which what histories left behind is described once more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compat_tests.differential.areas import AREAS
from compat_tests.differential.pair import Pair
from compat_tests.differential.run import Run


def run_seeds(
    run: Run, pair: Pair, areas: Sequence[str], seeds: Iterable[int], *, workers: int, restart_every: int
) -> None:
    assert all(area in AREAS for area in areas)
    jobs = [(area, seed) for seed in seeds for area in areas]
    size = restart_every or len(jobs)
    for start in range(0, len(jobs), size):
        run.histories(jobs[start : start + size], workers=workers)
