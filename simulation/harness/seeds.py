"""Many seeds, or one to look at."""

from __future__ import annotations

import gc
import logging
import math
import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from ottla.simulation.harness.outcome import Simulate
from ottla.simulation.harness.shrinking import shrunk, timeline

__all__ = ["run_many", "run_one", "undisturbed"]

_COLLECTED_EVERY: Final = 10


@contextmanager
def undisturbed() -> Iterator[None]:
    """What the product logs is for the simulation only, and garbage is collected between seeds."""
    _prepare()
    try:
        yield
    finally:
        gc.enable()
        logging.getLogger("ottla").propagate = True


def _prepare() -> None:
    logger = logging.getLogger("ottla")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    gc.disable()


def run_one(simulate: Simulate, seed: int, only: Collection[int] | None) -> int:
    """Print what happens and, last, a hash of it. 1 if the seed fails, else 0."""
    outcome = simulate(seed, only=only)
    print(*outcome.trace, sep="\n")
    if outcome.cause is not None:
        traceback.print_exception(outcome.cause)
    if outcome.finding:
        print(f"FAILED: {outcome.finding}")
    print(outcome.digest)
    return 1 if outcome.finding else 0


def run_many(simulate: Simulate, seeds: range, *, go_on: bool, jobs: int) -> int:
    """Run seeds in so many processes until one fails, and shrink that one. `go_on`: run all. 1 if one fails, else 0."""
    began = time.perf_counter()
    counts: Counter[str] = Counter()
    lived = failed = 0
    with _short_outcomes(simulate, seeds, jobs) as outcomes:
        for outcome in outcomes:
            lived += 1
            for what, count in outcome.counts.items():
                counts[what] += count  # type: ignore[assignment]
            if not outcome.finding:
                continue
            failed += 1
            print(f"seed {outcome.seed}: {outcome.finding.splitlines()[0][:300]}", flush=True)
            if not go_on:
                break
    if failed and not go_on:
        _explain(simulate, outcome.seed, outcome.digest)
    parts = [f"{lived} seeds from {seeds.start} on in {time.perf_counter() - began:.0f} s, {failed} of them failed"]
    print("; ".join([*parts, *(f"{count:.0f} {what}" for what, count in sorted(counts.items()))]))
    return 1 if failed else 0


class _ShortOutcome(NamedTuple):
    """What one process tells another of a seed: little, as any process can run the seed again."""

    seed: int
    finding: str
    digest: str
    counts: dict[str, float]


@contextmanager
def _short_outcomes(simulate: Simulate, seeds: range, jobs: int) -> Iterator[Iterator[_ShortOutcome]]:
    """What comes of each seed, in order. Enough seeds are shared out to processes, which end with the block."""
    one = partial(_short_outcome, simulate)
    processes = min(jobs, math.ceil(len(seeds) / _COLLECTED_EVERY))
    if processes <= 1:
        yield map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, _prepare) as pool:
        yield pool.imap(one, seeds, _COLLECTED_EVERY)


def _short_outcome(simulate: Simulate, seed: int) -> _ShortOutcome:
    outcome = simulate(seed)
    if not seed % _COLLECTED_EVERY:
        gc.collect()
    return _ShortOutcome(seed, outcome.finding, outcome.digest, dict(outcome.counts))


def _explain(simulate: Simulate, seed: int, digest: str) -> None:
    """Print the fewest parts that the seed needs to fail, and what happens then."""
    outcome = simulate(seed)
    if outcome.digest != digest:
        print("this depends on more than the seed: the second time it went another way")
    if not outcome.finding:
        return
    least = shrunk(outcome, lambda only: simulate(seed, only=only))
    print(*timeline(least), sep="\n")
    print(f"\nfails with {len(least.parts)} of {len(outcome.parts)} parts: {least.finding}")
    print(*least.parts.values(), sep="\n")
    print(f"to see it: --seed {least.seed} --only {','.join(map(str, sorted(least.parts))) or 'none'}")
