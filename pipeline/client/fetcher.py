"""Reading one partition from its leader, one answer ahead of the caller."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.client.connection import BrokerConnection
from ottla.client.errors import ConnectionLostError, UnsupportedVersionError
from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.kproto.records import (
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_BYTES,
    CorruptRecordError,
    RecordError,
    parse_batch_header,
    whole_batches_size_bytes,
)
from ottla.pipeline.client.answers import RetriableError, check
from ottla.pipeline.client.cluster import TOPICS_BY_NAME, Cluster
from ottla.pipeline.errors import BrokerUnavailableError, DecodingError

__all__ = ["Fetched", "OffsetOutOfRangeError", "PartitionFetcher"]

_RETRY_PAUSE_S: Final = 0.1
# The first version of Fetch that names topics by their ids.
_TOPICS_BY_ID: Final = 13
_NO_ID: Final = uuid.UUID(int=0)


class OffsetOutOfRangeError(Exception):
    """The offset lies before the log's start or beyond its end."""


class Fetched(NamedTuple):
    """One answer: whole batches, the first of which may begin before the offset that was asked for.

    `aborted` lists the (producer id, first offset) of the aborted transactions in the range, for readers with
    read_committed. `next_offset` follows the last batch; it is the offset that was asked for if there was nothing.
    """

    records: memoryview
    aborted: tuple[tuple[int, int], ...]
    next_offset: int


class PartitionFetcher:
    """Fetches a partition from an offset on. While it does, the cluster's connection to the leader is its own.

    The next request is on its way while the caller works on an answer. A lost connection or a leader that moved is
    overcome within `default_api_timeout_ms`; then BrokerUnavailableError.
    """

    def __init__(self, cluster: Cluster, partition: TopicPartition, *, topic_id: str | None = None) -> None:
        """With a `topic_id`, a topic that has another one now is not read."""
        self.partition = partition
        self._topic_id = None if topic_id is None else uuid.UUID(topic_id)
        self._cluster = cluster
        self._settings = cluster.settings
        self._connection: BrokerConnection | None = None
        self._is_asked = False

    def fetch(self, offset: int, end_offset: int) -> Iterator[Fetched]:
        """Yield answers from `offset` on until they reach `end_offset`, also empty ones when nothing is there yet.

        Raises OffsetOutOfRangeError for an offset outside the log, TopicError if the partition may not be read,
        DecodingError if what comes are not record batches.
        """
        deadline = self._deadline()
        try:
            while offset < end_offset:
                answer = self._attempt(offset, deadline)
                if answer is None:
                    continue
                deadline = self._deadline()
                fetched = self._fetched(answer, offset)
                if offset < fetched.next_offset < end_offset:
                    self._send(fetched.next_offset)
                offset = fetched.next_offset
                yield fetched
        finally:
            self._drop()

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.default_api_timeout_ms / 1000

    def _attempt(self, offset: int, deadline: float) -> PartitionData | None:
        """One answer without an error; None if the attempt failed and another may be made."""
        try:
            if self._connection is None:
                self._connection = self._cluster.leader(self.partition)
            if not self._is_asked:
                self._send(offset)
            answer = self._receive()
            if answer is None or answer.error_code == ErrorCode.NONE:
                return answer
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise OffsetOutOfRangeError
            check(answer.error_code, f"partition {self.partition}")
        except UnsupportedVersionError as error:
            raise BrokerUnavailableError(f"The broker cannot be read from: {error}.") from error
        except (ConnectionLostError, RetriableError) as error:
            problem = str(error)
        self._drop()
        if time.monotonic() >= deadline:
            raise BrokerUnavailableError(
                f"Partition {self.partition} cannot be read at present ({problem}). Check that its broker runs."
            )
        time.sleep(_RETRY_PAUSE_S)
        return None

    def _send(self, offset: int) -> None:
        settings = self._settings
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=int(settings.read_committed),
            topics=[
                FetchTopic(
                    topic=self.partition.topic,
                    topic_id=self._topic_id or _NO_ID,
                    partitions=[
                        FetchPartition(
                            partition=self.partition.partition,
                            fetch_offset=offset,
                            partition_max_bytes=settings.max_partition_fetch_bytes,
                        )
                    ],
                )
            ],
        )
        assert self._connection is not None
        try:
            self._connection.send(request, at_most=TOPICS_BY_NAME if self._topic_id is None else _TOPICS_BY_ID)
        except ConnectionLostError:
            # The answer that is being worked on stays good: the next attempt finds the loss.
            self._drop()
        else:
            self._is_asked = True

    def _receive(self) -> PartitionData | None:
        """The partition's part of an answer; None if a quota made the broker answer without any."""
        self._is_asked = False
        if self._connection is None:
            raise ConnectionLostError("the connection broke")
        answer = self._connection.receive()
        for topic in answer.responses:
            for part in topic.partitions:
                found: PartitionData = part
                return found
        if answer.error_code:
            raise ConnectionLostError(f"the broker answers with error {answer.error_code}")
        time.sleep(max(answer.throttle_time_ms / 1000, _RETRY_PAUSE_S))
        return None

    def _fetched(self, answer: PartitionData, offset: int) -> Fetched:
        records = memoryview(answer.records or b"")
        next_offset = offset
        try:
            records = records[: whole_batches_size_bytes(records)]
            if records:
                next_offset = max(offset, _next_offset(records))
        except RecordError as error:
            raise DecodingError(f"Partition {self.partition} at offset {offset}: {error}.") from error
        aborted = tuple((entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions or ())
        return Fetched(records, aborted if self._settings.read_committed else (), next_offset)

    def _drop(self) -> None:
        """Close the connection: what may still be in flight on it is of no use any more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._cluster.forget(connection)
        self._is_asked = False


def _next_offset(records: memoryview) -> int:
    """The offset that follows the last batch."""
    pos = last = 0
    size = len(records)
    while pos + HEADER_SIZE_BYTES <= size:
        last = pos
        pos += LENGTH_PREFIX_BYTES + int.from_bytes(records[pos + 8 : pos + 12], "big")
    if pos != size:
        raise CorruptRecordError(f"{size - last} bytes follow the last whole batch")
    return parse_batch_header(records, last).next_offset
