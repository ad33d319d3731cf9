"""`python -m benchmarks.spark.writes`: rows a second that Spark writes by its own connector, and without a jar.

    python -m benchmarks.spark.writes [--rounds 3] [--quick] [--divide N] [--busy]

Rows of 100 B and of 1 KB, with keys, out of memory into a topic of four partitions, on two local threads: by Spark's
Kafka connector into Apache Kafka and into Ottla, and by `format("ottla")` into both, without and with transactions.
Nothing is compressed, and each waits for all in-sync replicas. Each has a turn in every round, and every round has
another order. The medians of rows a second and of CPU time a row go into benchmarks/results/spark_writes.json and into
docs/performance.md. With `--busy`, for a machine that others use too, only CPU time is shown.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark import runs as spark_runs
from benchmarks.spark.reads import PARTITIONS, THREADS, Workload, brokers
from benchmarks.spark.runs import Found, Layout, Ratios, Run, timed
from benchmarks.workloads import create_topic
from compat_tests.brokers.process import BrokerProcess
from compat_tests.spark import session
from ottla.pipeline.source import OttlaDataSource

WORKLOADS: Final = (Workload("100 B", "small", 2_000_000, 100), Workload("1 KB", "large", 400_000, 1024))
WARM_UP: Final = Workload("warm-up", "warm-up", 100_000, 100)
QUICK_DIVISOR: Final = 5
KEYS: Final = 10_000


class Sink(NamedTuple):
    """A way to write: Spark's format, into which broker, and whether in transactions."""

    title: str
    format: str
    broker: str
    is_transactional: bool = False


SINKS: Final = {
    "kafka": Sink("connector, Apache Kafka", "kafka", "kafka"),
    "connector": Sink("connector, Ottla", "kafka", "ottla"),
    "ottla-kafka": Sink('`format("ottla")`, Apache Kafka', "ottla", "kafka"),
    "ottla": Sink('`format("ottla")`, Ottla', "ottla", "ottla"),
    "transactional": Sink("the same in transactions", "ottla", "ottla", is_transactional=True),
}
_RATIOS: Final[Ratios] = {
    "connector: Ottla / Apache Kafka": ("connector", "kafka"),
    "`ottla` / connector, on Ottla": ("ottla", "connector"),
    "`ottla` / connector, on Apache Kafka": ("ottla-kafka", "kafka"),
    "`ottla` on Ottla / connector on Apache Kafka": ("ottla", "kafka"),
    "in transactions / connector, on Ottla": ("transactional", "connector"),
}
LAYOUT: Final = Layout({name: sink.title for name, sink in SINKS.items()}, _RATIOS)
_numbers = itertools.count()


def rows_of(spark: SparkSession, workload: Workload) -> DataFrame:
    """The workload's rows, in memory: only the writing is measured."""
    rows = spark.range(0, workload.records, numPartitions=THREADS).selectExpr(
        f"concat('key-', id % {KEYS}) AS key",
        f"binary(rpad(string(id), {workload.value_bytes}, 'ottla spark kafka ')) AS value",
    )
    kept = rows.persist()
    kept.count()
    return kept


def written(sink: Sink, rows: DataFrame, workload: Workload, running: dict[str, BrokerProcess]) -> Run:
    """Write once, into a topic of its own."""
    broker = running[sink.broker]
    topic = f"{workload.topic}-{next(_numbers)}"
    create_topic(broker, topic, PARTITIONS)
    writer = rows.write.format(sink.format).mode("append")
    writer = writer.options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": topic})
    if sink.is_transactional:
        writer = writer.option("transactional", "true")
    idle = [other.pid for name, other in running.items() if name != sink.broker]
    found = timed(workload.records, writer.save, idle=idle)
    reader = rows.sparkSession.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    if (held := reader.option("subscribe", topic).load().count()) != workload.records:
        raise ValueError(f"{sink.title} wrote {held} of {workload.records} rows")
    return found


def measure(
    spark: SparkSession, running: dict[str, BrokerProcess], workloads: tuple[Workload, ...], rounds: int
) -> Found:
    """The runs of each workload, by sink."""
    found: Found = {}
    for workload in workloads:
        rows = rows_of(spark, workload)
        runs = found[workload.name] = {name: [] for name in SINKS}
        for turn in range(rounds):
            for name in SINKS if turn % 2 == 0 else reversed(SINKS):
                run = written(SINKS[name], rows, workload, running)
                runs[name].append(run)
                print(f"{workload.name} | {name} | {run.rows_per_s:,.0f} rows/s, {run.cpu_us:.2f} µs", flush=True)
        rows.unpersist()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark.writes", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each sink")
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows, no page")
    parser.add_argument("--divide", type=int, default=1, metavar="N", help="an N-th of the records")
    parser.add_argument("--busy", action="store_true", help="others use this machine: show only CPU time")
    arguments = parser.parse_args()
    if reason := session.missing():
        print(reason, file=sys.stderr)
        return 2
    divisor = QUICK_DIVISOR if arguments.quick else arguments.divide
    workloads = tuple(workload.divided(divisor) for workload in WORKLOADS)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, brokers(Path(folder)) as running:
        spark = session.start(threads=THREADS)
        try:
            spark.dataSource.register(OttlaDataSource)
            measure(spark, running, (WARM_UP,), 1)
            found = measure(spark, running, workloads, arguments.rounds)
            version = spark.version
        finally:
            spark.stop()
    print(spark_runs.table(found, LAYOUT, busy=arguments.busy))
    if not arguments.quick:
        about = (
            f"`python -m benchmarks.spark.writes`: Spark {version} on local[{THREADS}], {PARTITIONS} partitions, "
            f"{' and '.join(map(str, workloads))} rows, medians of {arguments.rounds} alternating runs"
        )
        spark_runs.keep("spark writes", about, version, found, LAYOUT, busy=arguments.busy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
