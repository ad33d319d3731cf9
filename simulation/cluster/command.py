"""`ottla simulate`: run whole clusters under faults that a seed decides, many seeds or one to look at.

Exit codes: 0 no seed failed, 1 one did. A seed of one version is the same run everywhere.
"""

from __future__ import annotations

import argparse
import gc
import logging
import math
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.simulation.cluster.faults.faults import FAULTS
from ottla.simulation.cluster.shrinking import shrunk, timeline

if TYPE_CHECKING:
    from ottla.simulation.cluster.simulation import Outcome

_COLLECTED_EVERY: Final = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--nodes", type=int, default=3, choices=range(1, 6), help="how many nodes (default: 3)")
    parser.add_argument("--seeds", type=int, default=100, metavar="COUNT", help="how many seeds to run (default: 100)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="run this seed alone: print what happens and, last, a hash of it")
    parser.add_argument(
        "--faults",
        type=_kinds,
        default=FAULTS,
        metavar="KINDS",
        help=f"the kinds of faults, separated by commas, or none (default: {','.join(FAULTS)})",
    )
    parser.add_argument(
        "--only", type=_numbers, metavar="NUMBERS", help="with --seed: only the faults with these numbers, or none"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="for how long faults come, in simulated time (default: 10)"
    )
    parser.add_argument("--go-on", action="store_true", help="go on after a seed that fails; print one line for each")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="COUNT",
        help="how many processes run seeds at the same time (default: one for each core)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit code. Needs greenlet, which is installed with `ottla[simulation]`."""
    if find_spec("greenlet") is None:
        print("ottla simulate: greenlet is missing: pip install 'ottla[simulation]'", file=sys.stderr)
        return 1
    from ottla.simulation.cluster.simulation import simulate

    live = partial(simulate, nodes=arguments.nodes, faults=arguments.faults, seconds=arguments.seconds)
    _prepare()
    try:
        if arguments.seed is not None:
            return _one(live, arguments.seed, arguments.only)
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        return _many(live, seeds, go_on=arguments.go_on, jobs=arguments.jobs)
    finally:
        gc.enable()
        logging.getLogger("ottla").propagate = True


def _kinds(text: str) -> list[str]:
    kinds = [kind for kind in text.split(",") if kind not in ("", "none")]
    if unknown := [kind for kind in kinds if kind not in FAULTS]:
        raise argparse.ArgumentTypeError(
            f"there are no faults called {', '.join(unknown)}: there are {', '.join(FAULTS)}"
        )
    return kinds


def _numbers(text: str) -> set[int]:
    return {int(number) for number in text.split(",") if number not in ("", "none")}


def _one(live: Callable[..., Outcome], seed: int, only: Collection[int] | None) -> int:
    outcome = live(seed, only=only)
    print(*outcome.trace, sep="\n")
    if outcome.cause is not None:
        traceback.print_exception(outcome.cause)
    if outcome.finding:
        print(f"FAILED: {outcome.finding}")
    print(outcome.digest)
    return 1 if outcome.finding else 0


def _many(live: Callable[..., Outcome], seeds: range, *, go_on: bool, jobs: int) -> int:
    started = time.perf_counter()
    simulated_s = 0.0
    lived = failed = acknowledged = 0
    with _short_outcomes(live, seeds, jobs) as outcomes:
        for outcome in outcomes:
            lived += 1
            simulated_s += outcome.simulated_s
            acknowledged += outcome.acknowledged
            if not outcome.finding:
                continue
            failed += 1
            print(f"seed {outcome.seed}: {outcome.finding[:300]}", flush=True)
            if not go_on:
                break
    if failed and not go_on:
        _explain(live(outcome.seed), partial(live, outcome.seed))
    took_s = time.perf_counter() - started
    print(
        f"{lived} seeds from {seeds.start} on in {took_s:.0f} s, {failed} of them failed; "
        f"{simulated_s:.0f} simulated seconds, {simulated_s / took_s:.0f} a second; {acknowledged} records acknowledged"
    )
    return 1 if failed else 0


class _ShortOutcome(NamedTuple):
    """What one process tells another of a seed: little, as any process can run the seed again."""

    seed: int
    finding: str
    simulated_s: float
    acknowledged: int


@contextmanager
def _short_outcomes(live: Callable[..., Outcome], seeds: range, jobs: int) -> Iterator[Iterator[_ShortOutcome]]:
    """What comes of each seed, in order. Enough seeds are shared out to processes, which end with the block."""
    one = partial(_short_outcome, live)
    processes = min(jobs, math.ceil(len(seeds) / _COLLECTED_EVERY))
    if processes <= 1:
        yield map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, _prepare) as pool:
        yield pool.imap(one, seeds, _COLLECTED_EVERY)


def _short_outcome(live: Callable[..., Outcome], seed: int) -> _ShortOutcome:
    outcome = live(seed)
    if not seed % _COLLECTED_EVERY:
        gc.collect()
    return _ShortOutcome(seed, outcome.finding, outcome.simulated_s, outcome.acknowledged)


def _prepare() -> None:
    """The simulation looks at what nodes log. Garbage is collected between seeds, each of which takes half a second."""
    logging.getLogger("ottla").propagate = False
    gc.disable()


def _explain(outcome: Outcome, again: Callable[..., Outcome]) -> None:
    """Print the fewest faults that it needs to fail, and what happens then."""
    least = shrunk(outcome, lambda only: again(only=only))
    print(*timeline(least), sep="\n")
    print(f"\nfails with {len(least.faults)} of {len(outcome.faults)} faults: {least.finding}")
    print(*least.faults.values(), sep="\n")
    print(f"to see it: --seed {least.seed} --only {','.join(map(str, sorted(least.faults))) or 'none'}")
