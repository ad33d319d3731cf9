"""Reads a whole topic with one client after the other, and compares it with what a producer was told."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from kafka import KafkaConsumer, TopicPartition

FETCH_BYTES = 4 * 1024 * 1024
PARTITION_BYTES = 1024 * 1024
IDLE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Row:
    """A record whose value is JSON with the number of the row it was made from."""

    partition: int
    offset: int
    key: str
    number: int


def row_of(partition: int, offset: int, key: bytes, value: bytes) -> Row:
    return Row(partition, offset, key.decode(), json.loads(value)["row"])


def read_with_kafka_python(bootstrap: str, topic: str, partitions: int) -> list[Row]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        fetch_max_bytes=FETCH_BYTES,
        max_partition_fetch_bytes=PARTITION_BYTES,
        max_poll_records=10_000,
    )
    try:
        assigned = [TopicPartition(topic, partition) for partition in range(partitions)]
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        back: list[Row] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            polled = consumer.poll(timeout_ms=int(IDLE_TIMEOUT_S * 1000))
            if not polled:
                break
            for records in polled.values():
                back += [row_of(record.partition, record.offset, record.key, record.value) for record in records]
        return back
    finally:
        consumer.close()


def read_with_aiokafka(bootstrap: str, topic: str, partitions: int) -> list[Row]:
    async def read() -> list[Row]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_BYTES,
        )
        await consumer.start()
        try:
            assigned = [AioTopicPartition(topic, partition) for partition in range(partitions)]
            consumer.assign(assigned)
            ends = await consumer.end_offsets(assigned)
            back: list[Row] = []
            expected = sum(ends.values())
            while len(back) < expected:
                polled = await consumer.getmany(timeout_ms=int(IDLE_TIMEOUT_S * 1000))
                if not polled:
                    break
                for records in polled.values():
                    back += [row_of(record.partition, record.offset, record.key, record.value) for record in records]
            return back
        finally:
            await consumer.stop()

    return asyncio.run(read())


def read_with_kcat(bootstrap: str, topic: str, partitions: int) -> list[Row]:
    command = ["kcat", "-C", "-e", "-q", "-b", bootstrap, "-t", topic, "-o", "beginning", "-f", r"%p %o %k %s\n"]
    done = subprocess.run(command, capture_output=True, check=True)
    back = []
    for line in done.stdout.splitlines():
        partition, offset, key, value = line.split(b" ", 3)
        back.append(row_of(int(partition), int(offset), key, value))
    return back


READERS: dict[str, Callable[[str, str, int], list[Row]]] = {
    "kafka-python": read_with_kafka_python,
    "aiokafka": read_with_aiokafka,
}
if shutil.which("kcat"):
    READERS["kcat"] = read_with_kcat


def faults(back: Sequence[Row], acknowledged: Mapping[tuple[int, int], int], keys: Sequence[str]) -> list[str]:
    """What is wrong with what came back, in words; nothing if it is what was acknowledged.

    `acknowledged` has the row number at each (partition, offset), `keys` the key of each row number.
    """
    found = {(row.partition, row.offset): row.number for row in back}
    missing = sum(found.get(place) != number for place, number in acknowledged.items())
    twice = sum(count - 1 for count in Counter(row.number for row in back).values())
    wrong_key = sum(row.key != keys[row.number] for row in back)
    disordered = 0
    last: dict[str, int] = {}
    for row in sorted(back, key=lambda row: (row.partition, row.offset)):
        disordered += row.number < last.get(row.key, -1)
        last[row.key] = row.number
    counts = {
        "acknowledged rows are not where they were": missing,
        "rows came twice": twice,
        "rows have another key": wrong_key,
        "rows are out of order": disordered,
    }
    return [f"{count:,} {what}" for what, count in counts.items() if count]
