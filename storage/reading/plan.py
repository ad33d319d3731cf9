"""What a read of one partition will return, and what reading needs to know of a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ottla.runtime.stages import Stages, finish
from ottla.storage.memory.iobuf import IOBuf
from ottla.storage.reading.places import Places
from ottla.storage.state.aborted_transactions import AbortedTransaction, AbortedTransactions
from ottla.storage.store.memstore import JOINED_BATCHES, JOINED_MEAN_BYTES
from ottla.storage.store.message_store import MessageStore

if TYPE_CHECKING:
    from ottla.storage.store.memstore import RunGroup

__all__ = ["MOMENT_SECONDS", "ReadPlan", "ReadableLog", "begin_read", "read"]

MOMENT_SECONDS: Final = 1.0
"""A client that reads a log in order comes back within this time: what is read less often is not worth reading
ahead.
"""


class FollowUp(Protocol):
    """What reads on where a plan has ended."""

    def go_on(self, plan: ReadPlan) -> None:
        """The bytes of a plan were sent, and what follows them is likely to be asked for next."""


class ReadableLog(Protocol):
    """A log, as its readers see it. `ottla.storage.log.PartitionLog` is the only one."""

    @property
    def store(self) -> MessageStore: ...

    @property
    def key(self) -> bytes: ...

    @property
    def places(self) -> Places:
        """Where its batches lie."""

    @property
    def prefetch(self) -> FollowUp: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def aborted(self) -> AbortedTransactions | None:
        """The index of aborted transactions."""

    @property
    def cleanings(self) -> int:
        """How often it was compacted."""
        ...

    def check_open(self) -> None:
        """Raise LogClosedError or StoreOfflineError if nothing can be done with this log any more."""

    def plan_read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, names_files: bool = False
    ) -> ReadPlan: ...

    def begin_read(self, plans: Sequence[ReadPlan]) -> Stages[None]:
        """Fill the `records` of every plan, of this log and of others of the node."""
        ...

    def __hash__(self) -> int: ...


class ReadPlan:
    """What one partition's read will return; made by `PartitionLog.plan_read`, filled by `read`.

    `records` holds whole batches, the first of which contains `offset`. It is never beyond `end_offset` and
    never larger than `max_bytes`, except that its first batch is there whole if `min_one_batch` was asked. With
    `names_files` some of it may be ranges of files (`RangedRecords`), for who sends it and does not look into it.
    The owner calls `release` when the bytes of `records` have been sent. `error` is set instead when the log is damaged
    at this place (`CorruptLogError`) or the disk cannot be read. `size_bytes` before the read is an upper estimate of
    what it will take. `next_offset` is where the following read continues. `goes_on` tells that files were read into
    memory, from where the read of this log's files before it had ended, a moment ago.
    """

    __slots__ = (
        "_aborted",
        "_cleanings",
        "_records",
        "end_offset",
        "error",
        "goes_on",
        "log",
        "max_bytes",
        "min_one_batch",
        "names_files",
        "needed_bytes",
        "next_offset",
        "offset",
        "read_bytes",
        "records",
    )

    def __init__(
        self,
        log: ReadableLog,
        offset: int,
        max_bytes: int,
        end_offset: int,
        *,
        min_one_batch: bool,
        names_files: bool = False,
    ) -> None:
        self.log = log
        self.offset = offset
        self.max_bytes = max_bytes
        self.end_offset = end_offset
        self.min_one_batch = min_one_batch
        self.names_files = names_files
        self.next_offset = offset
        self.needed_bytes = 0
        self.goes_on = False
        self.read_bytes = 0
        self.records: IOBuf | None = None
        self.error: Exception | None = None
        self._records = IOBuf()
        self._aborted = log.aborted
        self._cleanings = log.cleanings

    @property
    def size_bytes(self) -> int:
        """The bytes of `records`, or an upper estimate of what they will be."""
        return self.records.size_bytes if self.records is not None else min(self.max_bytes, self.log.size_bytes)

    @property
    def is_complete(self) -> bool:
        """True when nothing is left to read: the plan was answered from memory, or there is no data."""
        return self.records is not None or self.error is not None

    # Transactions.

    @property
    def is_current(self) -> bool:
        """Whether the log was not cleaned since the plan was made, or made again.

        The records and the index of aborted transactions must be of the same age. An older index is good for records
        that one cleaning has changed, since markers stay until the index that knows their transaction is gone; a newer
        one is not, as it may not know transactions of which the records still are there.
        """
        return self._cleanings == self.log.cleanings

    def renew(self) -> None:
        """The plan is read, or read again. An index from before a cleaning would be too old; otherwise the one from
        when it was made knows most: what is read may be deleted meanwhile, and leaves the log's index.
        """
        if not self.is_current:
            self._aborted = self.log.aborted
            self._cleanings = self.log.cleanings

    def aborted_transactions(self, end_offset: int) -> Sequence[AbortedTransaction]:
        """The aborted transactions with records from the plan's offset up to another, by first offset, also of records
        that were deleted after they were read.
        """
        return self._aborted.collect(self.offset, end_offset) if self._aborted is not None else ()

    # Being filled.

    def read_tail(self, tail: Sequence[RunGroup], first: int) -> None:
        """Share batches of blocks in memory, from a place in a log's tail on; nothing is left to read then."""
        index = first
        goes_on = True
        while goes_on and index < len(tail):
            group = tail[index]
            if len(group.views) == 1:
                index, goes_on = self._read_lone(tail, index)
            else:
                index, goes_on = index + 1, self._read_group(group)
        self.records = self._records

    def _read_lone(self, tail: Sequence[RunGroup], first: int) -> tuple[int, bool]:
        """Take the blocks of one batch each that stand next in the tail; the place after them, and whether to read on.

        A quiet log has thousands of them. Many small ones are copied into one piece: that costs a fraction of holding,
        sending and giving back a view of each.
        """
        target, end_offset = self._records, self.end_offset
        room_bytes = self.max_bytes - target.size_bytes
        views: list[memoryview] = []
        goes_on = True
        for index in range(first, len(tail)):
            group = tail[index]
            if len(group.views) != 1:
                break
            view = group.views[0]
            size_bytes = len(view)
            is_too_large = size_bytes > room_bytes and (views or target.size_bytes or not self.min_one_batch)
            if is_too_large or group.last_offsets[0] >= end_offset:
                goes_on = False
                break
            views.append(view)
            room_bytes -= size_bytes
        stop = first + len(views)
        if views:
            self.next_offset = tail[stop - 1].last_offsets[0] + 1
        taken_bytes = self.max_bytes - target.size_bytes - room_bytes
        if len(views) >= JOINED_BATCHES and taken_bytes < len(views) * JOINED_MEAN_BYTES:
            target.append(b"".join(views))
        else:
            for group in tail[first:stop]:
                target.append(group.views[0], group.fragments[0])
        return stop, goes_on

    def _read_group(self, group: RunGroup) -> bool:
        self.next_offset = group.read(
            self._records, self.next_offset, self.end_offset, self.max_bytes, min_one_batch=self.min_one_batch
        )
        return self.next_offset > group.last_offsets[-1]

    def complete(self) -> None:
        """Nothing is left to read."""
        self.records = self._records

    def complete_from_files(self, records: IOBuf, next_offset: int, read_bytes: int) -> None:
        """All that was wanted is there, `read_bytes` of it read out of files and the rest named."""
        end_offset, time = self.log.places.last_read
        now = trio.current_time()
        self.goes_on = (
            end_offset == self.offset
            and now - time < MOMENT_SECONDS
            and records.size_bytes <= self.max_bytes
            and 4 * read_bytes > records.size_bytes  # to name the rest takes no time
        )
        self.log.places.was_read(next_offset, now)
        self.next_offset = next_offset
        self.read_bytes = read_bytes
        self.records = records

    def fail(self, error: Exception) -> None:
        """Nothing can be read."""
        self.error = error

    def need(self, size_bytes: int) -> None:
        """The first batch takes this much memory."""
        self.needed_bytes = size_bytes

    def pass_gap(self) -> None:
        """Compaction has left nothing between the offset and the end."""
        self.next_offset = self.end_offset

    def hand_over(self) -> IOBuf:
        """Give the records to another plan, which releases them."""
        assert self.records is not None
        records, self.records = self.records, None
        return records

    def release(self) -> None:
        """The bytes were sent, or nobody wants them: their memory is free, and may take what follows them."""
        if self.records is not None:
            self.records.release()
            if self.goes_on:
                self.log.prefetch.go_on(self)


def begin_read(plans: Sequence[ReadPlan]) -> Stages[None]:
    """Fill the `records` of every plan: from memory and the page cache at once, all else in one worker-thread call."""
    if plans:
        yield from plans[0].log.begin_read(plans)


async def read(plans: Sequence[ReadPlan]) -> None:
    """`begin_read` in this task."""
    await finish(begin_read(plans))
