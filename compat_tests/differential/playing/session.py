"""A run of seeds with restarts in between, after which what histories left behind is described once more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compat_tests.differential.areas import written
from compat_tests.differential.run import Run
from compat_tests.differential.spread import spread


def run_spread(run: Run, areas: Sequence[str], seeds: Iterable[int]) -> None:
    """Histories for several nodes, one at a time: nodes end while they are played."""
    for seed in seeds:
        for area in areas:
            run.play_alone(spread(written(area, seed)))


def run_seeds(
    run: Run, areas: Sequence[str], seeds: Iterable[int], *, workers: int, restart_every: int, timed: bool = True
) -> None:
    """Without `timed`, histories whose answers depend on the time that they take are left out."""
    jobs = [(area, seed) for seed in seeds for area in areas if timed or not written(area, seed).is_timed]
    size = restart_every or len(jobs)
    for number, start in enumerate(range(0, len(jobs), size)):
        if restart_every:
            run.keep_what_is_left()
        run.histories(jobs[start : start + size], workers=workers)
        if restart_every:
            run.restart(kill_ottla=number % 2 == 0)
