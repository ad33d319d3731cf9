"""The flushed blocks that are still in memory, for the readers of the tail."""

from __future__ import annotations

from collections import OrderedDict

from ottla.runtime.time_slice import TimeSlice
from ottla.storage.store.memstore import Memstore

__all__ = ["TailCache"]


class TailCache:
    """The blocks of all stores of a node, within a bound.

    Eviction takes the oldest block first: the readers of a log's tail want the newest, and so each log's part of the
    cache is one unbroken range up to its flushed end. Only this class lets go of a block. A log may let go of its own
    part earlier (when it is compacted or truncated); what a block is counted for stays until it is evicted.
    """

    __slots__ = ("_blocks", "_of_owner", "limit_bytes", "size_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._blocks: OrderedDict[Memstore, int] = OrderedDict()
        self._of_owner: dict[object, dict[Memstore, None]] = {}

    def __len__(self) -> int:
        """How many blocks are kept."""
        return len(self._blocks)

    def add(self, memstore: Memstore) -> None:
        """Keep a flushed memstore of a store, whose groups are in their logs' tails; `evict` takes a few old ones."""
        cost = memstore.footprint_bytes()
        self._blocks[memstore] = cost
        self._of_owner.setdefault(memstore.owner, {})[memstore] = None
        self.size_bytes += cost
        self.evict()

    def evict(self) -> bool:
        """Let go of a few of the oldest blocks, down to the bound; True if more must go.

        A large block displaces thousands of small ones, which together would hold the event loop for 40 ms.
        """
        if self.size_bytes <= self.limit_bytes:
            return False
        time_slice = TimeSlice()
        while self.size_bytes > self.limit_bytes and self._blocks:
            self._let_go(next(iter(self._blocks)))
            if time_slice.is_over:
                break
        return self.size_bytes > self.limit_bytes and bool(self._blocks)

    async def forget(self, owner: object) -> None:
        """Let go of all blocks of a store, a few at a time. Nothing is added for it meanwhile."""
        # A list, because the first key of a dictionary is found by passing over all that were removed before it.
        time_slice = TimeSlice()
        for memstore in list(self._of_owner.get(owner, ())):
            if memstore in self._blocks:
                self._let_go(memstore)
            await time_slice.maybe_yield()

    def clear(self) -> None:
        """Let go of everything, when no client is left who would wait for it."""
        while self._blocks:
            self._let_go(next(iter(self._blocks)))

    def _let_go(self, memstore: Memstore) -> None:
        self.size_bytes -= self._blocks.pop(memstore)
        owner = memstore.owner
        blocks = self._of_owner[owner]
        del blocks[memstore]
        if not blocks:
            del self._of_owner[owner]
        for log, group in memstore.groups.items():
            log.forget_tail(group)
        memstore.release()
