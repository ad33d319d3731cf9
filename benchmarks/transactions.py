"""`python -m benchmarks.transactions`: transactions a second, and reading what is committed, beside Apache Kafka.

    python -m benchmarks.transactions [--pairs 3] [--broker ottla|kafka|both]

One confluent-kafka producer, one transaction after the other, over a topic of four partitions; then one consumer with
read_committed over logs of which 1 % and 50 % of the transactions are aborted. Every run starts a fresh broker on an
empty folder; the brokers alternate. It prints the table of the medians.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.measuring.brokers import fresh
from benchmarks.reporting import tables
from benchmarks.reporting.results import Result
from benchmarks.workloads import Figures, Workload, create_topic
from compat_tests.brokers.process import BrokerProcess

PARTITIONS: Final = 4
WARM_UP_TRANSACTIONS: Final = 20
MEASURED_S: Final = 5.0
LOG_TRANSACTIONS: Final = 200
LOG_RECORDS: Final = 1_000
VALUE: Final = bytes(range(256)) * 4
CALL_TIMEOUT_S: Final = 60.0


def producer_of(broker: BrokerProcess, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2 * LOG_RECORDS,
        }
    )
    producer.init_transactions(CALL_TIMEOUT_S)
    return producer


def transact(producer: Producer, topic: str, records: int, *, commit: bool = True) -> None:
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
    if commit:
        producer.commit_transaction(CALL_TIMEOUT_S)
    else:
        # Else librdkafka throws away what it has not sent, and nothing would be aborted.
        producer.flush(CALL_TIMEOUT_S)
        producer.abort_transaction(CALL_TIMEOUT_S)


def transactions(broker: BrokerProcess, records: int) -> Figures:
    """How many transactions of this many records one producer commits in a second."""
    topic = f"transactions-{records}"
    create_topic(broker, topic, PARTITIONS)
    producer = producer_of(broker, topic)
    for _ in range(WARM_UP_TRANSACTIONS):
        transact(producer, topic, records)
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < MEASURED_S:
        transact(producer, topic, records)
        count += 1
    return {"transactions_per_s": count / elapsed}


def reading(broker: BrokerProcess, aborted_percent: int) -> Figures:
    """How fast a reader of committed records goes through a log; aborted records count as well."""
    topic = f"reading-{aborted_percent}"
    create_topic(broker, topic, PARTITIONS)
    producer = producer_of(broker, topic)
    every = 100 // aborted_percent
    for number in range(LOG_TRANSACTIONS):
        transact(producer, topic, LOG_RECORDS, commit=number % every != every - 1)
    committed = (LOG_TRANSACTIONS - LOG_TRANSACTIONS // every) * LOG_RECORDS
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found, began = 0, time.perf_counter()
    while found < committed:
        # Not more than there is: the consumer would wait for it.
        messages = consumer.consume(min(10_000, committed - found), 1.0)
        found += sum(message.error() is None for message in messages)
    elapsed = time.perf_counter() - began
    consumer.close()
    return {"mb_per_s": LOG_TRANSACTIONS * LOG_RECORDS * len(VALUE) / elapsed / 1e6}


WORKLOADS: Final[dict[str, Workload]] = {
    "transactions of 1 record": lambda broker: transactions(broker, 1),
    "transactions of 100 records": lambda broker: transactions(broker, 100),
    "read_committed, 1 % aborted": lambda broker: reading(broker, 1),
    "read_committed, 50 % aborted": lambda broker: reading(broker, 50),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transactions", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--pairs", type=int, default=3, help="runs against each broker")
    parser.add_argument("--broker", choices=("ottla", "kafka", "both"), default="both")
    arguments = parser.parse_args()
    kinds = ("ottla", "kafka") if arguments.broker == "both" else (arguments.broker,)
    results = {name: Result(arguments.pairs, {kind: [] for kind in kinds}) for name in WORKLOADS}
    for pair in range(arguments.pairs):
        for kind in kinds if pair % 2 == 0 else reversed(kinds):
            with fresh(kind) as broker:
                for name, workload in WORKLOADS.items():
                    results[name].runs[kind].append(workload(broker))
                    print(f"{name}, {kind}: {results[name].runs[kind][-1]}", file=sys.stderr, flush=True)
    if "ottla" in kinds:
        print(tables.by_figure(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
