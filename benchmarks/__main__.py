"""`python -m benchmarks`: every workload against Ottla and Apache Kafka in turn, and the table of the medians.

    python -m benchmarks [--pairs 3] [--quick] [--only NAME …] [--broker ottla|kafka|both] [--json FILE] [--no-profile]

Each run starts a fresh broker on an empty folder; the brokers alternate, so that a noisy moment meets both. Two more
runs of Ottla, whose figures are not counted, find the longest hold of its event loop and where its time goes. The
results of the workloads that were run replace theirs in the file; the table and the pictures show the whole file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import charts, librdkafka, profile, report, requests
from benchmarks.c_program import MissingToolError
from benchmarks.workloads import QUICK, WORKLOADS, Figures, Workload
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.ottla_broker import OttlaBroker
from compat_tests.process import BrokerProcess

RESULTS = Path("benchmarks/results/throughput.json")
_HEAP_MB = 1024

_BROKERS: dict[str, Callable[[Path], BrokerProcess]] = {
    "ottla": OttlaBroker,
    "kafka": lambda folder: ApacheKafka(folder, heap_mb=_HEAP_MB),
}


def measure(kind: str, workload: Workload) -> Figures:
    """One run of one workload against a fresh broker."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, _BROKERS[kind](Path(folder)) as broker:
        return workload(broker)


def measure_pairs(name: str, kinds: tuple[str, ...], pairs: int) -> dict[str, list[Figures]]:
    """The brokers in turn, and the other one first in every second pair."""
    figures: dict[str, list[Figures]] = {kind: [] for kind in kinds}
    for pair in range(pairs):
        for kind in kinds if pair % 2 == 0 else reversed(kinds):
            figures[kind].append(measure(kind, WORKLOADS[name]))
            shown = ", ".join(f"{figure} {value:,.2f}" for figure, value in figures[kind][-1].items())
            print(f"{name} | {kind} | {shown}", flush=True)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3, help="runs of each workload against each broker")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, metavar="NAME", help="workloads by name")
    parser.add_argument("--broker", choices=("ottla", "kafka", "both"), default="both")
    parser.add_argument("--json", type=Path, default=RESULTS, help=f"where the figures go (default: {RESULTS})")
    parser.add_argument("--no-profile", action="store_true", help="leave out the runs for holds and profiles")
    arguments = parser.parse_args()
    names = arguments.only or (QUICK if arguments.quick else tuple(WORKLOADS))
    kinds = ("ottla", "kafka") if arguments.broker == "both" else (arguments.broker,)
    try:
        librdkafka.build()
        requests.build()
        for name in names:
            result = report.Result(arguments.pairs, measure_pairs(name, kinds, arguments.pairs))
            if not arguments.no_profile and "ottla" in kinds:
                result.hold = profile.longest_hold(WORKLOADS[name])
                profile.record(name, WORKLOADS[name], arguments.json.parent / "profiles")
            report.merge({name: result}, arguments.json)
    except MissingToolError as error:
        print(error, file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"{name} failed: {error.stderr}", file=sys.stderr)
        return 1
    results = report.load(arguments.json)
    print(report.table({name: results[name] for name in names}))
    if arguments.json == RESULTS:
        report.write_page(results)
        charts.draw(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
