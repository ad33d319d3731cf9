"""`python -m compat_tests.differential`: histories on Ottla and on Apache Kafka, and where their answers differ."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from compat_tests import java
from compat_tests.differential.areas import AREAS
from compat_tests.differential.compare import Key
from compat_tests.differential.declared import Declared
from compat_tests.differential.history import History
from compat_tests.differential.open import load_open, save_open
from compat_tests.differential.playing.node_pair import NodePair
from compat_tests.differential.playing.pair import Pair
from compat_tests.differential.playing.play import CAREFUL
from compat_tests.differential.playing.session import run_seeds, run_spread
from compat_tests.differential.run import Run
from compat_tests.differential.spread import AREAS as SPREAD

#: Of each area: so many histories need every declaration.
_ENOUGH_SEEDS: Final = 1_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="histories of each area")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--area", action="append", choices=AREAS, help="again for more; all without it")
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 3), help="of each broker")
    parser.add_argument("--jobs", type=int, default=6, help="histories at a time")
    parser.add_argument("--restart-every", type=int, default=200, help="histories; 0: never")
    parser.add_argument("--keep", type=Path, help="a folder for the histories that show differences")
    parser.add_argument("--replay", type=Path, help="a history that was kept: play it and say what differs")
    parser.add_argument("--no-shrink", action="store_true", help="keep histories as they were found")
    parser.add_argument("--all", action="store_true", help="find those of open_differences.json, too")
    parser.add_argument("--write-open", action="store_true", help="write that file anew, from what is found")
    arguments = parser.parse_args()
    if reason := java.missing():
        parser.exit(2, f"{reason}\n")
    declared = Declared.load()
    if arguments.nodes > 1:
        return _on_nodes(arguments, declared)
    with Pair() as pair:
        if arguments.replay is not None:
            return _replay(pair, declared, History.load(arguments.replay))
        known: frozenset[Key] = frozenset() if arguments.all or arguments.write_open else load_open()
        shrinks = not (arguments.no_shrink or arguments.write_open)
        run = Run(pair, declared, known=known, shrinks=shrinks, folder=arguments.keep)
        started = time.monotonic()
        areas = arguments.area or list(AREAS)
        seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        run_seeds(run, areas, seeds, workers=arguments.jobs, restart_every=arguments.restart_every)
        took = time.monotonic() - started
    print(f"{run.played} histories in {took:.0f} s, {run.played / took:.1f} a second; {len(run.findings)} differences")
    for key, times in run.unconfirmed.items():
        print(f"not again, when waited for longer ({times} times): {' '.join(key)}")
    if arguments.write_open:
        save_open(run.findings)
        return 0
    is_full = not arguments.area and arguments.seeds >= _ENOUGH_SEEDS
    for unneeded in declared.unneeded if is_full else ():
        print(f"nothing needs this declaration any more: {unneeded}")
    return 1 if run.findings or (is_full and declared.unneeded) else 0


def _on_nodes(arguments: argparse.Namespace, declared: Declared) -> int:
    with NodePair() as pair:
        if arguments.replay is not None:
            return _replay(pair, declared, History.load(arguments.replay))
        run = Run(pair, declared, known=load_open(), shrinks=not arguments.no_shrink, folder=arguments.keep)
        started = time.monotonic()
        seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        run_spread(run, arguments.area or list(SPREAD), seeds)
        print(f"{run.played} histories in {time.monotonic() - started:.0f} s; {len(run.findings)} differences")
        for key, times in run.unconfirmed.items():
            print(f"not again, when waited for longer ({times} times): {' '.join(key)}")
    return 1 if run.findings else 0


def _replay(pair: Pair, declared: Declared, history: History) -> int:
    print(history)
    found = pair.differences(history, pace=CAREFUL)
    for difference in found:
        print(f"{difference}{' (declared)' if declared.covers(difference) else ''}")
    return 1 if declared.undeclared(found) else 0


if __name__ == "__main__":
    sys.exit(main())
