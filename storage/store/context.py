"""What all stores of a node share: the disk, the clock, the caches, the settings, and the tasks' owner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

import trio

from ottla.storage.clock import Clock
from ottla.storage.config import StorageConfig
from ottla.storage.disk.disk import Disk
from ottla.storage.disk.fd_cache import FdCache
from ottla.storage.histogram import Histogram
from ottla.storage.memory.buffer_pool import BufferPool
from ottla.storage.store.damage import KnownDamage
from ottla.storage.store.memstore import StoreLog
from ottla.storage.store.space import Space
from ottla.storage.store.tail_cache import TailCache
from ottla.storage.store.writers import Writers
from ottla.storage.turn import Turn

__all__ = ["RunBlocking", "StorageContext", "StoreListener"]

RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]
"""How a call that may block is run: `trio.to_thread.run_sync`, or in a simulation in steps of its own."""

P = ParamSpec("P")
T = TypeVar("T")


class StoreListener(Protocol):
    """Who is told about durability. Called synchronously on the event loop: it must neither wait nor raise."""

    def on_flushed(self, logs: Sequence[StoreLog]) -> None:
        """`flushed_end_offset` (or the log start offset) of these logs has moved."""

    def on_stalled(self, logs: Sequence[StoreLog]) -> None:
        """The disk is full: what these logs were given but is not flushed is not acknowledged for now."""

    def on_offline(self, logs: Sequence[StoreLog], error: Exception) -> None:
        """The store of these logs has stopped for good: nothing more will be flushed or acknowledged."""

    def on_damaged(self, logs: Sequence[StoreLog]) -> None:
        """Something was found in the files of these logs that cannot be read."""


class StorageContext:
    """The services of a node's storage; one object, made by the log manager, known to every store.

    The log manager's nursery owns the tasks that are spawned here; there is one while the log manager runs.
    """

    __slots__ = (
        "_nursery",
        "_run_blocking",
        "block_writes",
        "boot_id",
        "clock",
        "config",
        "damage",
        "disk",
        "fd_cache",
        "listener",
        "pool",
        "space",
        "tail",
        "turn",
        "writers",
        "written_bytes",
    )

    def __init__(
        self, disk: Disk, config: StorageConfig, clock: Clock, run_blocking: RunBlocking, *, reserve_path: str = ""
    ) -> None:
        self._run_blocking = run_blocking
        self._nursery: trio.Nursery | None = None
        self.disk = disk
        self.config = config
        self.clock = clock
        self.fd_cache = FdCache(disk, config.fd_cache_capacity)
        self.writers = Writers(config.fd_cache_capacity)
        self.pool = BufferPool()
        self.tail = TailCache(config.tail_cache_bytes)
        self.damage = KnownDamage()
        self.turn = Turn()
        self.space = Space(disk, reserve_path, config.disk_reserve_bytes, self)
        self.listener: StoreListener | None = None
        self.boot_id = ""
        #: How long the blocks of all stores took to be written, and synced where they were; and their bytes.
        self.block_writes = Histogram()
        self.written_bytes = 0

    def begin(self, nursery: trio.Nursery) -> None:
        """The log manager runs: its nursery owns what is spawned."""
        self._nursery = nursery
        self.boot_id = self.disk.boot_id()

    def end(self) -> None:
        """All stores are closed: let go of what they shared."""
        self._nursery = None
        self.tail.clear()
        self.fd_cache.close()

    @property
    def is_running(self) -> bool:
        """Whether tasks can be spawned."""
        return self._nursery is not None

    def configure(self, config: StorageConfig) -> None:
        """Take changed settings; the sizes of caches stay."""
        self.config = config

    def listen(self, listener: StoreListener | None) -> None:
        """Tell this listener about durability from now on."""
        self.listener = listener

    def count_block(self, size_bytes: int, seconds: float) -> None:
        """A block was written."""
        self.block_writes.observe(seconds)
        self.written_bytes += size_bytes

    def shed_descriptors(self) -> None:
        """The process has no descriptors left: close those that are kept open and not used."""
        self.fd_cache.shed()
        self.writers.shed()

    async def offload(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what may block in a worker thread."""
        result: T = await self._run_blocking(partial(function, *args, **kwargs))
        return result

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a background task which the log manager owns."""
        assert self._nursery is not None, "the log manager is not running"
        self._nursery.start_soon(task)
