"""The cache of upstream's records, and the rules by which they may be served."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.records.errors import RecordError
from ottla.proxy.cache.batches import read_batches, trim, with_ends
from ottla.proxy.cache.flights import Flights
from ottla.proxy.cache.seen import READ_COMMITTED, Reader, Readers, Seen
from ottla.proxy.cache.segments import Place, Segments
from ottla.proxy.cache.shelf import Piece, Shelf, Slice
from ottla.proxy.cache.topics import Topics

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence
    from uuid import UUID

    from ottla.kproto.messages.data.fetch import PartitionData
    from ottla.proxy.cache.batches import Batches
    from ottla.proxy.cache.topics import Key
    from ottla.storage.disk.disk import Disk

logger = logging.getLogger(__name__)

_MAX_PARTITIONS: Final = 50_000
_READ_BYTES: Final = 256 * 1024
"""How much is read in one go: well under the 500 µs for which the loop may be held."""
_ENOUGH_BYTES: Final = 128 * 1024
"""Pieces are joined into answers of this size."""
_WRITERS: Final = 2

_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class Counters:
    """Counters of the cache."""

    def __init__(self) -> None:
        self.hits = 0  # partitions that were served
        self.misses = 0  # partitions whose records upstream was asked for
        self.joined = 0  # requests that waited for the answer to another one
        self.checks = 0  # partitions of which upstream was asked again whether they may be served
        self.served_bytes = 0
        self.kept_bytes = 0
        self.unkept = 0  # answers that were not kept because they are damaged

    def count_joined(self) -> None:
        """A request waits for the answer to another one."""
        self.joined += 1

    def count_asked(self, misses: int, checks: int) -> None:
        """Upstream is asked for the records of this many partitions, and whether those of others may be served."""
        self.misses += misses
        self.checks += checks


class Partition:
    """The cache of one partition in one leader epoch. A later epoch starts empty."""

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        #: Served to all readers, and to those that read uncommitted records.
        self.committed, self.uncommitted = Shelf(), Shelf()
        #: By the port on which readers come in, and their isolation level.
        self.seen: dict[tuple[str, int], Seen] = {}
        #: The highest one in an answer of upstream, and when that came.
        self.high_watermark, self._heard_at = -1, 0.0

    def has_shrunk(self, told: Told) -> bool:
        """Whether upstream now names a lower high watermark than in an earlier answer: then it has lost records."""
        return told.data.high_watermark < self.high_watermark and told.asked_at > self._heard_at

    def note(self, told: Told) -> None:
        """Upstream has confirmed this epoch, and said where the partition begins and ends."""
        data, now = told.data, trio.current_time()
        if data.high_watermark >= self.high_watermark:
            self.high_watermark, self._heard_at = data.high_watermark, now
            seen = Seen(data.high_watermark, data.last_stable_offset, data.log_start_offset, now)
            self.seen[told.reader.listener, told.reader.level] = seen

    def seen_by(self, reader: Reader) -> Seen | None:
        """Upstream's last answer on this reader's port, for its isolation level."""
        return self.seen.get((reader.listener, reader.level))

    def shelves(self, isolation_level: int) -> Sequence[Shelf]:
        return (self.committed,) if isolation_level == READ_COMMITTED else (self.committed, self.uncommitted)

    def end_at(self, offset: int, isolation_level: int) -> int:
        """The end of the piece that holds this offset; -1 if there is none."""
        return max(shelf.end_at(offset) for shelf in self.shelves(isolation_level))


class Told(NamedTuple):
    """Upstream's answer to a fetch of this reader at `asked_at`."""

    data: PartitionData
    reader: Reader
    asked_at: float


class Found(NamedTuple):
    """Records from the cache, and the aborted transactions among them, as producer ids and first offsets."""

    records: bytes | memoryview
    aborted: Sequence[tuple[int, int]]


