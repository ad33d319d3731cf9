"""`python -m benchmarks.spark`: rows a second that Spark reads by its own connector, without a jar, and from files.

    python -m benchmarks.spark [--rounds 3] [--quick]

Records of 100 B and of 1 KB in four partitions, read by Spark on two local threads into nothing (`noop`) and into
Parquet: by Spark's Kafka connector from Apache Kafka and from Ottla, by `format("ottla")` and by
`format("ottla-segments")`. Within a round everybody has a turn, and the order is another in the next. The medians go
into benchmarks/results/spark.json and into docs/performance.md: some seven minutes on two cores, `--quick` one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from benchmarks import report
from benchmarks.workloads import create_topic
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.ottla_broker import OttlaBroker
from compat_tests.process import BrokerProcess
from compat_tests.spark import session
from ottla.pipeline.segments import SegmentsDataSource
from ottla.pipeline.source import OttlaDataSource

RESULTS: Final = Path("benchmarks/results/spark.json")
PAGE: Final = Path("docs/performance.md")
START: Final = "<!-- spark: start -->"
END: Final = "<!-- spark: end -->"

PARTITIONS: Final = 4
THREADS: Final = 2
SINKS: Final = ("noop", "parquet")
WARM_UP_RECORDS: Final = 200_000
_FLUSH_TIMEOUT_S: Final = 300.0
_HEAP_MB: Final = 1024

Rates = dict[str, list[float]]


class Workload(NamedTuple):
    """Records of one size."""

    name: str
    topic: str
    records: int
    value_bytes: int

    def divided(self, by: int) -> Workload:
        return self._replace(records=self.records // by, name=f"{self.name}, {self.records // by:,}")


WORKLOADS: Final = (Workload("100 B", "small", 5_000_000, 100), Workload("1 KB", "large", 1_000_000, 1024))
WARM_UP: Final = Workload("warm-up", "warm-up", WARM_UP_RECORDS, 100)
QUICK_DIVISOR: Final = 10


class Source(NamedTuple):
    """A way to read: Spark's format, and from which broker, or past it."""

    title: str
    format: str
    broker: str


SOURCES: Final = {
    "kafka": Source("connector, Apache Kafka", "kafka", "kafka"),
    "connector": Source("connector, Ottla", "kafka", "ottla"),
    "ottla": Source('`format("ottla")`', "ottla", "ottla"),
    "segments": Source('`format("ottla-segments")`', "ottla-segments", "ottla"),
}


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
        broker = self._brokers[source.broker]
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": workload.topic}
        if source.format == "ottla-segments":
            options["path"] = str(broker.folder / "data")
        return self._spark.read.format(source.format).options(**options).load()

    def check(self, source: Source, workload: Workload) -> None:
        """Read once, and see that nothing is missing."""
        found = self.read(source, workload).count()
        if found != workload.records:
            raise ValueError(f"{source.title} read {found} of {workload.records} records")

    def rate(self, source: Source, workload: Workload, sink: str) -> float:
        """Rows a second of one run."""
        rows = self.read(source, workload)
        target = self._folder / "out"
        started = time.perf_counter()
        if sink == "noop":
            rows.write.format("noop").mode("overwrite").save()
        else:
            rows.write.mode("overwrite").parquet(str(target))
        rate = workload.records / (time.perf_counter() - started)
        shutil.rmtree(target, ignore_errors=True)
        return rate


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


def measure(bench: Bench, workloads: tuple[Workload, ...], rounds: int) -> dict[str, Rates]:
    """The rates of each workload and sink, by source."""
    found: dict[str, Rates] = {}
    for workload in workloads:
        bench.fill(workload)
        for name in SOURCES:
            bench.check(SOURCES[name], workload)
        for sink in SINKS:
            rates = found[f"{workload.name} into {sink}"] = {name: [] for name in SOURCES}
            for turn in range(rounds):
                for name in SOURCES if turn % 2 == 0 else reversed(SOURCES):
                    rates[name].append(bench.rate(SOURCES[name], workload, sink))
                    print(f"{workload.name} | {sink} | {name} | {rates[name][-1]:,.0f} rows/s", flush=True)
    return found


@contextmanager
def brokers(folder: Path) -> Iterator[dict[str, BrokerProcess]]:
    with ApacheKafka(folder / "kafka", heap_mb=_HEAP_MB) as kafka, OttlaBroker(folder / "ottla") as ottla:
        yield {"kafka": kafka, "ottla": ottla}


def table(found: dict[str, Rates]) -> str:
    """One row a workload and sink: thousands of rows a second, and the ratios that matter."""
    titles = [source.title for source in SOURCES.values()]
    ratios = ("connector on Ottla / on Kafka", "`ottla` / connector", "`ottla-segments` / connector, / `ottla`")
    rows = [f"| 1,000 rows/s | {' | '.join((*titles, *ratios))} |", "|---|" + "---:|" * (len(titles) + len(ratios))]
    for name, rates in found.items():
        median = {source: statistics.median(values) for source, values in rates.items()}
        shown = [f"{median[source] / 1000:,.0f}" for source in SOURCES]
        shown += [
            _ratio(median["connector"], median["kafka"]),
            _ratio(median["ottla"], median["connector"]),
            f"{_ratio(median['segments'], median['connector'])}, {_ratio(median['segments'], median['ottla'])}",
        ]
        rows.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(rows)


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}×"  # noqa: RUF001


def write_page(found: dict[str, Rates], rounds: int, spark_version: str) -> None:
    """Replace the part of the page that is between the marks; at its end, if it has none yet."""
    about = report.machine()
    text = (
        f"`python -m benchmarks.spark`: Spark {spark_version} on local[{THREADS}], {PARTITIONS} partitions, 5 million "
        f"records of 100 B and 1 million of 1 KB, medians of {rounds} alternating runs on {about['cores']} cores of "
        f"{about['cpu']}, {about['memory_gib']} GiB, Python {about['python']}. All share these cores.\n\n"
        + table(found)
    )
    page = PAGE.read_text()
    if START not in page:
        page += f"\n## Spark\n\n{START}\n{END}\n"
    before, _, rest = page.partition(START)
    PAGE.write_text(f"{before}{START}\n{text}\n{END}{rest.partition(END)[2]}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each source")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, one round, no page")
    arguments = parser.parse_args()
    if reason := session.missing():
        print(reason, file=sys.stderr)
        return 2
    workloads = tuple(workload.divided(QUICK_DIVISOR) for workload in WORKLOADS) if arguments.quick else WORKLOADS
    rounds = 1 if arguments.quick else arguments.rounds
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, brokers(Path(folder)) as running:
        spark = session.start(threads=THREADS)
        try:
            bench = Bench(spark, running, Path(folder))
            bench.fill(WARM_UP)
            for source in SOURCES.values():
                for sink in SINKS:
                    bench.rate(source, WARM_UP, sink)
            found = measure(bench, workloads, rounds)
            version = spark.version
        finally:
            spark.stop()
    print(table(found))
    if not arguments.quick:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps({"machine": report.machine(), "spark": version, "rates": found}, indent=1) + "\n")
        write_page(found, rounds, version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
