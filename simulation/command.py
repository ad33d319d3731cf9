"""`ottla simulate`: run what a seed decides, many seeds or one to look at.

Exit codes: 0 no seed failed, 1 one did. A seed of one version is the same run everywhere.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from ottla.simulation.cluster.faults.faults import FAULTS
from ottla.simulation.harness.planted import tell_seeds_until_found
from ottla.simulation.harness.seeds import run_many, run_one, undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.simulation.harness.outcome import Outcome, Simulate
    from ottla.simulation.harness.planted import PlantedFault

_SIMULATIONS: Final = ("cluster", "storage", "coordinators")
_MOST_SEEDS: Final = {"cluster": 200, "storage": 400, "coordinators": 700}
"""How many seeds a planted fault may take."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=_SIMULATIONS,
        default="cluster",
        help="whole clusters, the storage engine of a node, or the coordinators of groups (default: cluster)",
    )
    parser.add_argument("--seeds", type=int, default=100, metavar="COUNT", help="how many seeds to run (default: 100)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="run this seed alone: print what happens and, last, a hash of it")
    parser.add_argument(
        "--only",
        type=_numbers,
        metavar="NUMBERS",
        help="with --seed: only the faults of a cluster, or the operations, with these numbers, or none",
    )
    parser.add_argument("--go-on", action="store_true", help="go on after a seed that fails; print one line for each")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="COUNT",
        help="how many processes run seeds at the same time (default: one for each core)",
    )
    parser.add_argument(
        "--planted",
        nargs="?",
        const="",
        metavar="TEXT",
        help="spoil the product by one fault after the other, those with this in their names, and print how many seeds "
        "each takes until it is found",
    )
    cluster = parser.add_argument_group("clusters")
    cluster.add_argument(
        "--nodes",
        type=int,
        default=3,
        choices=range(1, 31),
        metavar="COUNT",
        help="how many nodes, up to 30 (default: 3)",
    )
    cluster.add_argument(
        "--faults",
        type=_kinds,
        default=FAULTS,
        metavar="KINDS",
        help=f"the kinds of faults, separated by commas, or none (default: {','.join(FAULTS)})",
    )
    cluster.add_argument(
        "--seconds", type=float, default=10.0, help="for how long faults come, in simulated time (default: 10)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit code. Clusters need greenlet, which is installed with `ottla[simulation]`."""
    what = arguments.what
    if what == "cluster" and find_spec("greenlet") is None:
        print("ottla simulate: greenlet is missing: pip install 'ottla[simulation]'", file=sys.stderr)
        return 1
    simulate = _simulate(arguments)
    with undisturbed():
        if arguments.planted is not None:
            faults: Sequence[PlantedFault] = import_module(f"ottla.simulation.{what}.planted_faults").FAULTS
            chosen = [fault for fault in faults if arguments.planted in fault.name]
            return tell_seeds_until_found(simulate, chosen, most=_MOST_SEEDS[what])
        if arguments.seed is not None:
            return run_one(simulate, arguments.seed, arguments.only)
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        return run_many(simulate, seeds, go_on=arguments.go_on, jobs=arguments.jobs)


def _simulate(arguments: argparse.Namespace) -> Simulate:
    simulate: Callable[..., Outcome] = import_module(f"ottla.simulation.{arguments.what}.simulation").simulate
    if arguments.what == "cluster":
        return partial(simulate, nodes=arguments.nodes, faults=arguments.faults, seconds=arguments.seconds)
    return simulate


def _kinds(text: str) -> list[str]:
    kinds = [kind for kind in text.split(",") if kind not in ("", "none")]
    if unknown := [kind for kind in kinds if kind not in FAULTS]:
        raise argparse.ArgumentTypeError(
            f"there are no faults called {', '.join(unknown)}: there are {', '.join(FAULTS)}"
        )
    return kinds


def _numbers(text: str) -> set[int]:
    return {int(number) for number in text.split(",") if number not in ("", "none")}
