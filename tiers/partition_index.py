"""The index of one partition in an upload: the places of its batches, and the state that is needed to serve them.

The format, version 1, big-endian, CRC means CRC-32C. The index object of an upload has one of these for each partition,
one after the other; the manifest says where, and has the CRC of each.

    8 bytes   "OtTierIx"
    u16       format version
    u16       flags, 0
    u32       length of the whole
    16 bytes  topic id
    i32       partition
    i64, i64  base offset and last offset, as in the manifest
    u32       number of runs
    u32, u32, u32   bytes of leader epochs, aborted transactions, producers
              runs of 48 bytes, by offset:
                  i64, i64  base offset of the first batch, last offset of the last one
                  i64       largest timestamp, -1 if there is none
                  i32       leader epoch
                  u32, u32, u32   which part it is in, where it begins there, its length
                  u32       its CRC
                  u32       0
              leader epochs (`LeaderEpochs.to_bytes`) of these offsets
              aborted transactions (`AbortedTransactions.to_bytes`) with records below the last offset
              producers (`write_snapshot`) as of the end, empty if that is not known
    u32       CRC of all before it

A run is consecutive batches of one leader epoch in one part, 256 KiB of them or a single larger one. It is read as a
whole and compared with its CRC, which covers also what the batches' own CRCs leave out: offsets and epochs.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.kproto.records.crc import value as crc_of
from ottla.storage.errors import CorruptLogError
from ottla.storage.state.aborted_transactions import AbortedTransaction, AbortedTransactions
from ottla.storage.state.leader_epochs import EpochEntry, LeaderEpochs
from ottla.tiers.errors import CorruptObjectError, UnknownFormatError

__all__ = ["PartitionIndex", "Run", "build_index", "indexed_partitions"]

_MAGIC: Final = b"OtTierIx"
_FORMAT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">8sHHI16siqqIIII")
_RUN: Final = struct.Struct(">qqqiIIIII")
_CRC: Final = struct.Struct(">I")
_LAST_OFFSET_AT: Final = 8
_OFFSET: Final = struct.Struct(">q")


class Run(NamedTuple):
    """Consecutive batches in one part of an upload."""

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    leader_epoch: int
    part: int
    position: int
    length: int
    crc: int

    @property
    def end_position(self) -> int:
        return self.position + self.length


def build_index(
    topic_id: UUID,
    partition: int,
    base_offset: int,
    last_offset: int,
    runs: Sequence[Run],
    aborted: Iterable[AbortedTransaction] = (),
    producers: bytes = b"",
) -> bytes:
    """The index of a partition's batches. The leader epochs are those of the runs."""
    packed_epochs = epochs_of(runs).to_bytes()
    transactions = AbortedTransactions()
    for transaction in sorted(aborted, key=lambda each: each.last_offset):
        transactions.append(*transaction)
    packed_aborted = transactions.to_bytes()
    packed_runs = b"".join([_RUN.pack(*run, 0) for run in runs])
    lengths = len(packed_epochs), len(packed_aborted), len(producers)
    size_bytes = _HEADER.size + len(packed_runs) + sum(lengths) + _CRC.size
    header = _HEADER.pack(
        _MAGIC,
        _FORMAT_VERSION,
        0,
        size_bytes,
        topic_id.bytes,
        partition,
        base_offset,
        last_offset,
        len(runs),
        *lengths,
    )
    content = b"".join((header, packed_runs, packed_epochs, packed_aborted, producers))
    return content + _CRC.pack(crc_of(content))


def epochs_of(runs: Iterable[Run]) -> LeaderEpochs:
    """The first offset of each leader epoch, by the runs."""
    epochs = LeaderEpochs()
    for run in runs:
        if run.leader_epoch >= 0:
            epochs.assign(run.leader_epoch, run.base_offset)
    return epochs


