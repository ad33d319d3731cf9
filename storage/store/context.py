"""What all stores of a node share: the disk, the clock, the caches, the settings, and the tasks' owner."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import trio

from ottla.storage.disk.fd_cache import FdCache
from ottla.storage.histogram import Histogram
from ottla.storage.memory.buffer_pool import BufferPool
from ottla.storage.reading.prefetch import Prefetch
from ottla.storage.reading.read_ahead import ReadAhead
from ottla.storage.store.maintenance import Maintenance
from ottla.storage.store.memstore import TailCache

if TYPE_CHECKING:
    from ottla.storage.clock import Clock
    from ottla.storage.config import StorageConfig
    from ottla.storage.disk import Disk
    from ottla.storage.log_manager import StorageListener
    from ottla.storage.store.message_store import MessageStore
    from ottla.storage.store.segment import Segment

logger = logging.getLogger(__name__)

__all__ = ["RunBlocking", "StorageContext"]

RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]
"""How a call that may block is run: `trio.to_thread.run_sync`, but in a simulation in place."""

P = ParamSpec("P")
T = TypeVar("T")


class StorageContext:
    """The services of a node's storage; one object, made by the log manager, known to every store.

    `nursery` owns the write loops and the background tasks; it is set while the log manager runs.
    """

    __slots__ = (
        "_doomed",
        "_last_writer",
        "_run_blocking",
        "_writers",
        "block_writes",
        "boot_id",
        "clock",
        "config",
        "disk",
        "fd_cache",
        "listener",
        "maintenance",
        "nursery",
        "pool",
        "prefetch",
        "read_ahead",
        "tail",
        "written_bytes",
    )

    def __init__(self, disk: Disk, config: StorageConfig, clock: Clock, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self.disk = disk
        self.config = config
        self.clock = clock
        self.fd_cache = FdCache(disk, config.fd_cache_capacity)
        self.pool = BufferPool()
        self.tail = TailCache(config.tail_cache_bytes)
        self.read_ahead = ReadAhead(self)
        self.prefetch = Prefetch(self)
        self.listener: StorageListener | None = None
        self.nursery: trio.Nursery | None = None
        self.boot_id = ""
        #: How long the blocks of all stores took to be written, and synced where they were; and their bytes.
        self.block_writes = Histogram()
        self.written_bytes = 0
        self.maintenance = Maintenance(self)
        self._doomed: list[str] = []
        self._writers: OrderedDict[MessageStore, None] = OrderedDict()
        self._last_writer: MessageStore | None = None

    async def offload(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what may block in a worker thread."""
        result: T = await self._run_blocking(partial(function, *args, **kwargs))
        return result

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a background task which the log manager owns."""
        assert self.nursery is not None, "the log manager is not running"
        self.nursery.start_soon(task)

    def use_writer(self, store: MessageStore) -> None:
        """A store is about to write: of those that do not, only the last few keep their descriptor."""
        if store is self._last_writer:
            return
        self._last_writer = store
        self._writers[store] = None
        self._writers.move_to_end(store)
        surplus = len(self._writers) - self.config.fd_cache_capacity
        for idle in [store for store in self._writers if not store.is_writing][: max(surplus, 0)]:
            del self._writers[idle]
            idle.files.close()

    def forget_writer(self, store: MessageStore) -> None:
        """A store is closed."""
        if store is self._last_writer:
            self._last_writer = None
        self._writers.pop(store, None)
        store.files.close()

    def unpin_segment(self, segment: Segment) -> None:
        """End a use of a segment's files; the last user of a doomed one removes them."""
        segment.pins -= 1
        if segment.doomed and segment.pins == 0:
            self.remove_segment_files(segment)

    def remove_segment(self, segment: Segment) -> None:
        """Remove a segment's files as soon as nobody reads them."""
        segment.doomed = True
        if segment.pins == 0:
            self.remove_segment_files(segment)

    def remove_segment_files(self, segment: Segment) -> None:
        """Remove a segment's files now: in the background, for a large file takes its time."""
        for path in (segment.data_path, segment.index_path):
            self.fd_cache.drop(path)
            self._doomed.append(path)
        if self.nursery is not None:
            self.spawn(self.remove_doomed_files)

    async def remove_doomed_files(self) -> None:
        """Unlink the files that wait for it. One that cannot be is left to the next start."""
        while self._doomed:
            path = self._doomed.pop()
            try:
                await self.offload(self._unlink, path)
            except OSError as error:
                logger.warning("%s cannot be removed: %s", path, error, extra={"path": path, "error": str(error)})
            except trio.Cancelled:
                self._doomed.append(path)
                raise

    def _unlink(self, path: str) -> None:
        if self.disk.exists(path):
            self.disk.unlink(path)
