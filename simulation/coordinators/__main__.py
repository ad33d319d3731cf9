"""Run many seeds, or look at one."""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections import Counter

from ottla.simulation.coordinators.life import live
from ottla.simulation.coordinators.planted import FAULTS, without


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.simulation.coordinators", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no seed after so many seconds")
    parser.add_argument("--trace", action="store_true", help="print all that happens in each seed that fails")
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--without", choices=FAULTS, help="take out one thing that keeps requests apart")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    found: Counter[str] = Counter()
    first: dict[str, str] = {}
    done: Counter[str] = Counter()
    started = time.monotonic()
    lived = 0
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        with without(arguments.without):
            world = live(seed)
        lived += 1
        done += world.done
        for kind, text in world.violations.items():
            found[kind] += 1
            first.setdefault(kind, f"seed {seed}: {text}")
        if world.violations and arguments.trace:
            print("\n".join([f"seed {seed}", *world.trace]))
        if (world.violations and arguments.stop) or time.monotonic() - started > arguments.seconds:
            break
    took = time.monotonic() - started
    print(f"{lived} seeds from {arguments.seed} on in {took:.1f} s; answered: {dict(sorted(done.items()))}")
    for kind, count in found.most_common():
        print(f"{count:6d} seeds: {kind}; first {first[kind]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
