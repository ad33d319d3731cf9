"""Run many seeds, or look at one."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from ottla.simulation.storage.errors import SimulationError
from ottla.simulation.storage.simulation import Simulation

_SHOWN = 200


def main() -> int:
    """The exit code is 0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m ottla.simulation.storage", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="run this seed alone: print what happens and, last, a hash of it")
    parser.add_argument("--go-on", action="store_true", help="go on after a seed that fails; print one line for each")
    arguments = parser.parse_args()
    logging.getLogger("ottla").propagate = False
    if arguments.seed is not None:
        return _show(arguments.seed)
    started = time.perf_counter()
    findings: Counter[str] = Counter()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        finding, trace, digest = _live(seed)
        if not finding:
            continue
        print(f"seed {seed}: {finding.splitlines()[0][:300]}", flush=True)
        if _live(seed)[2] != digest:
            print("this depends on more than the seed: the second time it went another way. The first time:")
            print(*trace[-_SHOWN:], sep="\n", flush=True)
        if not arguments.go_on:
            print(finding, file=sys.stderr)
            return 1
        findings[finding.splitlines()[0]] += 1
    took_s = time.perf_counter() - started
    print(f"{arguments.seeds} seeds from {arguments.first} on in {took_s:.0f} s, {findings.total()} of them failed")
    return 1 if findings else 0


def _live(seed: int) -> tuple[str, list[str], str]:
    """What is wrong, if anything; what has happened, and its hash."""
    simulation = Simulation(seed)
    finding = ""
    try:
        simulation.run()
    except SimulationError as error:
        finding = error.finding
    return finding, simulation.trace, simulation.digest


def _show(seed: int) -> int:
    finding, trace, digest = _live(seed)
    print(*trace, sep="\n")
    if finding:
        print(f"FAILED: {finding}")
    print(digest)
    return 1 if finding else 0


if __name__ == "__main__":
    sys.exit(main())
