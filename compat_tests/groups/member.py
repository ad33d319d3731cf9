"""One member of a consumer group: reads, commits what it read, and prints what happens as lines of JSON.

    {"event": "assigned", "partitions": [["topic", 0], …]}     its whole assignment, after every change
    {"event": "rows", "rows": [["topic", 0, 17, "value"], …]}  topic, partition, offset, value
    {"event": "refused", "text": "…"}                          a commit that came during a rebalance
    {"event": "closed"}

It leaves the group and ends when its standard input ends. `compat_tests/java/Member.java` is the same in Java.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import threading
from collections.abc import Iterable
from typing import Any

POLL_TIMEOUT_S = 0.1
METADATA_MAX_AGE_MS = 500


class Report:
    """Prints events; an assignment only when it has changed."""

    def __init__(self) -> None:
        self._assigned: list[tuple[str, int]] = []

    def emit(self, event: str, **values: Any) -> None:
        print(json.dumps({"event": event, **values}), flush=True)

    def assignment(self, partitions: Iterable[Any]) -> None:
        assigned = sorted((partition.topic, partition.partition) for partition in partitions)
        if assigned != self._assigned:
            self._assigned = assigned
            self.emit("assigned", partitions=assigned)

    def rows(self, rows: list[tuple[str, int, int, str]]) -> None:
        if rows:
            self.emit("rows", rows=rows)


def run_confluent(options: argparse.Namespace, report: Report, stopping: threading.Event) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    config: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": METADATA_MAX_AGE_MS,
        "log_level": 0,
    }
    if options.protocol == "consumer":
        config["group.protocol"] = "consumer"
    else:
        config["session.timeout.ms"] = options.session_timeout_ms
        config["heartbeat.interval.ms"] = options.session_timeout_ms // 10
        config["partition.assignment.strategy"] = options.strategy
    if options.instance_id:
        config["group.instance.id"] = options.instance_id
    consumer = Consumer(config)
    consumer.subscribe([options.topic])
    while not stopping.is_set():
        messages = [message for message in consumer.consume(500, POLL_TIMEOUT_S) if message.error() is None]
        report.assignment(consumer.assignment())
        report.rows([(m.topic() or "", m.partition() or 0, m.offset() or 0, text(m.value())) for m in messages])
        if messages:
            try:
                consumer.commit(asynchronous=options.commit == "async")
            except KafkaException as error:
                if error.args[0].code() == KafkaError._NO_OFFSET:
                    continue
                report.emit("refused", text=str(error))
    consumer.close()


def run_kafka_python(options: argparse.Namespace, report: Report, stopping: threading.Event) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import CommitFailedError, KafkaError

    strategies = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        group_instance_id=options.instance_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.session_timeout_ms // 10,
        metadata_max_age_ms=METADATA_MAX_AGE_MS,
        partition_assignment_strategy=(strategies[options.strategy],),
    )
    pattern = options.topic.startswith("^")
    consumer.subscribe(**({"pattern": options.topic} if pattern else {"topics": [options.topic]}))
    while not stopping.is_set():
        polled = consumer.poll(timeout_ms=int(POLL_TIMEOUT_S * 1000))
        if consumer._coordinator._join_task is not None:
            # kafka-python 3.0.12 forgets a join if a poll ends between the answers to JoinGroup and SyncGroup: it
            # neither applies the assignment nor sends heartbeats again. With this the next poll completes the join.
            consumer._coordinator.request_rejoin()
        report.assignment(consumer.assignment())
        report.rows([row for records in polled.values() for row in map(row_of, records)])
        if polled:
            try:
                if options.commit == "async":
                    consumer.commit_async()
                else:
                    consumer.commit()
            except (CommitFailedError, KafkaError) as error:
                report.emit("refused", text=str(error))
    consumer.close()


def run_aiokafka(options: argparse.Namespace, report: Report, stopping: threading.Event) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            group_instance_id=options.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.session_timeout_ms // 10,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
        )
        pattern = options.topic.startswith("^")
        consumer.subscribe(**({"pattern": options.topic} if pattern else {"topics": [options.topic]}))
        await consumer.start()
        while not stopping.is_set():
            polled = await consumer.getmany(timeout_ms=int(POLL_TIMEOUT_S * 1000), max_records=500)
            report.assignment(consumer.assignment())
            report.rows([row for records in polled.values() for row in map(row_of, records)])
            if polled:
                try:
                    await consumer.commit()
                except KafkaError as error:
                    report.emit("refused", text=str(error))
        await consumer.stop()

    asyncio.run(consume())


def row_of(record: Any) -> tuple[str, int, int, str]:
    return record.topic, record.partition, record.offset, text(record.value)


def text(value: Any) -> str:
    return bytes(value or b"").decode()


RUN = {"confluent-kafka": run_confluent, "kafka-python": run_kafka_python, "aiokafka": run_aiokafka}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("client", choices=sorted(RUN))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True, help="a name, or a pattern that begins with ^")
    parser.add_argument("--instance-id")
    parser.add_argument("--strategy", choices=("range", "cooperative-sticky"), default="range")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--session-timeout-ms", type=int, default=6000)
    parser.add_argument("--commit", choices=("sync", "async"), default="sync")
    options = parser.parse_args()
    assert options.client != "aiokafka" or re.fullmatch("range", options.strategy), "aiokafka is not cooperative"

    stopping = threading.Event()

    def await_end_of_input() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=await_end_of_input, daemon=True).start()
    report = Report()
    RUN[options.client](options, report, stopping)
    report.emit("closed")


if __name__ == "__main__":
    main()
