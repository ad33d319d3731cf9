"""`python -m benchmarks.spark.reads`: rows a second that Spark reads by its own connector, with no jar, and from files.

    python -m benchmarks.spark.reads [--rounds 3] [--quick] [--divide N] [--busy] [--only NAME …]

Records of 100 B and of 1 KB in four partitions, read by Spark on two local threads into nothing (`noop`) and into
Parquet: by Spark's Kafka connector from Apache Kafka and from Ottla, with its defaults and with the options that
docs/spark.md recommends for scans, by `format("ottla")` and by `format("ottla-segments")`. Each has a turn in every
round, and every round has another order. The medians of rows a second and of CPU time a row go into
benchmarks/results/spark.json and into docs/performance.md. That takes some ten minutes on two cores; `--quick` takes
two, and writes neither. With `--busy`, for a machine that others use too, only CPU time is shown. `--only` measures the
sources that it names, and writes no page. One of them is `memory`: rows that Spark has already show what it takes by
itself; they need much of its memory, so they are not among the others.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark import runs as spark_runs
from benchmarks.spark.runs import Found, Layout, Ratios, Run, timed
from benchmarks.workloads import create_topic
from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import BrokerProcess
from compat_tests.spark import session
from ottla.pipeline.segments import SegmentsDataSource
from ottla.pipeline.source import OttlaDataSource

PARTITIONS: Final = 4
THREADS: Final = 2
SINKS: Final = ("noop", "parquet")
WARM_UP_RECORDS: Final = 200_000
_FLUSH_TIMEOUT_S: Final = 300.0
_HEAP_MB: Final = 1024


class Workload(NamedTuple):
    """Records of one size."""

    name: str
    topic: str
    records: int
    value_bytes: int

    def divided(self, by: int) -> Workload:
        return self._replace(records=self.records // by)

    def __str__(self) -> str:
        return f"{self.records:,} of {self.name}"


WORKLOADS: Final = (Workload("100 B", "small", 5_000_000, 100), Workload("1 KB", "large", 1_000_000, 1024))
WARM_UP: Final = Workload("warm-up", "warm-up", WARM_UP_RECORDS, 100)
QUICK_DIVISOR: Final = 10


class Source(NamedTuple):
    """A way to read: Spark's format, and from which broker, or past it."""

    title: str
    format: str
    broker: str
    options: Mapping[str, str] = MappingProxyType({})


TUNED: Final = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.fetch.max.wait.ms": "20",
    "kafka.receive.buffer.bytes": "1048576",
    "minPartitions": str(4 * THREADS),
}
SOURCES: Final = {
    "kafka": Source("connector, Apache Kafka", "kafka", "kafka"),
    "connector": Source("connector, Ottla", "kafka", "ottla"),
    "kafka-tuned": Source("tuned connector, Apache Kafka", "kafka", "kafka", TUNED),
    "connector-tuned": Source("tuned connector, Ottla", "kafka", "ottla", TUNED),
    "ottla": Source('`format("ottla")`', "ottla", "ottla"),
    "segments": Source('`format("ottla-segments")`', "ottla-segments", "ottla"),
    "memory": Source("no source, Spark's own memory", "memory", "none"),
}
_RATIOS: Final[Ratios] = {
    "connector: Ottla / Apache Kafka": ("connector", "kafka"),
    "tuned connector: Ottla / Apache Kafka": ("connector-tuned", "kafka-tuned"),
    "`ottla` / connector": ("ottla", "connector"),
    "`ottla` / tuned connector": ("ottla", "connector-tuned"),
    "`ottla-segments` / connector": ("segments", "connector"),
    "`ottla-segments` / tuned connector": ("segments", "connector-tuned"),
}


def layout_of(sources: Mapping[str, Source]) -> Layout:
    """Their rows, and the ratios between them."""
    ratios = {title: pair for title, pair in _RATIOS.items() if sources.keys() >= set(pair)}
    return Layout({name: source.title for name, source in sources.items()}, ratios)


