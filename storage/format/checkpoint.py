"""The checkpoint of a store: from where recovery must read, and each partition's state up to there.

The partitions' states are from the moment when a memstore is swapped out, the only moment at which everything that was
appended is in known blocks: they say "as of block S". Recovery replays blocks from the recovery point on and skips, per
partition, those its state already knows. So appends never wait for a checkpoint, and the states of thousands of
partitions are taken in slices; a state that is about to change is taken first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.kproto.records.crc import extend
from ottla.kproto.records.crc import value as crc32c
from ottla.runtime.time_slice import chunks
from ottla.storage.errors import CorruptLogError, UnsupportedFormatError
from ottla.storage.format.block import FORMAT_VERSION

__all__ = [
    "CHECKPOINT_NAME",
    "Checkpoint",
    "PartitionState",
    "as_of_sequence",
    "log_start_of",
    "pack_checkpoint",
    "parse_checkpoint",
]

CHECKPOINT_NAME = "checkpoint"
CHECKPOINT_MAGIC = b"OtChkpnt"
# magic, format version, flags (0), boot id, segment position, data length, next sequence, index length, index CRC,
# partitions
_HEADER = struct.Struct(">8sHH36sQQQQII")
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">20sI")
# as of sequence, log start, log end, first dirty offset, size in bytes, then the lengths of epochs, aborted
# transactions, producers
_STATE = struct.Struct(">qqqqqIII")


class Checkpoint(NamedTuple):
    """Where recovery begins: everything before `data_length` of the segment at `segment_position` is durable.

    The first `index_length` bytes of that segment's index file are the runs before `data_length`.
    """

    boot_id: str
    segment_position: int
    data_length: int
    next_sequence: int
    index_length: int
    index_crc: int


def pack_checkpoint(checkpoint: Checkpoint, states: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Yield the pieces of the checkpoint file, with the states by log key. `states` must not change meanwhile."""
    head = _HEADER.pack(
        CHECKPOINT_MAGIC, FORMAT_VERSION, 0, checkpoint.boot_id.encode().ljust(36), *checkpoint[1:], len(states)
    )
    yield head
    crc = crc32c(head)
    for part in chunks(states.items()):
        piece = b"".join([field for key, state in part for field in (_ENTRY.pack(key, len(state)), state)])
        crc = extend(crc, piece)
        yield piece
    yield _CRC.pack(crc)


def parse_checkpoint(content: bytes) -> tuple[Checkpoint, dict[bytes, bytes]]:
    """The checkpoint and the states by log key; CorruptLogError if a byte is wrong."""
    if len(content) < _HEADER.size + _CRC.size or content[:8] != CHECKPOINT_MAGIC:
        raise CorruptLogError("not a checkpoint")
    if crc32c(content[: -_CRC.size]) != _CRC.unpack_from(content, len(content) - _CRC.size)[0]:
        raise CorruptLogError("the checkpoint fails its checksum")
    _, version, _, boot_id, *fields, count = _HEADER.unpack_from(content)
    if version != FORMAT_VERSION:
        raise UnsupportedFormatError(f"checkpoint of format version {version}, this is {FORMAT_VERSION}")
    states: dict[bytes, bytes] = {}
    position = _HEADER.size
    for _ in range(count):
        key, length = _ENTRY.unpack_from(content, position)
        position += _ENTRY.size
        states[key] = content[position : position + length]
        position += length
    return Checkpoint(boot_id.decode().strip(), *fields), states


class PartitionState(NamedTuple):
    """What a checkpoint says about a partition, as of a block. Epochs, transactions and producers are empty if there
    are none.
    """

    as_of_sequence: int
    log_start_offset: int
    log_end_offset: int
    first_dirty_offset: int
    size_bytes: int
    epochs: bytes
    aborted: bytes
    producers: bytes

    def pack(self) -> bytes:
        """Return the bytes of the state."""
        parts = (self.epochs, self.aborted, self.producers)
        return _STATE.pack(*self[:5], *map(len, parts)) + b"".join(parts)

    @classmethod
    def parse(cls, state: bytes) -> PartitionState:
        """What `pack` returned; CorruptLogError if it cannot be that."""
        as_of, log_start, log_end, first_dirty, size_bytes, epochs_bytes, aborted_bytes, producers_bytes = (
            _STATE.unpack_from(state)
        )
        aborted_start = _STATE.size + epochs_bytes
        producers_start = aborted_start + aborted_bytes
        if producers_start + producers_bytes != len(state):
            raise CorruptLogError("a partition's state is not as long as it says")
        return cls(
            as_of,
            log_start,
            log_end,
            first_dirty,
            size_bytes,
            state[_STATE.size : aborted_start],
            state[aborted_start:producers_start],
            state[producers_start:],
        )


def as_of_sequence(state: bytes) -> int:
    """The sequence of the block up to which a packed state is true."""
    return int(_STATE.unpack_from(state)[0])


def log_start_of(state: bytes) -> int:
    """The log start offset in a packed state."""
    return int(_STATE.unpack_from(state)[1])
