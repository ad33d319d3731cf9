"""Reading what is in the object store: an index and a range of a part for the first byte, then ahead of the reader.

What is fetched is a *window*: runs of one partition that lie next to each other in one part, 4 MiB of them. A window is
compared with the checksums of its runs before anybody sees a byte of it, also when it comes out of the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import trio

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import iter_batches
from ottla.kproto.records.crc import value as crc_of
from ottla.tiers.errors import CorruptObjectError, ObjectStoreUnavailableError, TierError
from ottla.tiers.offload import Offload, in_a_thread
from ottla.tiers.partition_index import PartitionIndex
from ottla.tiers.reading.fetched_once import FetchedOnce
from ottla.tiers.reading.windows import Window, WindowedIndex, require_runs

if TYPE_CHECKING:
    from ottla.storage.state.aborted_transactions import AbortedTransaction
    from ottla.tiers.manifest import Manifest, RemoteSegment
    from ottla.tiers.names import TopicNames, UploadId
    from ottla.tiers.object_store import Content, ObjectStore
    from ottla.tiers.reading.disk_cache import DiskCache

__all__ = ["RemoteRecords", "TierReader"]

_WINDOWS_IN_MEMORY: Final = 8
_INDEXES_IN_MEMORY: Final = 64
_CONCURRENT_FETCHES: Final = 8
_CONCURRENT_WRITES: Final = 4
_WINDOWS_AHEAD: Final = 3
#: Of all readers together: what is fetched ahead must still be in memory when its reader comes to it.
_WINDOWS_AHEAD_IN_ALL: Final = _WINDOWS_IN_MEMORY // 2
_AHEAD_SECONDS: Final = 10.0
_READERS_REMEMBERED: Final = 1024

T = TypeVar("T")


class RemoteRecords(NamedTuple):
    """Whole batches, the first of which has the offset or follows it, and the offset to read on from."""

    content: Content
    next_offset: int
    #: Those that have records from the offset that was asked for up to `next_offset`, by their first offset.
    aborted: Sequence[AbortedTransaction]


class _Key(NamedTuple):
    """A window of an index; a `first_run` of -1 means the index itself."""

    upload: UploadId
    partition: int
    first_run: int


class TierReader:
    """Reads partitions out of the object store, for as long as `run` is entered. It owns every fetch that is under way.

    Memory: eight windows and what is being fetched, eight at a time, each 4 MiB (or one larger batch).
    """

    def __init__(self, store: ObjectStore, cache: DiskCache, *, offload: Offload = in_a_thread) -> None:
        self._store = store
        self._cache = cache
        self._offload = offload
        self._nursery: trio.Nursery | None = None
        self._fetching = trio.CapacityLimiter(_CONCURRENT_FETCHES)
        self._writing = trio.Semaphore(_CONCURRENT_WRITES)
        self._windows: FetchedOnce[_Key, Content] = FetchedOnce(_WINDOWS_IN_MEMORY)
        self._indexes: FetchedOnce[_Key, WindowedIndex] = FetchedOnce(_INDEXES_IN_MEMORY)
        #: Windows that no reader has reached yet, and when their fetch began.
        self._ahead: dict[_Key, float] = {}
        #: Where reads have ended: one that goes on from there is read ahead for.
        self._ends: OrderedDict[tuple[UploadId, int, int], None] = OrderedDict()
        #: How many bytes were fetched from the object store.
        self.fetched_bytes = 0

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Own the fetches; on leaving they are cancelled, and who waits for one gets ObjectStoreUnavailableError."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                yield
            finally:
                self._nursery = None
                nursery.cancel_scope.cancel()

    async def read(
        self, names: TopicNames, manifest: Manifest, offset: int, *, max_bytes: int, end_offset: int
    ) -> RemoteRecords:
        """Batches from an offset on, at most `max_bytes` of them but at least one, none with an offset of `end_offset`.

        It may be less than there is. Nothing, with `next_offset` where the manifest ends, if no batch is left.

        Raises ObjectStoreUnavailableError if the store cannot answer now, CorruptObjectError if what it answers is not
        what was uploaded, ObjectMissingError if it lacks an object that the manifest names: a manifest that is not the
        newest may name what was deleted since.
        """
        asked = offset
        while (segment := manifest.find(offset)) is not None:
            found = await self._index(names, manifest.partition, segment)
            index = found.partition_index
            place = index.place_of(offset)
            if place == len(index):
                offset = segment.last_offset + 1
                continue
            window = found.window_at(place)
            content = await self._window(names, manifest.partition, segment, window)
            end, next_offset = await self._offload(_cut, content, offset, max_bytes, end_offset)
            if not end:
                return RemoteRecords(b"", offset, ())
            self._note_end(names, manifest, segment, found, window, asked, next_offset)
            aborted = index.aborted.collect(asked, next_offset)
            return RemoteRecords(memoryview(content)[end.start : end.stop], next_offset, aborted)
        return RemoteRecords(b"", offset, ())

    async def index(self, names: TopicNames, partition: int, segment: RemoteSegment) -> PartitionIndex:
        """The index of a segment. Raises as `read` does."""
        return (await self._index(names, partition, segment)).partition_index

    async def _index(self, names: TopicNames, partition: int, segment: RemoteSegment) -> WindowedIndex:
        key = _Key(segment.upload, partition, -1)
        return await self._indexes.get(key, lambda: self._fetch_index(names, partition, segment, key), self._spawn)

    # Fetching.

    async def _fetch_index(self, names: TopicNames, partition: int, segment: RemoteSegment, key: _Key) -> WindowedIndex:
        def parse(content: Content) -> WindowedIndex:
            if len(content) != segment.index_length or crc_of(content) != segment.index_crc:
                raise CorruptObjectError(f"{name} is not what was uploaded")
            index = PartitionIndex(bytes(content), names.topic_id, partition, segment.base_offset, segment.last_offset)
            return WindowedIndex.of(index)

        name = names.index(segment.upload)
        return await self._fetch(key, name, segment.index_position, segment.index_length, parse)

    async def _window(self, names: TopicNames, partition: int, segment: RemoteSegment, window: Window) -> Content:
        key = _Key(segment.upload, partition, window.first)
        self._ahead.pop(key, None)
        return await self._fetched_window(names, segment, window, key)

    async def _fetched_window(self, names: TopicNames, segment: RemoteSegment, window: Window, key: _Key) -> Content:
        return await self._windows.get(
            key, lambda: self._fetch_window(names.part(segment.upload, window.runs[0].part), key, window), self._spawn
        )

    async def _fetch_window(self, name: str, key: _Key, window: Window) -> Content:
        def check(content: Content) -> Content:
            require_runs(name, content, window)
            return content

        return await self._fetch(key, name, window.position, window.length, check)

    async def _fetch(self, key: _Key, name: str, position: int, length: int, check: Callable[[Content], T]) -> T:
        """The result of `check` for a range of an object, from the cache or the store."""
        cached = await self._cache.get(key)
        if cached is not None:
            try:
                return await self._offload(check, cached)
            except CorruptObjectError:
                self._cache.drop(key)
        async with self._fetching:
            content = await self._store.get_range(name, position, length)
        self.fetched_bytes += len(content)
        checked = await self._offload(check, content)
        self._keep_on_disk(key, content)
        return checked

    def _keep_on_disk(self, key: _Key, content: Content) -> None:
        """Write it to the cache in the background; not at all if the disk lags behind."""
        try:
            self._writing.acquire_nowait()
        except trio.WouldBlock:
            return

        async def keep() -> None:
            try:
                await self._cache.put(key, content)
            finally:
                self._writing.release()

        self._spawn(keep)

    def _spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        if self._nursery is None:
            raise ObjectStoreUnavailableError("the node stops: nothing more is read from the object store")
        self._nursery.start_soon(task)

    # Reading ahead.

    def _note_end(
        self,
        names: TopicNames,
        manifest: Manifest,
        segment: RemoteSegment,
        found: WindowedIndex,
        window: Window,
        offset: int,
        next_offset: int,
    ) -> None:
        """A read has ended there. If it began where another one had, what follows is fetched before it is asked for."""
        key = (segment.upload, manifest.partition, offset)
        goes_on = self._ends.pop(key, _NOT_THERE) is not _NOT_THERE
        if next_offset > window.last_offset:
            self._windows.let_go_first(_Key(segment.upload, manifest.partition, window.first))
        following = manifest.find(next_offset)
        if following is None:
            return
        self._ends[following.upload, manifest.partition, next_offset] = None
        while len(self._ends) > _READERS_REMEMBERED:
            self._ends.popitem(last=False)
        if goes_on and self._nursery is not None:
            for _ in range(_WINDOWS_AHEAD):
                place = window.first + len(window.runs)
                if place >= len(found.partition_index):
                    self._fetch_following(names, manifest, segment)
                    break
                window = found.window_at(place)
                self._fetch_ahead(names, manifest.partition, segment, window)

    def _fetch_ahead(self, names: TopicNames, partition: int, segment: RemoteSegment, window: Window) -> None:
        key = _Key(segment.upload, partition, window.first)
        if key in self._windows or self._fetching.available_tokens < 1 or not self._has_room_ahead():
            return
        self._ahead[key] = trio.current_time()

        async def fetch() -> None:
            try:
                await self._fetched_window(names, segment, window, key)
            except TierError:
                # The read that needs it fetches it again, and raises.
                self._ahead.pop(key, None)

        self._spawn(fetch)

    def _has_room_ahead(self) -> bool:
        if len(self._ahead) < _WINDOWS_AHEAD_IN_ALL:
            return True
        oldest = next(iter(self._ahead))
        if trio.current_time() - self._ahead[oldest] < _AHEAD_SECONDS:
            return False
        # Its reader has gone.
        del self._ahead[oldest]
        self._windows.let_go_first(oldest)
        return True

    def _fetch_following(self, names: TopicNames, manifest: Manifest, segment: RemoteSegment) -> None:
        """The beginning of the segment that follows another one."""
        following = manifest.find(segment.last_offset + 1)
        if following is None:
            return

        async def fetch() -> None:
            try:
                found = await self._index(names, manifest.partition, following)
            except TierError:
                return
            if len(found.partition_index):
                self._fetch_ahead(names, manifest.partition, following, found.window_at(0))

        self._spawn(fetch)


_NOT_THERE: Final = object()


def _cut(content: Content, offset: int, max_bytes: int, end_offset: int) -> tuple[range, int]:
    """(where the batches lie that may be given out, the offset that follows them); an empty range if none may. Blocks.

    The content has a batch that reaches the offset.
    """
    first = end = -1
    next_offset = offset
    try:
        for position, header in iter_batches(content):
            if header.next_offset <= offset:
                continue
            is_too_much = first >= 0 and position + header.size_bytes - first > max_bytes
            if is_too_much or header.next_offset > end_offset:
                break
            if first < 0:
                first = position
            end = position + header.size_bytes
            next_offset = header.next_offset
    except ProtocolError as error:
        raise CorruptObjectError(f"a batch from offset {offset} on cannot be read: {error}") from error
    return range(max(first, 0), max(end, 0)), next_offset
