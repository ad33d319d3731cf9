"""Run many seeds, or look at one."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from simulation.storage.errors import SimulationError
from simulation.storage.simulation import Simulation


def main() -> int:
    """The exit code is 0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m simulation.storage", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="one alone: print what happens, and its hash")
    parser.add_argument("--go-on", action="store_true", help="after a failure too; print every finding's first line")
    arguments = parser.parse_args()
    logging.getLogger("ottla").propagate = False
    if arguments.seed is not None:
        return _show(arguments.seed)
    started = time.perf_counter()
    findings: Counter[str] = Counter()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            Simulation(seed).run()
        except SimulationError as error:
            if not arguments.go_on:
                print(error, file=sys.stderr)
                return 1
            findings[error.finding.splitlines()[0]] += 1
            print(f"seed {seed}: {error.finding.splitlines()[0][:300]}", flush=True)
    took_s = time.perf_counter() - started
    print(f"{arguments.seeds} seeds from {arguments.first} on in {took_s:.0f} s, {findings.total()} of them failed")
    return 1 if findings else 0


def _show(seed: int) -> int:
    simulation = Simulation(seed)
    try:
        simulation.run()
    except SimulationError as error:
        print(*simulation.trace, sep="\n")
        print(f"FAILED: {error.finding}")
        print(simulation.digest)
        return 1
    print(*simulation.trace, sep="\n")
    print(simulation.digest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