class Bench:
    """Both brokers, filled alike, and a session that reads from them."""

    def __init__(self, spark: SparkSession, brokers: dict[str, BrokerProcess], folder: Path) -> None:
        self._spark = spark
        self._brokers = brokers
        self._folder = folder
        spark.dataSource.register(OttlaDataSource)
        spark.dataSource.register(SegmentsDataSource)

    def fill(self, workload: Workload) -> None:
        """Write the workload's records into both brokers."""
        for broker in self._brokers.values():
            create_topic(broker, workload.topic, PARTITIONS)
            fill(broker.bootstrap, workload)

    def read(self, source: Source, workload: Workload) -> DataFrame:
        if source.format == "memory":
            return self._in_memory(workload)
        broker = self._brokers[source.broker]
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": workload.topic, **source.options}
        if source.format == "ottla-segments":
            options["path"] = str(broker.folder / "data")
        return self._spark.read.format(source.format).options(**options).load()

    def _in_memory(self, workload: Workload) -> DataFrame:
        """The workload's rows, made once; Spark finds those of the same plan again."""
        columns = (
            "CAST(NULL AS BINARY) AS key",
            f"binary(rpad(string(id), {workload.value_bytes}, 'ottla spark kafka ')) AS value",
            f"'{workload.topic}' AS topic",
            f"int(id % {PARTITIONS}) AS partition",
            f"id DIV {PARTITIONS} AS offset",
            "timestamp_millis(1700000000000 + id) AS timestamp",
            "0 AS timestampType",
        )
        return self._spark.range(0, workload.records, numPartitions=PARTITIONS).selectExpr(*columns).persist()

    def check(self, source: Source, workload: Workload) -> None:
        """Read once, and see that nothing is missing."""
        found = self.read(source, workload).count()
        if found != workload.records:
            raise ValueError(f"{source.title} read {found} of {workload.records} records")

    def run(self, source: Source, workload: Workload, sink: str) -> Run:
        """Read once, into a sink."""
        writer = self.read(source, workload).write.mode("overwrite")
        target = self._folder / "out"

        def work() -> None:
            if sink == "noop":
                writer.format("noop").save()
            else:
                writer.parquet(str(target))

        idle = [broker.pid for name, broker in self._brokers.items() if name != source.broker]
        found = timed(workload.records, work, idle=idle)
        shutil.rmtree(target, ignore_errors=True)
        return found


def fill(bootstrap: str, workload: Workload) -> None:
    """Produce the workload's records as a client with librdkafka's defaults does."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    value = bytes(number * 7 % 251 for number in range(workload.value_bytes))
    for number in range(workload.records):
        while True:
            try:
                producer.produce(workload.topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(_FLUSH_TIMEOUT_S):
        raise TimeoutError(f"{left} records were not acknowledged")


def measure(bench: Bench, sources: Mapping[str, Source], workloads: tuple[Workload, ...], rounds: int) -> Found:
    """The runs of each workload and sink, by source."""
    found: Found = {}
    for workload in workloads:
        bench.fill(workload)
        for name in sources:
            bench.check(sources[name], workload)
        for sink in SINKS:
            runs = found[f"{workload.name} into {sink}"] = {name: [] for name in sources}
            for turn in range(rounds):
                for name in sources if turn % 2 == 0 else reversed(tuple(sources)):
                    run = bench.run(sources[name], workload, sink)
                    runs[name].append(run)
                    print(
                        f"{workload.name} | {sink} | {name} | {run.rows_per_s:,.0f} rows/s, {run.cpu_us:.2f} µs",
                        flush=True,
                    )
    return found


@contextmanager
def brokers(folder: Path) -> Iterator[dict[str, BrokerProcess]]:
    with ApacheKafka(folder / "kafka", heap_mb=_HEAP_MB) as kafka, OttlaBroker(folder / "ottla") as ottla:
        yield {"kafka": kafka, "ottla": ottla}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark.reads", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each source")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, one round, no page")
    parser.add_argument("--divide", type=int, default=1, metavar="N", help="an N-th of the records")
    parser.add_argument("--only", nargs="+", choices=SOURCES, metavar="NAME", help="these sources, and no page")
    parser.add_argument("--busy", action="store_true", help="others use this machine: show only CPU time")
    arguments = parser.parse_args()
    if reason := session.missing():
        print(reason, file=sys.stderr)
        return 2
    divisor = QUICK_DIVISOR if arguments.quick else arguments.divide
    workloads = tuple(workload.divided(divisor) for workload in WORKLOADS)
    rounds = 1 if arguments.quick else arguments.rounds
    sources = {name: SOURCES[name] for name in arguments.only or SOURCES if arguments.only or name != "memory"}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, brokers(Path(folder)) as running:
        spark = session.start(threads=THREADS)
        try:
            bench = Bench(spark, running, Path(folder))
            bench.fill(WARM_UP)
            for source in sources.values():
                for sink in SINKS:
                    bench.run(source, WARM_UP, sink)
            found = measure(bench, sources, workloads, rounds)
            version = spark.version
        finally:
            spark.stop()
    print(spark_runs.table(found, layout_of(sources), busy=arguments.busy))
    if not (arguments.quick or arguments.only):
        about = (
            f"`python -m benchmarks.spark.reads`: Spark {version} on local[{THREADS}], {PARTITIONS} partitions, "
            f"{' and '.join(map(str, workloads))} records, medians of {rounds} alternating runs"
        )
        spark_runs.keep("spark", about, version, found, layout_of(sources), busy=arguments.busy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
