"""`python -m benchmarks`: every workload against Ottla and Apache Kafka in turn, and the tables of the medians.

    python -m benchmarks [--pairs 3] [--quick] [--only NAME …] [--broker ottla|kafka|both] [--json FILE] [--no-profile]
    python -m benchmarks --page

Each run starts a fresh broker on an empty folder; the brokers alternate, so that a noisy moment meets both. One more
run of Ottla, whose figures are not counted, finds the longest hold of its event loop and where its time goes. A
workload's results replace its earlier ones in the file as soon as it is done, so that nothing is lost by an interrupt;
a workload that fails is named at the end. The page and the pictures show the whole file; `--page` does only that.
"""

from __future__ import annotations

import argparse
import datetime
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from benchmarks import librdkafka, rdkafka_performance, requests
from benchmarks.measuring import profile
from benchmarks.measuring.brokers import BROKERS, fresh
from benchmarks.measuring.c_program import MissingToolError
from benchmarks.reporting import charts, report, results
from benchmarks.reporting.figures import shown
from benchmarks.workloads import QUICK, WORKLOADS, Figures

RESULTS = Path("benchmarks/results/throughput.json")
ASIDE = Path(".cache/benchmarks.json")


def measure_pairs(name: str, kinds: tuple[str, ...], pairs: int) -> Iterator[dict[str, Figures]]:
    """The brokers in turn, the other one first in every second pair."""
    for pair in range(pairs):
        figures: dict[str, Figures] = {}
        for kind in kinds if pair % 2 == 0 else reversed(kinds):
            began = time.monotonic()
            with fresh(kind) as broker:
                figures[kind] = WORKLOADS[name](broker)
            told = ", ".join(f"{figure} {shown(value)}" for figure, value in figures[kind].items())
            print(f"  {pair + 1}/{pairs} {kind}, {time.monotonic() - began:.0f} s: {told}", flush=True)
        yield figures


def run_workload(name: str, kinds: tuple[str, ...], pairs: int, path: Path, *, look: bool) -> None:
    """Measure a workload and keep what was measured; then look at it and keep that.

    A workload that fails after some pairs keeps those; an interrupt keeps what there was before. Without any pair the
    figures stay, and it is only looked at.
    """
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    result = results.Result(0, {kind: [] for kind in kinds}, date=today, machine=results.machine())
    if not pairs:
        result = results.load(path).get(name, result)
    try:
        for figures in measure_pairs(name, kinds, pairs):
            result.pairs += 1
            for kind in kinds:
                result.runs[kind].append(figures[kind])
    except Exception:
        if result.pairs:
            results.merge({name: result}, path)
        raise
    results.merge({name: result}, path)
    if look and "ottla" in kinds:
        began = time.monotonic()
        seen = profile.look_at(name, WORKLOADS[name])
        profile.keep(name, seen, path.parent / "profiles")
        result.hold = seen.hold
        results.merge({name: result}, path)
        print(f"  looked at, {time.monotonic() - began:.0f} s: {seen.hold}", flush=True)


def run_all(names: tuple[str, ...], kinds: tuple[str, ...], pairs: int, path: Path, *, look: bool) -> list[str]:
    """Run one workload after the other; returns those that failed. An interrupt ends it with what is done so far."""
    failed: list[str] = []
    start = time.monotonic()
    for number, name in enumerate(names):
        print(f"[{number + 1}/{len(names)}, {(time.monotonic() - start) / 60:.1f} min] {name}", flush=True)
        try:
            run_workload(name, kinds, pairs, path, look=look)
        except KeyboardInterrupt:
            print(f"interrupted in {name}", file=sys.stderr)
            return [*failed, *names[number:]]
        except MissingToolError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever makes one workload fail, the others go on
            traceback.print_exc()
            if isinstance(error, subprocess.CalledProcessError):
                print(error.stderr, file=sys.stderr)
            failed.append(name)
    return failed


def available(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those that can be run: only some packages bring librdkafka's own generator."""
    chosen = [name for name in names if name.startswith("rdkafka_performance")]
    if chosen:
        try:
            rdkafka_performance.build()
        except MissingToolError as error:
            print(f"without {', '.join(chosen)}: {error}", file=sys.stderr)
            return tuple(name for name in names if name not in chosen)
    return names


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--pairs",
        type=int,
        default=3,
        help="runs of each workload against each broker (0: keep the figures, only look for holds)",
    )
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, metavar="NAME", help="workloads by name")
    parser.add_argument("--broker", choices=(*BROKERS, "both"), default="both", help="one: its figures are kept aside")
    parser.add_argument(
        "--json", type=Path, help=f"where the figures go (default: {RESULTS}, or {ASIDE} for one broker)"
    )
    parser.add_argument("--no-profile", action="store_true", help="leave out the run for holds and profile")
    parser.add_argument("--page", action="store_true", help="measure nothing, only write the page and the pictures")
    return parser.parse_args()


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background, too
        signal.signal(number, signal.default_int_handler)
    asked = arguments()
    kinds = tuple(BROKERS) if asked.broker == "both" else (asked.broker,)
    names = tuple(asked.only or (QUICK if asked.quick else WORKLOADS))
    path: Path = asked.json or (RESULTS if len(kinds) == len(BROKERS) else ASIDE)
    failed: list[str] = []
    if not asked.page:
        names = available(names)
        try:
            librdkafka.build()
            requests.build()
            failed = run_all(names, kinds, asked.pairs, path, look=not asked.no_profile)
        except MissingToolError as error:
            print(error, file=sys.stderr)
            return 2
    kept = results.load(path)
    if path == RESULTS:
        report.write_pages(kept)
        charts.draw(kept)
    print(report.every_table({name: kept[name] for name in names if name in kept}))
    for name in failed:
        print(f"failed or not run: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
