"""Producer ids for this node, taken from the metadata store in blocks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


class ProducerIds:
    """Gives out each producer id once. `allocate` fetches the next block, which no other node will get."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = iter(range(0))
        self._turn = trio.Lock()

    async def next(self) -> int:
        """A producer id that was never given out before; raises MetadataError if none can be had now."""
        producer_id = next(self._block, None)
        while producer_id is None:
            async with self._turn:
                producer_id = next(self._block, None)  # another task may have fetched the block
                if producer_id is None:
                    self._block = iter(await self._allocate())
                    producer_id = next(self._block, None)
        return producer_id

    def forget_block(self) -> None:
        """Take the next ids from a new block."""
        self._block = iter(range(0))
