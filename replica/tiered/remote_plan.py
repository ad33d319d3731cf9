"""A read from the object store within a fetch: the counterpart of `ottla.storage.reading.plan.ReadPlan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from ottla.replica.errors import ReplicaError
from ottla.storage.errors import StorageError
from ottla.storage.memory.iobuf import IOBuf
from ottla.storage.reading.plan import ReadPlan, read

if TYPE_CHECKING:
    from ottla.replica.tiered.remote_log import RemoteLog
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.state.aborted_transactions import AbortedTransaction

__all__ = ["RemotePlan", "read_remotely"]


class RemotePlan:
    """What a read will return of one partition, from an offset on that its disk has no more.

    As with a `ReadPlan`, `records` or `error` are set when it was read, and the owner calls `release`.
    """

    __slots__ = (
        "_aborted",
        "_local",
        "_log",
        "_remote",
        "end_offset",
        "error",
        "max_bytes",
        "next_offset",
        "offset",
        "records",
        "size_bytes",
    )

    #: Nothing is there at once.
    is_complete = False

    def __init__(self, remote: RemoteLog, log: PartitionLog, offset: int, *, max_bytes: int, end_offset: int) -> None:
        self._remote = remote
        self._log = log
        self.offset = self.next_offset = offset
        self.max_bytes = self.size_bytes = max_bytes
        self.end_offset = end_offset
        self.records: IOBuf | None = None
        self.error: Exception | None = None
        self._aborted: Sequence[AbortedTransaction] = ()
        self._local: ReadPlan | None = None

    def aborted_transactions(self, end_offset: int) -> Sequence[AbortedTransaction]:
        """The aborted transactions with records in what was read."""
        return self._aborted if self._local is None else self._local.aborted_transactions(end_offset)

    async def fill(self) -> None:
        """Read it. What cannot be read is this plan's error."""
        try:
            found = await self._remote.read(
                self.offset, self._log, max_bytes=self.max_bytes, end_offset=self.end_offset
            )
            if not len(found.content) and found.next_offset > self.offset:
                await self._go_on_locally(found.next_offset)
                return
        except (ReplicaError, StorageError) as error:
            self._remote.counters.fetch_failed()
            self.error = error
            return
        records = IOBuf()
        records.append(memoryview(found.content))
        self.next_offset = found.next_offset
        self._aborted = found.aborted
        self.records = records

    async def _go_on_locally(self, offset: int) -> None:
        """No record is left in the object store from there on: what follows is on the disk."""
        log = self._log
        self._local = plan = log.plan_read(
            max(offset, log.log_start_offset), max_bytes=self.max_bytes, end_offset=self.end_offset, min_one_batch=True
        )
        if not plan.is_complete:
            await read([plan])
        self.error, self.next_offset = plan.error, plan.next_offset
        self.records = plan.records

    def give_up(self) -> None:
        """The time is over: the fetch is answered without records, as Kafka does, and the next one finds them."""
        if self.records is None and self.error is None:
            self._remote.counters.fetch_was_late()
            self.records = IOBuf()

    def release(self) -> None:
        """The bytes were sent, or nobody wants them."""
        if self._local is not None:
            self._local.release()
        elif self.records is not None:
            self.records.release()


async def read_remotely(plans: Sequence[RemotePlan], max_wait_seconds: float) -> None:
    """Fill these plans, all at a time; what is not there in time is given up for this fetch.

    The requests under way go on: what they bring is there for the next fetch.
    """
    with trio.move_on_after(max_wait_seconds):
        async with trio.open_nursery() as nursery:
            for plan in plans:
                nursery.start_soon(plan.fill)
    for plan in plans:
        plan.give_up()
