"""Appends the records of a request, each to its partition, in batches; returns each one's partition and offset."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import trio

from ottla.client.errors import BrokerError, ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.partitioner import partition_for_key
from ottla.kproto.records import BatchBuilder
from ottla.rest.cluster import Cluster
from ottla.rest.errors import RestError, of_kafka, partition_not_found
from ottla.rest.limits import MAX_BATCH_BYTES
from ottla.rest.work import Work

_RECORD_OVERHEAD_BYTES = 30
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class NewRecord(NamedTuple):
    """A record to append; without a partition its key decides, as for Java's producer."""

    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size_bytes(self) -> int:
        """About what it takes in a batch."""
        headers = sum(len(name) + len(value or b"") + 4 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + _RECORD_OVERHEAD_BYTES


class Written(NamedTuple):
    """The place of an appended record."""

    partition: int
    offset: int
    timestamp_ms: int


Outcome = Written | RestError


class _Batch(NamedTuple):
    partition: int
    #: Each record with its place in the request.
    records: Sequence[tuple[int, NewRecord]]

    @property
    def size_bytes(self) -> int:
        return sum(record.size_bytes for _, record in self.records)

    def build(self) -> bytes:
        builder = BatchBuilder()
        for _, record in self.records:
            builder.append(record.key, record.value, record.timestamp_ms, record.headers)
        return bytes(builder.build())

    def halves(self) -> tuple[_Batch, _Batch]:
        middle = len(self.records) // 2
        return _Batch(self.partition, self.records[:middle]), _Batch(self.partition, self.records[middle:])


class Producing:
    """Appends through a cluster. `choose` gives a number below another: the partition of records without a key."""

    def __init__(self, cluster: Cluster, work: Work, choose: Callable[[int], int]) -> None:
        self._cluster = cluster
        self._work = work
        self._choose = choose

    async def append(self, topic: str, partition_count: int, records: Sequence[NewRecord]) -> list[Outcome]:
        """Append records to a topic; what became of each, in their order.

        Those of one partition are appended in their order. RestError 40402, before anything is appended, if a record
        is for a partition that does not exist.
        """
        keyless = self._choose(partition_count)
        size_bytes = sum(record.size_bytes for record in records)
        batches = await self._work.do(size_bytes, partial(_batches, records, partition_count, keyless))
        outcomes: dict[int, Outcome] = {}
        async with trio.open_nursery() as nursery:
            for waiting in batches:
                nursery.start_soon(self._append_in_turn, topic, waiting, outcomes)
        return [outcomes[index] for index in range(len(records))]

    async def _append_in_turn(self, topic: str, waiting: deque[_Batch], outcomes: dict[int, Outcome]) -> None:
        while waiting:
            batch = waiting.popleft()
            data = await self._work.do(batch.size_bytes, batch.build)
            try:
                base_offset, time_ms = await self._cluster.append(topic, batch.partition, data)
            except ClientError as error:
                is_too_large = isinstance(error, BrokerError) and error.code in _TOO_LARGE
                if is_too_large and len(batch.records) > 1:
                    waiting.extendleft(reversed(batch.halves()))
                    continue
                failure = of_kafka(error)
                outcomes.update((index, failure) for index, _ in batch.records)
            else:
                for number, (index, record) in enumerate(batch.records):
                    stamp = record.timestamp_ms if time_ms < 0 else time_ms
                    outcomes[index] = Written(batch.partition, base_offset + number, stamp)


def _batches(records: Sequence[NewRecord], partition_count: int, keyless: int) -> list[deque[_Batch]]:
    """The batches of each partition."""
    found: dict[int, deque[_Batch]] = {}
    gathered: dict[int, list[tuple[int, NewRecord]]] = {}
    sizes: dict[int, int] = {}
    for index, record in enumerate(records):
        partition = record.partition
        if partition is None:
            partition = keyless if record.key is None else partition_for_key(record.key, partition_count)
        elif not 0 <= partition < partition_count:
            raise partition_not_found()
        size = sizes.get(partition, 0) + record.size_bytes
        if partition not in gathered or size > MAX_BATCH_BYTES:
            gathered[partition], size = [], record.size_bytes
            found.setdefault(partition, deque()).append(_Batch(partition, gathered[partition]))
        gathered[partition].append((index, record))
        sizes[partition] = size
    return list(found.values())
