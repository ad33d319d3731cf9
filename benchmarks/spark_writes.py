"""`python -m benchmarks.spark_writes`: rows a second that Spark writes by its own connector, and without a jar.

    python -m benchmarks.spark_writes [--rounds 3] [--quick]

Rows of 100 B and of 1 KB, with keys, out of memory into a topic of four partitions, on two local threads: by Spark's
Kafka connector into Apache Kafka and into Ottla, and by `format("ottla")` into both, without and with transactions.
Nobody compresses, and everybody waits for all in-sync replicas. Within a round all have a turn, and the order is
another in the next. The medians go into benchmarks/results/spark_writes.json and into docs/performance.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benchmarks import report
from benchmarks.spark import PAGE, PARTITIONS, THREADS, Rates, Workload, brokers
from benchmarks.workloads import create_topic
from compat_tests.process import BrokerProcess
from compat_tests.spark import session
from ottla.pipeline.source import OttlaDataSource

RESULTS: Final = Path("benchmarks/results/spark_writes.json")
START: Final = "<!-- spark writes: start -->"
END: Final = "<!-- spark writes: end -->"

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
_numbers = itertools.count()


def rows_of(spark: SparkSession, workload: Workload) -> DataFrame:
    """The workload's rows, in memory: what is measured is the writing alone."""
    rows = spark.range(0, workload.records, numPartitions=THREADS).selectExpr(
        f"concat('key-', id % {KEYS}) AS key",
        f"binary(rpad(string(id), {workload.value_bytes}, 'ottla spark kafka ')) AS value",
    )
    kept = rows.persist()
    kept.count()
    return kept


def rate(sink: Sink, rows: DataFrame, workload: Workload, broker: BrokerProcess) -> float:
    """Rows a second of one run, into a topic of its own."""
    topic = f"{workload.topic}-{next(_numbers)}"
    create_topic(broker, topic, PARTITIONS)
    writer = rows.write.format(sink.format).mode("append")
    writer = writer.options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": topic})
    if sink.is_transactional:
        writer = writer.option("transactional", "true")
    started = time.perf_counter()
    writer.save()
    found = workload.records / (time.perf_counter() - started)
    reader = rows.sparkSession.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    if (held := reader.option("subscribe", topic).load().count()) != workload.records:
        raise ValueError(f"{sink.title} wrote {held} of {workload.records} rows")
    return found


def measure(
    spark: SparkSession, running: dict[str, BrokerProcess], workloads: tuple[Workload, ...], rounds: int
) -> dict[str, Rates]:
    """The rates of each workload, by sink."""
    found: dict[str, Rates] = {}
    for workload in workloads:
        rows = rows_of(spark, workload)
        rates = found[workload.name] = {name: [] for name in SINKS}
        for turn in range(rounds):
            for name in SINKS if turn % 2 == 0 else reversed(SINKS):
                rates[name].append(rate(SINKS[name], rows, workload, running[SINKS[name].broker]))
                print(f"{workload.name} | {name} | {rates[name][-1]:,.0f} rows/s", flush=True)
        rows.unpersist()
    return found


def table(found: dict[str, Rates]) -> str:
    """One row a workload: thousands of rows a second, and how many times the connector's they are."""
    titles = [*(sink.title for sink in SINKS.values()), "`ottla` / connector on Ottla, / on Kafka"]
    rows = [f"| 1,000 rows/s | {' | '.join(titles)} |", "|---|" + "---:|" * len(titles)]
    for name, rates in found.items():
        median = {sink: statistics.median(values) for sink, values in rates.items()}
        shown = [f"{median[sink] / 1000:,.0f}" for sink in SINKS]
        ratios = [f"{median['ottla'] / median[other]:.2f}×" for other in ("connector", "kafka")]  # noqa: RUF001
        rows.append(f"| {name} | {' | '.join((*shown, ', '.join(ratios)))} |")
    return "\n".join(rows)


def write_page(found: dict[str, Rates], rounds: int, spark_version: str) -> None:
    """Replace the part of the page that is between the marks; at its end, if it has none yet."""
    about = report.machine()
    text = (
        f"`python -m benchmarks.spark_writes`: Spark {spark_version} on local[{THREADS}], {PARTITIONS} partitions, "
        f"2 million rows of 100 B and 400,000 of 1 KB, medians of {rounds} alternating runs on {about['cores']} cores "
        f"of {about['cpu']}, {about['memory_gib']} GiB, Python {about['python']}. All share these cores.\n\n"
        + table(found)
    )
    page = PAGE.read_text()
    if START not in page:
        page += f"\n## Spark's writing\n\n{START}\n{END}\n"
    before, _, rest = page.partition(START)
    PAGE.write_text(f"{before}{START}\n{text}\n{END}{rest.partition(END)[2]}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_writes", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each sink")
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows, no page")
    arguments = parser.parse_args()
    if reason := session.missing():
        print(reason, file=sys.stderr)
        return 2
    workloads = tuple(workload.divided(QUICK_DIVISOR) for workload in WORKLOADS) if arguments.quick else WORKLOADS
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, brokers(Path(folder)) as running:
        spark = session.start(threads=THREADS)
        try:
            spark.dataSource.register(OttlaDataSource)
            measure(spark, running, (WARM_UP,), 1)
            found = measure(spark, running, workloads, arguments.rounds)
            version = spark.version
        finally:
            spark.stop()
    print(table(found))
    if not arguments.quick:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps({"machine": report.machine(), "spark": version, "rates": found}, indent=1) + "\n")
        write_page(found, arguments.rounds, version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
