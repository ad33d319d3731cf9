"""Producer ids for this node, taken from the metadata store in blocks.

Kafka's counterpart is org.apache.kafka.controller.ProducerIdControlManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

import trio

from ottla.metadata import keys
from ottla.metadata.changes.transactions import replace_number
from ottla.metastore.store import MetadataStore

BLOCK_LENGTH: Final = 1000

#: Clusters count producer ids from zero. One that mirrors others begins at a random multiple of this.
_FIRST_ID_APART: Final = 1 << 32
_UUID_BITS_LEFT_OUT: Final = 128 - 28


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


async def allocate_block(store: MetadataStore, count: int) -> range:
    """Producer ids that are given to nobody else, ever."""
    first = await replace_number(store, keys.PRODUCER_IDS, lambda before: (before or 0) + count) or 0
    return range(first, first + count)


async def set_apart(store: MetadataStore, new_uuid: Callable[[], UUID]) -> None:
    """From now on give out no producer id that another cluster may have given out."""

    def apart(before: int | None) -> int:
        if before is not None and before >= _FIRST_ID_APART:
            return before
        return _FIRST_ID_APART * (1 + (new_uuid().int >> _UUID_BITS_LEFT_OUT))

    await replace_number(store, keys.PRODUCER_IDS, apart)
