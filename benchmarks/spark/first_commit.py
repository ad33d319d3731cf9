"""`python -m benchmarks.spark.first_commit`: how long `ottla table sync` takes to its first commit, and to its last.

    python -m benchmarks.spark.first_commit [--tables 3] [--rounds 3] [--format parquet] [--java=-XX:…]

Each round writes as many topics of 1,000 JSON records as there are tables, and runs one job that keeps them all,
without a schema, in a process of its own with a JVM of its own, as a user would start it. CPU time is that of the job,
its JVM and Spark's Python processes, without the broker's: on a machine that others use too, look at that.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.measuring.process_cost import tree_cpu_s
from benchmarks.workloads import create_topic
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.confluent import Confluent
from compat_tests.spark import session
from compat_tests.spark.tables.jobs import send

RECORDS: Final = 1_000
PARTITIONS: Final = 2


class Spent(NamedTuple):
    """What a job has used since its command was given: seconds, and seconds of CPU."""

    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.wall_s:.1f} s (CPU {self.cpu_s:.1f} s)"


class Commits(NamedTuple):
    """What was used until the first table's commit, and until the last one's."""

    first: Spent
    last: Spent

    def __str__(self) -> str:
        return f"first commit {self.first}, last {self.last}"


def measure(broker: OttlaBroker, folder: Path, tables: int, kind: str, java: str, number: int) -> Commits:
    """One run, into new tables."""
    names = [f"orders-{number}-{table}" for table in range(tables)]
    lines = [f'bootstrap = "{broker.bootstrap}"', f'checkpoint = "{folder}/checkpoints"']
    lines += ["[spark]", f'"spark.master" = "local[2]"\n"spark.jars" = "{session.jars()}"']
    lines += [f'"spark.driver.extraJavaOptions" = "{java}"'] if java else []
    client = Confluent(broker.bootstrap)
    for name in names:
        create_topic(broker, name, PARTITIONS)
        send(client, name, [{"id": row, "customer": f"c{row % 7}", "total": row / 4} for row in range(RECORDS)])
        lines += ["[[tables]]", f'topic = "{name}"', f'path = "{folder}/{name}"', f'format = "{kind}"']
    config = folder / f"job-{number}.toml"
    config.write_text("\n".join(lines))
    began = time.perf_counter()
    job = subprocess.Popen(
        [str(Path(sys.executable).parent / "ottla"), "table", "sync", "--json", str(config)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert job.stdout is not None
    said: list[Spent] = []
    rows = 0
    for line in job.stdout:
        said.append(Spent(time.perf_counter() - began, tree_cpu_s(job.pid)))
        rows += json.loads(line)["rows"]
    code = job.wait()
    if code != 0 or rows != tables * RECORDS:
        raise ValueError(f"the job ended with exit code {code} and {rows} rows")
    return Commits(said[0], said[-1])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark.first_commit", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--tables", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", choices=("parquet", "delta"), default="parquet")
    parser.add_argument("--java", default="", metavar="OPTIONS", help="of Spark's JVM")
    arguments = parser.parse_args()
    if reason := session.missing():
        print(reason, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name, OttlaBroker(Path(name) / "broker") as broker:
        found = []
        for number in range(arguments.rounds):
            found.append(measure(broker, Path(name), arguments.tables, arguments.format, arguments.java, number))
            print(found[-1], flush=True)
    first, last = (
        Spent(*(statistics.median(values) for values in zip(*spent, strict=True))) for spent in zip(*found, strict=True)
    )
    print(f"medians: {Commits(first, last)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
