"""What every workload is made of: a function that runs against one broker and returns its figures by name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from benchmarks import librdkafka
from compat_tests.brokers.process import BrokerProcess

Figures = dict[str, float]
"""A figure's name carries its unit; `LOWER_IS_BETTER` tells its direction."""
Workload = Callable[[BrokerProcess], Figures]

LOWER_IS_BETTER: Final = ("_ms", "cpu_s_per_gb", "cpu_us", "_mb", "open_files", "cpu_percent")
PRODUCER: Final = ("linger.ms=5", "batch.size=1000000", "message.timeout.ms=600000")
BYTES_PER_RUN: Final = 600_000_000
_MAX_RECORDS: Final = 4_000_000
_WARM_UP_BYTES: Final = 500_000_000
_WARM_UP_PARTITIONS: Final = 4
_RECYCLED_BYTES: Final = 1_600_000_000
_PIECE_BYTES: Final = 1 << 20
# Apache Kafka makes fewer than 10,000 partitions by one request.
_PARTITIONS_AT_ONCE: Final = 5_000
# On a busy machine it makes fewer than a hundred a second.
_CREATED_WITHIN_S: Final = 600


def create_topic(broker: BrokerProcess, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Create a topic and wait until each partition has a leader."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    first = min(partitions, _PARTITIONS_AT_ONCE)
    topic = NewTopic(name, first, 1, config=dict(config or {}))
    for created in admin.create_topics([topic], request_timeout=_CREATED_WITHIN_S).values():
        created.result()
    if first < partitions:
        more = [NewPartitions(name, partitions)]
        for grown in admin.create_partitions(more, request_timeout=_CREATED_WITHIN_S).values():
            grown.result()
    deadline = time.monotonic() + _CREATED_WITHIN_S
    pause_s = 0.1
    while time.monotonic() < deadline:
        described = admin.list_topics(name, timeout=30).topics[name]
        if len(described.partitions) == partitions and all(p.leader >= 0 for p in described.partitions.values()):
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 2)  # an answer that names 10,000 partitions is work, too
    raise TimeoutError(f"{name} has no leaders")


def records_per_run(size_bytes: int, total_bytes: int = BYTES_PER_RUN) -> int:
    """How many records are written and read: this many bytes of them, but no more than four million."""
    return min(_MAX_RECORDS, total_bytes // size_bytes)


def warm_up(broker: BrokerProcess, size_bytes: int) -> None:
    """Write and read something that is not counted: in its first seconds a JVM compiles what it runs often."""
    count = records_per_run(size_bytes, _WARM_UP_BYTES)
    topic = unique("warm-up")
    create_topic(broker, topic, _WARM_UP_PARTITIONS)
    where = (broker.bootstrap, topic, _WARM_UP_PARTITIONS, count)
    librdkafka.run("produce", *where, size_bytes, "acks=1", *PRODUCER)
    librdkafka.run("consume", *where)


@contextmanager
def recycled_memory(broker: BrokerProcess) -> Iterator[None]:
    """See to it that what is written after this block goes into memory that the machine had a moment ago.

    A virtual machine gives unused memory back to its host. To get it again takes up to 3 s of CPU a GB, which the
    measured writer would pay: a file that is written first, and deleted at the end, pays it in advance.
    """
    path = broker.folder.with_name("recycled")
    with path.open("wb") as file:
        for _ in range(_RECYCLED_BYTES // _PIECE_BYTES):
            file.write(bytes(_PIECE_BYTES))
    try:
        yield
    finally:
        path.unlink()


def unique(name: str) -> str:
    """A topic's name that no run before has used."""
    return f"{name}-{time.monotonic_ns()}"


def forget_cached(folder: Path) -> None:
    """Take every file of a broker's folder out of the page cache, except those that go away meanwhile."""
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_size:
                _forget_cached_file(path)


def _forget_cached_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
