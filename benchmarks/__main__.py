"""`python -m benchmarks`: every workload against Ottla and Apache Kafka in turn, and the table of the medians.

    python -m benchmarks [--pairs 3] [--quick] [--only NAME …] [--broker ottla|kafka|both] [--json FILE]

Each run starts a fresh broker on an empty folder; the brokers alternate, so that a noisy moment meets both.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import librdkafka, report
from benchmarks.workloads import QUICK, WORKLOADS, Figures, Workload
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.ottla_broker import OttlaBroker
from compat_tests.process import BrokerProcess

RESULTS = Path("benchmarks/results/throughput.json")


def measure(kind: str, workload: Workload) -> Figures:
    """One run of one workload against a fresh broker."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        broker: BrokerProcess = (
            OttlaBroker(Path(folder)) if kind == "ottla" else ApacheKafka(Path(folder), heap_mb=1024)
        )
        with broker:
            return workload(broker)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3, help="runs of each workload against each broker")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, metavar="NAME", help="workloads by name")
    parser.add_argument("--broker", choices=("ottla", "kafka", "both"), default="both")
    parser.add_argument("--json", type=Path, default=RESULTS, help=f"where the figures go (default: {RESULTS})")
    arguments = parser.parse_args()
    try:
        librdkafka.build()
    except librdkafka.MissingToolError as error:
        print(error, file=sys.stderr)
        return 2
    names = arguments.only or (QUICK if arguments.quick else tuple(WORKLOADS))
    kinds = ("ottla", "kafka") if arguments.broker == "both" else (arguments.broker,)
    results: report.Results = {}
    for name in names:
        results[name] = {kind: [] for kind in kinds}
        for pair in range(arguments.pairs):
            for kind in kinds if pair % 2 == 0 else reversed(kinds):
                try:
                    figures = measure(kind, WORKLOADS[name])
                except subprocess.CalledProcessError as error:
                    print(f"{name} against {kind} failed: {error.stderr}", file=sys.stderr)
                    return 1
                results[name][kind].append(figures)
                shown = ", ".join(f"{figure} {value:,.2f}" for figure, value in figures.items())
                print(f"{name} | {kind} | {shown}", flush=True)
    command = "python -m benchmarks " + " ".join(sys.argv[1:])
    if "ottla" in kinds:
        report.write(results, arguments.json, command.strip(), arguments.pairs)
        print(report.table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
