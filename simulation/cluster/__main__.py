"""Run many seeds, or look at one."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter

from simulation.cluster.faults import FAULTS
from simulation.cluster.simulation import simulate

_SHOWN = 120


def main() -> int:
    """The exit code is 0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m simulation.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3, choices=range(1, 6), help="how many nodes (3)")
    parser.add_argument("--seeds", type=int, default=100, help="how many (100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="one alone: print what happens, and its hash")
    parser.add_argument("--faults", default=",".join(FAULTS), help=f"kinds of them, of {','.join(FAULTS)}, or none")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long faults come, in simulated time (10)")
    parser.add_argument("--go-on", action="store_true", help="after a failure too; print every finding's first line")
    arguments = parser.parse_args()
    logging.getLogger("ottla").propagate = False
    kinds = [kind for kind in arguments.faults.split(",") if kind not in ("", "none")]
    if unknown := [kind for kind in kinds if kind not in FAULTS]:
        parser.error(f"there are no faults called {', '.join(unknown)}: there are {', '.join(FAULTS)}")
    if arguments.seed is not None:
        outcome = simulate(arguments.seed, nodes=arguments.nodes, faults=kinds, seconds=arguments.seconds)
        print(*outcome.trace, sep="\n")
        if outcome.cause is not None:
            traceback.print_exception(outcome.cause)
        if outcome.finding:
            print(f"FAILED: {outcome.finding}")
        print(outcome.digest)
        return 1 if outcome.finding else 0
    return _many(arguments, kinds)


def _many(arguments: argparse.Namespace, kinds: list[str]) -> int:
    started = time.perf_counter()
    findings: Counter[str] = Counter()
    simulated_s = 0.0
    acknowledged = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = simulate(seed, nodes=arguments.nodes, faults=kinds, seconds=arguments.seconds)
        simulated_s += outcome.simulated_s
        acknowledged += outcome.acknowledged
        if not outcome.finding:
            continue
        print(f"seed {seed}: {outcome.finding[:300]}", flush=True)
        findings[outcome.finding] += 1
        if not arguments.go_on:
            print(*outcome.trace[-_SHOWN:], sep="\n")
            break
    took_s = time.perf_counter() - started
    lived = seed - arguments.first + 1
    print(
        f"{lived} seeds from {arguments.first} on in {took_s:.0f} s, {findings.total()} of them failed; "
        f"{simulated_s:.0f} simulated seconds, {simulated_s / took_s:.0f} a second; {acknowledged} records acknowledged"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
