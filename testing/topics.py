"""Topics and records of a broker under test, over its own protocol.

What only some tests need is imported when it is used, because the first test of a session waits for every import.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from heapq import merge
from typing import Any, Final

from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.topic_reader import Entry, TopicReader
from ottla.kproto.errors import ErrorCode
from ottla.kproto.records import Record as KafkaRecord
from ottla.testing.record import Record

_TIMEOUT_MS: Final = 30_000
_ABSENT_SECONDS: Final = 0.01


def create(client: Client, name: str, partitions: int, configs: Mapping[str, str], *, exist_ok: bool = False) -> None:
    """Create a topic of one replica."""
    from ottla.client.admin.topics import create_topic

    try:
        create_topic(client, name, partitions, configs)
    except BrokerError as error:
        if not (exist_ok and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
            raise


def delete(client: Client, names: Sequence[str]) -> None:
    """Delete topics."""
    from ottla.client.admin.topics import delete_topics

    for result in delete_topics(client, names, _TIMEOUT_MS):
        if result.error_code:
            raise BrokerError(result.error_code, result.error_message, what=f"topic {result.name}")


def delete_all(client: Client) -> None:
    """Delete every topic; with the internal ones, every group and transaction goes, too."""
    names = [topic.name for topic in client.metadata(None).topics if topic.name is not None]
    if names:
        delete(client, names)


def listed(client: Client) -> dict[str, int]:
    """How many partitions each topic has, except internal ones."""
    topics = sorted(client.metadata(None).topics, key=lambda topic: topic.name or "")
    return {topic.name or "": len(topic.partitions) for topic in topics if not topic.is_internal}


def produce(client: Client, records: Iterable[Record], partition: int | None) -> int:
    """Append records and return how many."""
    from ottla.client.batch_sender import BatchSender

    sender = BatchSender(client)
    count = 0
    for record in records:
        into = partition if partition is not None else record.partition
        plain = KafkaRecord(-1, record.timestamp_ms, record.key, record.value, record.headers)
        sender.add(record.topic, plain, None if into < 0 else into)
        count += 1
    sender.flush()
    return count


def records(client: Client, topic: str, *, partition: int | None = None, read_committed: bool = True) -> list[Record]:
    """All records of a topic or of one partition."""
    if not _exists(client, topic):
        return []
    reader = TopicReader(client, topic, read_committed=read_committed)
    found = _Found()
    while not reader.is_at_end:
        found.add(reader.poll(0))
    return [record for record in found.all() if partition in (None, record.partition)]


def last_records(client: Client, topic: str, count: int) -> tuple[list[Record], int]:
    """The last records of a topic, including uncommitted ones, and how many offsets it has used."""
    reader = TopicReader(client, topic, read_committed=False)
    offsets = reader.skip_to_last(count)
    found = _Found()
    while not reader.is_at_end:
        found.add(reader.poll(0))
    return found.all()[-count:], offsets


def wait_for(client: Client, topic: str, count: int, deadline: float, poll_ms: int) -> list[Record]:
    """All records of a topic, as soon as there are `count` or the deadline has passed."""
    found = _Found()
    while not _exists(client, topic):
        if time.monotonic() >= deadline:
            return []
        time.sleep(_ABSENT_SECONDS)
    reader = TopicReader(client, topic)
    while (found.count < count and time.monotonic() < deadline) or not reader.is_at_end:
        remaining_ms = max(0, int((deadline - time.monotonic()) * 1000))
        found.add(reader.poll(min(poll_ms, remaining_ms) if found.count < count else 0))
    return found.all()


class _Found:
    """Records as they are read, partition by partition."""

    def __init__(self) -> None:
        self._by_partition: dict[int, list[Record]] = {}
        self.count = 0

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.is_commit is None:
                self._by_partition.setdefault(entry.partition, []).append(_record(entry))
                self.count += 1

    def all(self) -> list[Record]:
        return list(merge(*self._by_partition.values(), key=lambda record: record.timestamp_ms))


def _record(entry: Entry) -> Record:
    offset, timestamp_ms, key, value, headers = entry.record
    return Record(entry.topic, entry.partition, offset, timestamp_ms, _bytes(key), _bytes(value), tuple(headers))


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def _exists(client: Client, topic: str) -> bool:
    (found,) = client.metadata([topic]).topics
    return found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
