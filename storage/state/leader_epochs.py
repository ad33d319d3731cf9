"""Which leader epoch began where in one partition's log (Kafka's `LeaderEpochFileCache`; KIP-101, KIP-279)."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ottla.storage.errors import CorruptLogError

NO_EPOCH = -1
NO_OFFSET = -1

_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">iq")


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of the first batch written in it."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of a log, both epochs and start offsets strictly ascending."""

    __slots__ = ("_epochs", "_start_offsets")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []

    def __iter__(self) -> Iterator[EpochEntry]:
        return map(EpochEntry, self._epochs, self._start_offsets)

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last batch, -1 for an empty log."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    @property
    def earliest(self) -> EpochEntry | None:
        """The first epoch that the log still holds."""
        return EpochEntry(self._epochs[0], self._start_offsets[0]) if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that a batch of `epoch` lies at `start_offset`; True if it begins an epoch.

        Entries that contradict it (the same or later epochs, or offsets at or beyond it) are dropped: the log was
        truncated or has been overruled there. ValueError for negative arguments.
        """
        if self._epochs and self._epochs[-1] == epoch and self._start_offsets[-1] <= start_offset:
            return False
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset} is not possible")
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._start_offsets, start_offset))
        del self._epochs[keep:], self._start_offsets[keep:]
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch not above `epoch`, its end offset): how far a log that followed it may agree.

        (-1, -1) if the epoch is unknown because it is later than all; an epoch before all known ones ends where the
        first known one begins.
        """
        if epoch == NO_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return NO_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        return (self._epochs[higher - 1] if higher else epoch), self._start_offsets[higher]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch in which the batch at `offset` was written, -1 if it lies before all known ones."""
        index = bisect_right(self._start_offsets, offset)
        return self._epochs[index - 1] if index else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: drop the epochs that began there or later."""
        keep = bisect_left(self._start_offsets, end_offset)
        del self._epochs[keep:], self._start_offsets[keep:]

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`: drop the epochs that ended before; the one there begins there."""
        covering = bisect_right(self._start_offsets, start_offset) - 1
        if covering < 0:
            return
        del self._epochs[:covering], self._start_offsets[:covering]
        self._start_offsets[0] = start_offset

    def clear(self) -> None:
        """Forget all epochs."""
        self._epochs.clear()
        self._start_offsets.clear()

    def to_bytes(self) -> bytes:
        """Count (int32), then epoch (int32) and start offset (int64) of each, big-endian; no checksum of its own."""
        return _COUNT.pack(len(self._epochs)) + b"".join(map(_ENTRY.pack, self._epochs, self._start_offsets))

    @classmethod
    def from_bytes(cls, content: bytes) -> LeaderEpochs:
        """What `to_bytes` wrote; CorruptLogError if it cannot be that."""
        if len(content) < _COUNT.size or len(content) != _COUNT.size + _COUNT.unpack_from(content)[0] * _ENTRY.size:
            raise CorruptLogError("a leader epoch list has a wrong length")
        epochs = cls()
        for epoch, start_offset in _ENTRY.iter_unpack(memoryview(content)[_COUNT.size :]):
            epochs._epochs.append(epoch)
            epochs._start_offsets.append(start_offset)
        for column in (epochs._epochs, epochs._start_offsets):
            if any(left >= right for left, right in pairwise(column)):
                raise CorruptLogError("a leader epoch list is out of order")
        return epochs