class Cache:
    """The records of all partitions, up to `size_bytes` on disk in `folder`. Empty at the start, gone at the end.

    A full or failing disk empties the cache and switches it off for good; only the log and `is_on` show that.
    """

    def __init__(self, disk: Disk, folder: str, size_bytes: int, vouched: re.Pattern[str] | None = None) -> None:
        self.size_bytes = size_bytes
        self.topics = Topics(vouched)
        self.readers = Readers()
        self.counters = Counters()
        self.flights = Flights()
        self.is_on = True
        self._segments = Segments(disk, folder, size_bytes)
        self._partitions: OrderedDict[Key, Partition] = OrderedDict()
        self._writers = trio.CapacityLimiter(_WRITERS)

    @property
    def used_bytes(self) -> int:
        """The space that it takes on disk."""
        return self._segments.used_bytes

    def partition(self, key: Key, leader_epoch: int) -> Partition | None:
        """The cache of a partition, if it is from this leader epoch."""
        found = self._partitions.get(key)
        return found if found is not None and found.leader_epoch == leader_epoch else None

    def note(self, key: Key, leader_epoch: int, told: Told) -> None:
        """Upstream has answered a request that named this leader epoch; unless there is an error, it agrees with the
        epoch.
        """
        data = told.data
        code = data.error_code
        if code == ErrorCode.NONE and leader_epoch >= 0:
            self._agreed(key, leader_epoch, told)
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.readers.forbid(told.reader.identity, key[0])
        elif code in _GONE:
            self.forget_topic(key[0])
        elif (partition := self._partitions.get(key)) is not None:
            partition.seen.pop((told.reader.listener, told.reader.level), None)

    def _agreed(self, key: Key, leader_epoch: int, told: Told) -> None:
        partition = self._partitions.get(key)
        if partition is not None and leader_epoch < partition.leader_epoch:
            return  # an old leader, which does not know of its successor
        if partition is None or leader_epoch > partition.leader_epoch or partition.has_shrunk(told):
            partition = self._partitions[key] = Partition(leader_epoch)
            while len(self._partitions) > _MAX_PARTITIONS:
                self._partitions.popitem(last=False)
        self._partitions.move_to_end(key)
        partition.note(told)
        self.readers.let(told.reader.identity, key[0], told.asked_at)

    def forget(self, key: Key) -> None:
        """Drop the cached records of a partition."""
        self._partitions.pop(key, None)

    def forget_topic(self, topic_id: UUID) -> None:
        """Drop the cached records of a topic, and ask for its description again."""
        self.topics.forget(topic_id)
        for key in [it for it in self._partitions if it[0] == topic_id]:
            del self._partitions[key]

    async def keep(self, key: Key, leader_epoch: int, offset: int, level: int, data: PartitionData) -> None:
        """Keep the records that upstream has given for an offset. Their memory is used until this returns."""
        partition = self.partition(key, leader_epoch)
        records = memoryview(data.records or b"")
        if partition is None or not self.is_on or not 0 < len(records) <= self._segments.largest_bytes:
            return
        if partition.end_at(offset, level) >= 0:
            return
        try:
            place = self._segments.reserve(len(records))
        except OSError as error:
            self._switch_off(error)
            return
        try:
            batches = await trio.to_thread.run_sync(self._write, place, records, offset, limiter=self._writers)
        except OSError as error:
            self._switch_off(error)
        except RecordError as error:
            self.counters.unkept += 1
            logger.warning("an answer from upstream is not kept: %s", error, extra={"error": str(error)})
        else:
            if batches is not None and not place.segment.is_dropped and self._partitions.get(key) is partition:
                self._put(partition, place, batches, level, data)
        finally:
            self._segments.leave(place.segment)

    def _write(self, place: Place, records: memoryview, offset: int) -> Batches | None:
        self._segments.sweep()
        batches = read_batches(records, offset)
        if batches is not None:
            self._segments.write(place, records[: batches.size_bytes])
        return batches

    def _put(self, partition: Partition, place: Place, batches: Batches, level: int, data: PartitionData) -> None:
        is_plain = not batches.is_transactional and 0 <= batches.end <= data.last_stable_offset
        shelf = partition.committed if level == READ_COMMITTED or is_plain else partition.uncommitted
        listed = [(it.producer_id, it.first_offset) for it in data.aborted_transactions or ()]
        piece = Piece(place, batches, with_ends(listed, batches.aborts))
        if shelf.add(piece):
            self.counters.kept_bytes += batches.size_bytes
            place.segment.on_drop.add(shelf.prune)

    async def read(self, partition: Partition, offset: int, max_bytes: int, level: int) -> Found | None:
        """About this many bytes of records from an offset on, at least one batch; None if none are kept any more."""
        found: list[memoryview] = []
        aborted: dict[tuple[int, int], None] = {}
        size_bytes = 0
        while size_bytes < min(max_bytes, _ENOUGH_BYTES):
            part = self._next(partition, offset, max_bytes - size_bytes, level)
            if part is None or (found and part.place.size_bytes > max_bytes - size_bytes):
                break
            try:
                data = await self._load(part.place)
            except OSError as error:
                self._switch_off(error)
                return None
            records, end = trim(memoryview(data), offset, max_bytes - size_bytes, part.end)
            for one in part.piece.aborted:
                if one.first_offset < end and (one.last_offset < 0 or one.last_offset >= offset):
                    aborted[one.producer_id, one.first_offset] = None
            found.append(records)
            size_bytes += len(records)
            offset = end
        if not found:
            return None
        self.counters.hits += 1
        self.counters.served_bytes += size_bytes
        return Found(found[0] if len(found) == 1 else b"".join(found), sorted(aborted, key=lambda it: it[1]))

    def _next(self, partition: Partition, offset: int, max_bytes: int, level: int) -> Slice | None:
        for shelf in partition.shelves(level):
            if (part := shelf.slice(offset, max_bytes)) is not None:
                return part
        return None

    async def _load(self, place: Place) -> bytearray:
        """The bytes of a place. If they are not in memory, a worker thread reads them."""
        room = bytearray(place.size_bytes)
        view = memoryview(room)
        self._segments.enter(place.segment)
        try:
            done = 0
            while done < len(room):
                step = min(len(room) - done, _READ_BYTES)
                part = Place(place.segment, place.position + done, step)
                count = self._segments.read(part, view[done : done + step], nowait=True)
                if not count:
                    count = await trio.to_thread.run_sync(self._read, part, view[done : done + step])
                done += count
                if done < len(room):
                    await trio.lowlevel.checkpoint()
        finally:
            self._segments.leave(place.segment)
        return room

    def _read(self, place: Place, room: memoryview) -> int:
        count = self._segments.read(place, room, nowait=False)
        if count < len(room):
            raise OSError(f"{count} of {len(room)} bytes could be read")
        return count

    def close(self) -> None:
        """Give all space back. Nothing is kept afterwards."""
        self.is_on = False
        self._partitions.clear()
        self._segments.drop_all()
        self._segments.sweep()

    def _switch_off(self, error: OSError) -> None:
        if self.is_on:
            logger.error("the cache is switched off until the next start: %s", error, extra={"error": str(error)})
        self.is_on = False
        self._partitions.clear()
        self._segments.drop_all()
