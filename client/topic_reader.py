"""Reads the records of a topic for programs: each with where it lies and to which transaction it belongs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from ottla.client.aborted_transactions import AbortedTransactions
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.records import BatchHeader, Record, TimestampType, iter_batches, iter_records, parse_end_txn_marker

_FETCH_BYTES: Final = 8 * 1024 * 1024
# What `read` holds of each partition: all partitions of all topics may be read side by side.
_READ_AHEAD_BYTES: Final = 256 * 1024
_NO_SESSION_EPOCH: Final = -1
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH)


class Transaction(NamedTuple):
    """The producer whose transaction a record belongs to."""

    producer_id: int
    producer_epoch: int


class Entry(NamedTuple):
    """A record, or the marker that ends a transaction (`is_commit` is then set, and the record is the marker's own)."""

    topic: str
    partition: int
    record: Record
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    transaction: Transaction | None = None
    is_commit: bool | None = None


class TopicReader:
    """Reads all partitions of a topic from their log starts on. UnknownTopicError if there is no such topic.

    With `read_committed` the records of open and aborted transactions are left out, and markers; otherwise everything
    is there.
    """

    def __init__(self, client: Client, topic: str, *, read_committed: bool = True) -> None:
        self.topic = topic
        self._client = client
        self._read_committed = read_committed
        self._find_leaders()
        self._offsets = dict.fromkeys(self._leaders, 0)
        self._ends: dict[int, int] = {}

    @property
    def partitions(self) -> list[int]:
        """The topic's partitions."""
        return sorted(self._leaders)

    @property
    def is_at_end(self) -> bool:
        """Whether the last `poll` has read everything that was there then."""
        return all(self._offsets[index] >= self._ends.get(index, 1 << 63) for index in self._offsets)

    def ends(self) -> dict[int, int]:
        """The end offsets of the partitions now."""
        from ottla.client.offsets import LATEST, TopicPartition, offsets_at

        asked = [TopicPartition(self.topic, index) for index in self._leaders]
        return {found.partition: offset for found, offset in offsets_at(self._client, asked, LATEST).items()}

    def skip_to_last(self, count: int) -> int:
        """Go on with the last `count` offsets of each partition; returns how many there are in all partitions."""
        ends = self.ends()
        self._offsets.update({index: max(0, end - count) for index, end in ends.items()})
        return sum(ends.values())

    def poll(
        self, max_wait_ms: int, partitions: Iterable[int] | None = None, partition_bytes: int = _FETCH_BYTES
    ) -> list[Entry]:
        """The next records of these partitions (None: of all), in order within each; waits for the first."""
        entries: list[Entry] = []
        wanted = sorted(self._leaders if partitions is None else partitions)
        for leader in sorted({self._leaders[index] for index in wanted}):
            asked = [index for index in wanted if self._leaders[index] == leader]
            for answer in self._fetch(leader, asked, max_wait_ms, partition_bytes):
                entries += self._take(answer)
        return entries

    def read(self, partition: int, end_offset: int) -> Iterator[Entry]:
        """One partition's entries up to an end."""
        while self._offsets[partition] < end_offset:
            before = self._offsets[partition]
            entries = self.poll(100, [partition], _READ_AHEAD_BYTES)
            yield from (entry for entry in entries if entry.record.offset < end_offset)
            if self._offsets[partition] == before and self._ends.get(partition, 0) <= before:
                return  # the rest belongs to transactions that are still open

    def _find_leaders(self) -> None:
        states = self._client.topic(self.topic)
        self._id = states.topic_id
        self._leaders = {state.partition_index: state.leader_id for state in states.partitions}

    def _fetch(self, leader: int, asked: list[int], max_wait_ms: int, partition_bytes: int) -> list[Any]:
        partitions = [
            FetchPartition(partition=index, fetch_offset=self._offsets[index], partition_max_bytes=partition_bytes)
            for index in asked
        ]
        response = self._client.broker(leader).call(
            FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=_FETCH_BYTES,
                isolation_level=1 if self._read_committed else 0,
                session_epoch=_NO_SESSION_EPOCH,
                topics=[FetchTopic(topic=self.topic, topic_id=self._id, partitions=partitions)],
            )
        )
        if response.error_code:
            raise BrokerError(response.error_code, what=f"topic {self.topic}")
        return [partition for topic in response.responses for partition in topic.partitions]

    def _take(self, answer: Any) -> Iterator[Entry]:
        index = answer.partition_index
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._go_to_start(index)
            return
        if answer.error_code in _MOVED:
            self._find_leaders()
            return
        if answer.error_code:
            raise BrokerError(answer.error_code, what=f"{self.topic}-{index}")
        self._ends[index] = answer.last_stable_offset if self._read_committed else answer.high_watermark
        yield from self._entries(index, memoryview(answer.records or b""), answer.aborted_transactions or ())

    def _go_to_start(self, index: int) -> None:
        from ottla.client.offsets import EARLIEST, TopicPartition, offsets_at

        asked = TopicPartition(self.topic, index)
        start = offsets_at(self._client, [asked], EARLIEST).get(asked)
        if start is None or start == self._offsets[index]:
            raise ClientError(f"{self.topic}-{index} has no offset {self._offsets[index]}")
        self._offsets[index] = start

    def _entries(self, index: int, batches: memoryview, aborted: Iterable[Any]) -> Iterator[Entry]:
        hidden = AbortedTransactions((it.producer_id, it.first_offset) for it in aborted)
        for start, header in iter_batches(batches):
            if not (self._read_committed and hidden.hides(header)):
                yield from self._of_batch(index, batches, start, header)
            self._offsets[index] = max(self._offsets[index], header.next_offset)

    def _of_batch(self, index: int, batches: memoryview, start: int, header: BatchHeader) -> Iterator[Entry]:
        transaction = Transaction(header.producer_id, header.producer_epoch) if header.is_transactional else None
        is_commit = None
        if header.is_control:
            marker = parse_end_txn_marker(batches, start, header)
            if marker is None:
                return
            is_commit = marker.is_commit
        for record in iter_records(batches, start, header):
            if record.offset >= self._offsets[index]:
                yield Entry(self.topic, index, record, header.timestamp_type, transaction, is_commit)
