"""A coordinator's records, and how a log of them becomes state: the shard and its replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from ottla.kproto.records import BatchHeader, EndTxnMarker, iter_batches, iter_records, parse_end_txn_marker
from ottla.runtime.time_slice import TimeSlice


class UnreadableRecordError(Exception):
    """A record of a coordinator's topic is damaged, or was written by somebody else: its partition cannot be loaded."""


class SkippedRecordError(Exception):
    """A record means nothing to this broker and is passed over: for example, because a newer broker wrote it."""


class CoordinatorRecord(NamedTuple):
    """One record of a coordinator's topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.key) + len(self.value or b"") + 32


class Producer(NamedTuple):
    """The transactional producer on whose behalf records are written."""

    producer_id: int
    producer_epoch: int


class Skipped(NamedTuple):
    """A record that was passed over, and why."""

    offset: int
    why: str


Steps = Iterator[Skipped | None]
"""A batch that is being replayed: advance it until it ends. Each step takes a short while."""


class Shard(Protocol):
    """The state of one partition. Its methods are synchronous and never fail on a record that Kafka could write."""

    def replay(self, offset: int, producer: Producer | None, record: CoordinatorRecord) -> None:
        """Apply one committed record; `producer` is set if it belongs to that producer's open transaction.

        Raises SkippedRecordError if it is to be passed over. Any other error, mostly DecodeError, means that it cannot
        be read; then the partition is given up.
        """
        ...

    def replay_marker(self, marker: EndTxnMarker) -> None:
        """Apply the end of a producer's transaction. Raises as `replay` does."""
        ...

    def loaded(self) -> None:
        """The replay has ended: start sessions and timers."""
        ...

    def unloaded(self) -> None:
        """The partition moved away: answer everyone who waits with NotCoordinatorError and end all timers."""
        ...


S = TypeVar("S", bound=Shard)

ReplayBatch = Callable[[S, memoryview, int, BatchHeader], Steps]


def replay_records(shard: Shard, batches: memoryview, position: int, header: BatchHeader) -> Steps:
    """Replay the records of a batch that lies at `position`. Raises UnreadableRecordError.

    Kafka, too, passes over records of unknown types, and gives up the partition for any other that it cannot read
    (CoordinatorLoaderImpl).
    """
    producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
    replay = shard.replay
    for offset, _, key, value, _ in iter_records(batches, position, header):
        if key is None:
            raise UnreadableRecordError(f"the record at offset {offset} has no key")
        try:
            replay(offset, producer, CoordinatorRecord(key, value))
        except SkippedRecordError as error:
            yield Skipped(offset, str(error))
        except Exception as error:
            raise UnreadableRecordError(f"the record at offset {offset} cannot be read: {error}") from error
        yield None


async def replay_batches(
    shard: S, batches: memoryview, replay_batch: ReplayBatch[S], note: Callable[[Skipped], None]
) -> int:
    """Replay whole batches into a shard, letting others run in between; returns how many records they held.

    `note` is called with what was passed over. Raises UnreadableRecordError.
    """
    count = 0
    time_slice = TimeSlice()
    for position, header in iter_batches(batches):
        count += header.record_count
        steps = _replay_batch(shard, batches, position, header, replay_batch)
        try:
            for skipped in steps:
                if skipped is not None:
                    note(skipped)
                if time_slice.is_over:
                    await time_slice.maybe_yield()
        except UnreadableRecordError:
            raise
        except Exception as error:
            raise UnreadableRecordError(f"the batch at offset {header.base_offset} cannot be read: {error}") from error
    return count


def _replay_batch(
    shard: S, batches: memoryview, position: int, header: BatchHeader, replay_batch: ReplayBatch[S]
) -> Steps:
    if not header.is_control:
        yield from replay_batch(shard, batches, position, header)
        return
    marker = parse_end_txn_marker(batches, position, header)
    if marker is not None:
        try:
            shard.replay_marker(marker)
        except SkippedRecordError as error:
            yield Skipped(header.base_offset, str(error))
    yield None
