"""Reading a topic's messages for a page: a few of them, from anywhere, at a cost that is bounded beforehand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import trio

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import (
    BatchHeader,
    Compression,
    ControlRecordType,
    Record,
    control_record_type,
    iter_batches,
    iter_records,
)
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.console.messages.readable import Fetched, Readable

_MAX_DECOMPRESSED_BYTES: Final = 32 * 1_048_576
_INLINE_BYTES: Final = 16_384
"""Compressed batches up to this size are decompressed on the loop."""

_MAX_WINDOW: Final = 20_000
_WINDOW_BYTES: Final = 4 * 1_048_576


class Budget:
    """The budget of one page: records looked at, bytes read, and time. Shared by all partitions of the page."""

    def __init__(self, *, records: int = 50_000, size_bytes: int = 32 * 1_048_576, seconds: float = 2.0) -> None:
        self.records = records
        self.size_bytes = size_bytes
        self.scanned = 0
        self._ends_at = monotonic() + seconds

    @property
    def is_spent(self) -> bool:
        return self.scanned >= self.records or self.size_bytes <= 0 or monotonic() >= self._ends_at


class Kind(Enum):
    """The kind of a row; the values are shown."""

    RECORD = "record"
    COMMIT = "commit"
    ABORT = "abort"
    CONTROL = "control"
    ABORTED = "aborted"
    OPEN = "open"
    UNREADABLE = "unreadable"


class Message(NamedTuple):
    """One record of a partition, with what its batch says of it. Of an unreadable batch: a record that says why."""

    partition: int
    record: Record
    kind: Kind
    header: BatchHeader

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def order(self) -> tuple[int, int, int]:
        """Of several partitions: by time, and within a partition always by offset where times are equal."""
        return self.record.timestamp_ms, self.partition, self.record.offset


Keep: TypeAlias = Callable[[Message], Awaitable[bool]]
"""Whether a message is to be shown."""


class Scan(NamedTuple):
    """The rows that a scan found, in the order of offsets; everything before `next_offset` was looked at."""

    messages: list[Message]
    next_offset: int


async def scan(
    partition: Readable,
    offset: int,
    end_offset: int,
    *,
    budget: Budget,
    keep: Keep,
    limit: int,
) -> Scan:
    """Look at [offset, end_offset) until `limit` messages are kept or the budget is spent.

    Raises ReplicaError, StorageError or NodeError where the partition cannot be read.
    """
    gathering = _Gathering(keep, limit)
    while offset < end_offset and not budget.is_spent:
        fetched = await partition.fetch(offset)
        budget.size_bytes -= len(fetched.data)
        if (header := fetched.too_large) is not None:
            why = f"a batch of {header.size_bytes} bytes"
            gathering.found.append(_unreadable(partition.index, header, why))
            offset = header.next_offset
        elif not fetched.data:
            break
        for position, header in iter_batches(fetched.data):
            start, offset = offset, min(header.next_offset, end_offset)
            stopped_at = await gathering.take(partition, fetched, position, header, start, end_offset)
            budget.scanned += gathering.count()
            if stopped_at is not None:
                return Scan(gathering.found, stopped_at)
            if offset >= end_offset or budget.is_spent:
                break
    return Scan(gathering.found, offset)


class _Gathering:
    """The messages that a scan keeps, and how many it looked at."""

    def __init__(self, keep: Keep, limit: int) -> None:
        self.found: list[Message] = []
        self._keep = keep
        self._limit = limit
        self._slices = TimeSlice()
        self._looked_at = 0

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self._limit

    def count(self) -> int:
        """How many were looked at since this was asked last."""
        looked_at, self._looked_at = self._looked_at, 0
        return looked_at

    async def take(
        self, partition: Readable, fetched: Fetched, position: int, header: BatchHeader, start: int, end_offset: int
    ) -> int | None:
        """Look at a batch's records in [start, end_offset). If that is enough: where a next scan goes on, else None."""
        kind_of = _kinds(partition, fetched, header)
        try:
            for record in await _open_batch(fetched.data, position, header):
                if self._slices.is_over:
                    await self._slices.maybe_yield()
                if not start <= record.offset < end_offset:
                    continue
                self._looked_at += 1
                message = Message(partition.index, record, kind_of(record), header)
                if await self._keep(message):
                    self.found.append(message)
                    if self.is_full:
                        return record.offset + 1
        except ProtocolError as error:
            self.found.append(_unreadable(partition.index, header, str(error)))
        return header.next_offset if self.is_full else None


async def scan_back(
    partition: Readable,
    end_offset: int,
    *,
    budget: Budget,
    keep: Keep,
    limit: int,
) -> Scan:
    """The last `limit` kept messages before `end_offset`, the newest first; nothing from `next_offset` on is missing.

    Reads windows, each larger than the one after it: nobody knows beforehand how many offsets compaction left.
    """
    found: list[Message] = []
    begins = partition.log_start_offset
    largest = int(min(_MAX_WINDOW, max(1, _WINDOW_BYTES / max(1, partition.typical_bytes))))
    window = min(limit, largest)
    is_first = True
    while end_offset > begins and len(found) < limit and not budget.is_spent:
        begin = offset = max(begins, end_offset - window)
        messages: list[Message] = []
        # The first window is always read to its end, or a page could be empty for ever.
        allowed = Budget(size_bytes=1 << 62) if is_first else budget
        while offset < end_offset and not allowed.is_spent:
            part = await scan(partition, offset, end_offset, budget=allowed, keep=keep, limit=_MAX_WINDOW)
            messages += part.messages
            offset = part.next_offset if part.next_offset > offset else end_offset
        if offset < end_offset:
            break  # what lies in the rest of the window would be missing
        if is_first:
            budget.scanned += allowed.scanned
        missing = limit - len(found)
        found += reversed(messages[-missing:])
        end_offset = messages[-missing].offset if len(messages) >= missing else begin
        window = min(window * 4, largest)
        is_first = False
    return Scan(found, end_offset)


async def _open_batch(data: bytes, position: int, header: BatchHeader) -> Iterator[Record]:
    """The batch's records; decompressed in a worker thread where that may take long."""
    if header.compression is Compression.NONE or header.size_bytes <= _INLINE_BYTES:
        return iter_records(data, position, header, limit_bytes=_MAX_DECOMPRESSED_BYTES)
    return await trio.to_thread.run_sync(
        lambda: iter_records(data, position, header, limit_bytes=_MAX_DECOMPRESSED_BYTES)
    )


def _unreadable(partition: int, header: BatchHeader, why: str) -> Message:
    record = Record(header.base_offset, header.base_timestamp_ms, None, f"not shown: {why}".encode())
    return Message(partition, record, Kind.UNREADABLE, header)


def _kinds(partition: Readable, fetched: Fetched, header: BatchHeader) -> Callable[[Record], Kind]:
    """How the records of a batch are to be called."""
    is_aborted = fetched.is_aborted(header)  # of every batch: the answer depends on the markers before it
    if header.is_control:
        return _kind_of_marker
    kind = Kind.RECORD
    if header.is_transactional:
        if header.base_offset >= partition.last_stable_offset:
            kind = Kind.OPEN
        elif is_aborted:
            kind = Kind.ABORTED
    return lambda _: kind


def _kind_of_marker(record: Record) -> Kind:
    try:
        marker = control_record_type(record.key)
    except ProtocolError:
        return Kind.CONTROL
    return _MARKERS.get(marker, Kind.CONTROL)


_MARKERS: Final = {ControlRecordType.COMMIT: Kind.COMMIT, ControlRecordType.ABORT: Kind.ABORT}
