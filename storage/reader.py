"""Reading: a plan per partition, made without waiting, and one call which fills all plans of a fetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.storage.iobuf import IOBuf
    from ottla.storage.partition_log import PartitionLog

__all__ = ["ReadPlan", "read"]


class ReadPlan:
    """What one partition's read will return; made by `PartitionLog.plan_read`, filled by `read`.

    `records` holds whole batches, the first of which contains `offset`. It is never beyond `end_offset` and
    never larger than `max_bytes`, except that its first batch is there whole if `min_one_batch` was asked.
    The owner releases `records` when its bytes have been sent. `error` is set instead when the log is damaged
    at this place (`CorruptLogError`) or its store is offline.
    `size_bytes` before the read is an upper estimate of what it will take.
    """

    __slots__ = ("end_offset", "error", "log", "max_bytes", "min_one_batch", "offset", "records", "size_bytes")

    log: PartitionLog
    offset: int
    max_bytes: int
    end_offset: int
    min_one_batch: bool
    records: IOBuf | None
    error: Exception | None
    size_bytes: int

    @property
    def is_complete(self) -> bool:
        """True when nothing is left to read: the plan was answered from memory, or there is no data."""
        return self.records is not None or self.error is not None


async def read(plans: Sequence[ReadPlan]) -> None:
    """Fill the `records` of every plan: from memory and the page cache at once, all else in one thread call."""
