"""Logs for the tests of tiered storage: batches that are what they must be, and a source that reads them."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from ottla.kproto.records import Record, build_batch, iter_batches
from ottla.storage.memory.iobuf import IOBuf
from ottla.storage.state.aborted_transactions import AbortedTransaction

FIRST_TIME_MS = 1_700_000_000_000


def batch(offset: int, records: int = 3, *, epoch: int = 1, value_bytes: int = 100) -> bytes:
    """A batch whose records' times are in step with their offsets."""
    return build_batch(
        [
            Record(offset + number, FIRST_TIME_MS + offset + number, b"%d" % (offset + number), b"v" * value_bytes)
            for number in range(records)
        ],
        base_offset=offset,
        leader_epoch=epoch,
    )


class LogSource:
    """A stretch of a log in memory."""

    def __init__(
        self,
        partition: int,
        batches: Sequence[bytes],
        *,
        base_offset: int = 0,
        leader_epoch: int = 1,
        previous_epoch: int = -1,
        aborted: Sequence[AbortedTransaction] = (),
        read_bytes: int = 2000,
    ) -> None:
        self.partition = partition
        self.content = b"".join(batches)
        self.base_offset = base_offset
        self.end_offset = list(iter_batches(self.content))[-1][1].next_offset
        self.leader_epoch = leader_epoch
        self.previous_epoch = previous_epoch
        self.aborted = aborted
        self.producers = b"producers"
        self._read_bytes = read_bytes

    def require_current(self) -> None:
        """It stays what it is."""

    async def read(self, offset: int) -> tuple[IOBuf, int]:
        """As a log's reader answers."""
        await trio.lowlevel.checkpoint()
        found = IOBuf()
        next_offset = offset
        for position, header in iter_batches(self.content):
            is_full = found.size_bytes + header.size_bytes > self._read_bytes and found.size_bytes
            if header.next_offset > offset and not is_full:
                found.append(memoryview(self.content)[position : position + header.size_bytes])
                next_offset = header.next_offset
            elif header.next_offset > offset:
                break
        return found, next_offset


def log_of(
    partition: int, *, batches: int = 20, offset: int = 0, epoch: int = 1, previous_epoch: int = -1
) -> LogSource:
    """A stretch of small batches of three records."""
    made = [batch(offset + 3 * number, epoch=epoch) for number in range(batches)]
    return LogSource(partition, made, base_offset=offset, leader_epoch=epoch, previous_epoch=previous_epoch)
