"""A bounded cache of read-only descriptors: Mofka's LRU cache whose eviction skips what is in use."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from types import TracebackType

from ottla.storage.disk.disk import Disk, Handle


@dataclass(slots=True)
class FdCacheCounters:
    """Counters of the cache since it was created."""

    hits: int = 0
    misses: int = 0
    evicted: int = 0


class Descriptor:
    """An open file. `pins` counts the reads that use it; a dropped one is closed when the last is done."""

    __slots__ = ("dropped", "handle", "pins")

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.pins = 0
        self.dropped = False


class PinnedFd:
    """A descriptor in use, until the `with` block ends; inside it, the handle is valid in any thread."""

    __slots__ = ("_cache", "_descriptor", "_path")

    def __init__(self, cache: FdCache, path: str) -> None:
        self._cache = cache
        self._path = path
        self._descriptor: Descriptor | None = None

    def __enter__(self) -> Handle:
        self._descriptor = self._cache.pin(self._path)
        return self._descriptor.handle

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            self._cache.unpin(self._descriptor)
            self._descriptor = None


class FdCache:
    """At most `capacity` descriptors stay open; more only while more are in use at once.

    Not thread-safe: pin and unpin on the event loop's thread, around the worker thread's read.
    """

    __slots__ = ("_descriptors", "_disk", "_pinned_dropped", "capacity", "counters")

    def __init__(self, disk: Disk, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("the capacity must be at least one descriptor")
        self._disk = disk
        self.capacity = capacity
        self.counters = FdCacheCounters()
        self._descriptors: OrderedDict[str, Descriptor] = OrderedDict()
        self._pinned_dropped = 0

    def __len__(self) -> int:
        """How many descriptors are open."""
        return len(self._descriptors) + self._pinned_dropped

    @property
    def in_use(self) -> int:
        """How many of them somebody reads or sends from."""
        return self._pinned_dropped + sum(1 for descriptor in self._descriptors.values() if descriptor.pins)

    def pinned(self, path: str) -> PinnedFd:
        """Use a file's descriptor: `with cache.pinned(path) as handle`. Entering it raises OSError if that fails."""
        return PinnedFd(self, path)

    def pin(self, path: str) -> Descriptor:
        """Open or reuse a file's descriptor and keep it open; every pin needs one `unpin`."""
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            self.counters.misses += 1
            self._evict(self.capacity - 1)
            descriptor = self._descriptors[path] = Descriptor(self._disk.open_read(path))
        else:
            self.counters.hits += 1
            self._descriptors.move_to_end(path)
        descriptor.pins += 1
        return descriptor

    def share(self, descriptor: Descriptor) -> None:
        """Use a descriptor that is in use once more; it needs one more `unpin`."""
        descriptor.pins += 1

    def unpin(self, descriptor: Descriptor) -> None:
        """End one use of a descriptor."""
        descriptor.pins -= 1
        if descriptor.pins:
            return
        if descriptor.dropped:
            self._pinned_dropped -= 1
            self._disk.close(descriptor.handle)
        elif len(self._descriptors) > self.capacity:
            self._evict(self.capacity)

    def drop(self, path: str) -> None:
        """Close a file that was removed or replaced, now or when the reads that use it are done."""
        descriptor = self._descriptors.pop(path, None)
        if descriptor is None:
            return
        if descriptor.pins:
            descriptor.dropped = True
            self._pinned_dropped += 1
        else:
            self._disk.close(descriptor.handle)

    def shed(self) -> None:
        """Close what nobody is using: the process has no descriptors left."""
        self._evict(0)

    def close(self) -> None:
        """Drop every file."""
        for path in list(self._descriptors):
            self.drop(path)

    def _evict(self, limit: int) -> None:
        """Close the least recently used descriptors that nobody uses, until no more than `limit` are left."""
        surplus = len(self._descriptors) - limit
        if surplus <= 0:
            return
        idle = [path for path, descriptor in self._descriptors.items() if not descriptor.pins]
        for path in idle[:surplus]:
            self.counters.evicted += 1
            self.drop(path)
