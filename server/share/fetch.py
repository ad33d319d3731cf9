"""The delayed share fetch: it waits until there is something that a member may have, then reads and acquires it.

Kafka's counterparts are DelayedShareFetch and ShareFetchUtils.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.coordinator.errors import CoordinatorError
from ottla.replica.errors import ReplicaError
from ottla.replica.fetch import FetchParams, FetchPartition
from ottla.runtime.errors import kept
from ottla.server.share.errors import ShareError
from ottla.server.share.partition import Life
from ottla.server.share.records import Span
from ottla.storage.errors import OffsetOutOfRangeError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from ottla.replica.append import TopicIdPartition
    from ottla.replica.fetch import FetchResult
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Isolation
    from ottla.server.share.partition import SharePartition
    from ottla.server.share.records import Acquired
    from ottla.storage.memory.iobuf import IOBuf

# Of a batch header: base offset, length behind it, attributes, last offset delta, producer id.
_HEADER: Final = struct.Struct(">qi9xhi16xq")
_LENGTH_PREFIX_BYTES: Final = 12
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_COPIED_AT_ONCE_BYTES: Final = 256 * 1024
"""Copied at memory speed, this much stays well under the 500 µs for which the loop may be held."""


class ShareFetchParams(NamedTuple):
    """The parameters of a share fetch (KIP-932, KIP-1206)."""

    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    is_strict: bool
    isolation: Isolation


class ShareFetchResult:
    """One partition's answer: an error, or what was acquired and the record batches that hold it.

    Its holder calls `release` when the records have been sent, or are not wanted.
    """

    __slots__ = ("_fetched", "acquired", "error", "key", "records", "share")

    def __init__(self, key: TopicIdPartition, share: SharePartition | None, error: Exception | None = None) -> None:
        self.key = key
        self.share = share
        self.error = error
        self.acquired: list[Acquired] = []
        self.records: memoryview | None = None
        self._fetched: FetchResult | None = None

    def hold(self, fetched: FetchResult) -> None:
        """The memory that was charged for the records is given back with this."""
        self._fetched = fetched

    def release(self) -> None:
        """Give back the memory."""
        fetched, self._fetched = self._fetched, None
        self.records = None
        if fetched is not None:
            fetched.release()


Readable = tuple[ShareFetchResult, "SharePartition"]
"""A share partition of which something can be acquired now, and where its answer goes."""


def _loaded_at(readable: Readable) -> float:
    return readable[1].active_since


class ShareFetchOperation:
    """One member's share fetch over several share partitions. `run` is its whole life."""

    def __init__(
        self, params: ShareFetchParams, results: Sequence[ShareFetchResult], replica_manager: ReplicaManager
    ) -> None:
        #: Of those that are led here; the others are answered already.
        self.results = [result for result in results if result.share is not None]
        self._params = params
        self._replica_manager = replica_manager
        self._ready: list[Readable] = []
        self._began = trio.current_time()

    async def run(self, *, before_wait: Callable[[], None] | None = None) -> None:
        """Wait, read and acquire. The results hold what came of it."""
        purgatory = self._replica_manager.share_fetch_purgatory
        try:
            if self._try_complete() is None:
                if before_wait is not None:
                    before_wait()
                if await purgatory.wait(self._keys, self._try_complete, self._params.max_wait_ms) is None:
                    self._reserve(self._readable())
            await self._read()
        finally:
            for _, share in self._ready:
                share.end_fetch()
                purgatory.signal(share)

    @property
    def _keys(self) -> Iterator[Hashable]:
        for result in self.results:
            if result.share is not None:
                yield result.share
                yield result.share.partition

    def _try_complete(self) -> bool | None:
        readable = self._readable()
        if all(result.error is not None for result in self.results):
            return True
        enough = next(filter(self._are_enough, self._as_they_came(readable)), None)
        if enough is None:
            return None
        self._reserve(enough)
        return True

    def _as_they_came(self, readable: list[Readable]) -> Iterator[list[Readable]]:
        """The readable partitions at first, and again each time that the state of another one has been loaded.

        The first that is loaded is answered, as in Kafka, although the next may be loaded before the fetch looks.
        """
        loaded = sorted((each for each in readable if each[1].active_since > self._began), key=_loaded_at)
        came = [each for each in readable if each[1].active_since <= self._began]
        yield came
        for each in loaded:
            came = [*came, each]
            yield came

    def _are_enough(self, readable: list[Readable]) -> bool:
        least = self._params.min_bytes
        return bool(readable) and (least <= 1 or self._size_bytes(readable) >= least)

    def _readable(self) -> list[Readable]:
        """The partitions that may be fetched now; notes those that have ended."""
        readable = []
        for result in self.results:
            share = result.share
            if result.error is not None or share is None:
                continue
            if share.life is Life.ENDED:
                result.error = share.error
            elif share.can_acquire() and share.in_flight.next_fetch_offset() < self._end_offset(share):
                readable.append((result, share))
        return readable

    def _end_offset(self, share: SharePartition) -> int:
        return share.partition.visible_end(self._params.isolation)

    def _size_bytes(self, readable: Sequence[Readable]) -> int:
        size_bytes = 0
        for _, share in readable:
            offset = share.in_flight.next_fetch_offset()
            if offset < share.partition.log.log_start_offset:
                return self._params.min_bytes  # it is in the object store, and nobody waits for more of it
            plan = share.partition.log.plan_read(
                offset,
                max_bytes=self._params.min_bytes,
                end_offset=self._end_offset(share),
                min_one_batch=True,
            )
            size_bytes += plan.size_bytes
            plan.release()
        return size_bytes

    def _reserve(self, readable: list[Readable]) -> None:
        for _, share in readable:
            share.begin_fetch()
        self._ready = readable

    async def _read(self) -> None:
        if not self._ready:
            return
        params = FetchParams(max_bytes=self._params.max_bytes, isolation=self._params.isolation)
        most_bytes = max(1, self._params.max_bytes // len(self._ready))
        offsets = [share.in_flight.next_fetch_offset() for _, share in self._ready]
        asked = [
            FetchPartition(share.key.topic_id, share.key.partition, offset, most_bytes, share.leader_epoch)
            for (_, share), offset in zip(self._ready, offsets, strict=True)
        ]
        fetched = await self._replica_manager.fetch(params, asked)
        left = self._params.max_records
        try:
            for (result, share), offset, each in zip(self._ready, offsets, fetched, strict=True):
                try:
                    left -= await self._acquire(result, share, offset, each, left)
                except (ShareError, CoordinatorError, ReplicaError, StorageError) as error:
                    result.error = kept(error)
                    each.release()
        except BaseException:
            for each in fetched:
                each.release()
            raise

    async def _acquire(
        self, result: ShareFetchResult, share: SharePartition, offset: int, fetched: FetchResult, max_records: int
    ) -> int:
        """Acquire what may be of one partition's records; returns how many."""
        if fetched.error is not None:
            # The log has lost its beginning meanwhile: the member asks again, and gets what is left.
            if not isinstance(fetched.error, OffsetOutOfRangeError):
                result.error = fetched.error
            fetched.release()
            return 0
        if fetched.records is None or max_records <= 0:
            fetched.release()
            return 0
        records = await _contiguous(fetched.records)
        # What others hold lies in between: as much as may be in flight has to be looked at.
        most = share.in_flight.max_records
        batches = list(_walk(records, offset, most + min(most, max_records)))
        result.acquired = share.acquire(
            self._params.member_id,
            offset,
            [batch.span for batch in batches],
            _aborted(batches, fetched.aborted_transactions or ()),
            max_records=max_records,
            batch_size=self._params.batch_size,
            is_strict=self._params.is_strict,
        )
        if not result.acquired:
            fetched.release()
            return 0
        result.records = _covering(records, batches, result.acquired)
        result.hold(fetched)
        return sum(each.record_count for each in result.acquired)


class _FetchedBatch(NamedTuple):
    span: Span
    begin: int
    end: int
    attributes: int
    producer_id: int


async def _contiguous(records: IOBuf) -> memoryview:
    """A copy in one piece; others run in between where there is much of it."""
    if records.size_bytes <= _COPIED_AT_ONCE_BYTES:
        return memoryview(records.to_bytes())
    copied = bytearray()
    for view in records:
        for begin in range(0, len(view), _COPIED_AT_ONCE_BYTES):
            copied += view[begin : begin + _COPIED_AT_ONCE_BYTES]
            await trio.lowlevel.checkpoint()
    return memoryview(copied)


def _walk(records: memoryview, offset: int, count: int) -> Iterator[_FetchedBatch]:
    """The record batches that begin within so many offsets, of the one that was asked for or of the first there is."""
    position = end_offset = 0
    while position + _HEADER.size <= len(records):
        base_offset, length, attributes, last_delta, producer_id = _HEADER.unpack_from(records, position)
        if not position:
            # Compaction may have left nothing for far more offsets than that.
            end_offset = max(offset, base_offset) + count
        if base_offset >= end_offset:
            return
        end = position + _LENGTH_PREFIX_BYTES + length
        yield _FetchedBatch(Span(base_offset, base_offset + last_delta), position, end, attributes, producer_id)
        position = end


def _aborted(batches: Sequence[_FetchedBatch], transactions: Sequence[tuple[int, int]]) -> list[Span]:
    """The batches of transactions that were aborted; those are in the order of their first offsets."""
    if not transactions:
        return []
    left = list(reversed(transactions))
    open_producers: set[int] = set()
    aborted = []
    for batch in batches:
        while left and left[-1][1] <= batch.span.last:
            open_producers.add(left.pop()[0])
        if batch.attributes & _CONTROL:
            open_producers.discard(batch.producer_id)
        elif batch.attributes & _TRANSACTIONAL and batch.producer_id in open_producers:
            aborted.append(batch.span)
    return aborted


def _covering(records: memoryview, batches: Sequence[_FetchedBatch], acquired: Sequence[Acquired]) -> memoryview:
    """The part of the records that holds what was acquired, in whole batches."""
    first, last = acquired[0].first, acquired[-1].last
    covering = [batch for batch in batches if batch.span.last >= first and batch.span.first <= last]
    return records[covering[0].begin : covering[-1].end] if covering else records