class PartitionIndex:
    """The index of one partition's batches in one upload, kept packed."""

    __slots__ = ("_count", "_runs", "aborted", "base_offset", "epochs", "last_offset", "producers")

    def __init__(self, content: bytes, topic_id: UUID, partition: int, base_offset: int, last_offset: int) -> None:
        """The inverse of `build_index`. Raises CorruptObjectError."""
        place = f"the index of partition {partition} from offset {base_offset} on"
        if len(content) < _HEADER.size + _CRC.size or content[:8] != _MAGIC:
            raise CorruptObjectError(f"{place} is too short, or none")
        if crc_of(memoryview(content)[: -_CRC.size]) != _CRC.unpack_from(content, len(content) - _CRC.size)[0]:
            raise CorruptObjectError(f"{place} does not have its checksum")
        _, version, flags, size_bytes, topic, number, base, last, count, *lengths = _HEADER.unpack_from(content)
        if version != _FORMAT_VERSION or flags:
            raise UnknownFormatError(f"{place} has format version {version}")
        if (topic, number, base, last) != (topic_id.bytes, partition, base_offset, last_offset):
            raise CorruptObjectError(f"{place} is that of other records")
        ends = [_HEADER.size + count * _RUN.size]
        for length in lengths:
            ends.append(ends[-1] + length)
        if not size_bytes == len(content) == ends[-1] + _CRC.size:
            raise CorruptObjectError(f"{place} is too short")
        self.base_offset = base_offset
        self.last_offset = last_offset
        self._count: int = count
        self._runs = content[_HEADER.size : ends[0]]
        try:
            self.epochs: list[EpochEntry] = list(LeaderEpochs.from_bytes(content[ends[0] : ends[1]]))
            self.aborted = AbortedTransactions.from_bytes(content[ends[1] : ends[2]])
        except CorruptLogError as error:
            raise CorruptObjectError(f"{place}: {error}") from error
        self.producers = content[ends[2] : ends[3]]
        self._check(place)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> Run:
        if not 0 <= place < self._count:
            raise IndexError(place)
        *fields, _ = _RUN.unpack_from(self._runs, place * _RUN.size)
        return Run(*fields)

    def __iter__(self) -> Iterator[Run]:
        return map(self.__getitem__, range(self._count))

    def place_of(self, offset: int) -> int:
        """The place of the first run that reaches this offset; `len(self)` if none does."""
        return bisect_left(range(len(self)), offset, key=self._last_offset)

    def place_of_time(self, timestamp_ms: int) -> int:
        """The place of the first run with a record of this time or later; `len(self)` if none has one."""
        times = (fields[2] for fields in _RUN.iter_unpack(self._runs))
        found: int = next((place for place, time_ms in enumerate(times) if time_ms >= timestamp_ms), self._count)
        return found

    def _last_offset(self, place: int) -> int:
        last_offset: int = _OFFSET.unpack_from(self._runs, place * _RUN.size + _LAST_OFFSET_AT)[0]
        return last_offset

    def _check(self, place: str) -> None:
        """That the runs follow each other within the offsets."""
        least = self.base_offset
        for base, last, *_ in _RUN.iter_unpack(self._runs):
            if not least <= base <= last <= self.last_offset:
                raise CorruptObjectError(f"the runs of {place} do not follow each other")
            least = last + 1


def indexed_partitions(content: bytes) -> list[int]:
    """The partitions in an upload's whole index object. Raises CorruptObjectError."""
    found = []
    position = 0
    while position < len(content):
        piece = content[position : position + _HEADER.size]
        if len(piece) < _HEADER.size or piece[:8] != _MAGIC:
            raise CorruptObjectError("an index object holds something else")
        _, _, _, size_bytes, _, partition, *_ = _HEADER.unpack(piece)
        if size_bytes < _HEADER.size + _CRC.size or position + size_bytes > len(content):
            raise CorruptObjectError("an index object is too short")
        found.append(partition)
        position += size_bytes
    return found
