"""Blocks and runs: what one flush writes. The layout is specified in `docs/storage-format.md`.

A block is a header, a directory of fixed-size run records, and then the batches, sorted by partition, so that each
run is one contiguous read. The CRC-32C in the header covers header and directory; each batch carries its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.kproto.records.crc import extend

__all__ = [
    "BLOCK_HEADER_BYTES",
    "BLOCK_MAGIC",
    "FORMAT_VERSION",
    "LONE_HEAD_BYTES",
    "RUN_BYTES",
    "BlockHeader",
    "Run",
    "RunFlag",
    "RunKind",
    "build_block_head",
    "build_lone_head",
    "iter_runs",
    "log_key",
    "pack_run",
    "parse_block_header",
    "split_key",
    "verify_block_head",
]

FORMAT_VERSION = 1
BLOCK_MAGIC = b"OtBk"

# magic, format version, flags (0), sequence, block length, written at (ms), run count, CRC
_HEADER = struct.Struct(">4sHHQQqII")
_HEADER_BEFORE_CRC = struct.Struct(">4sHHQQqI")
BLOCK_HEADER_BYTES = _HEADER.size
_CRC = struct.Struct(">I")
_CRC_POS = BLOCK_HEADER_BYTES - _CRC.size

# topic id + partition, leader epoch, base offset, last offset, max timestamp, position, length, flags
_RUN = struct.Struct(">20siqqqQII")
RUN_BYTES = _RUN.size
_PARTITION = struct.Struct(">i")


class RunKind:
    """What a run record says (the low four bits of its flags); all kinds except DATA have no bytes."""

    DATA = 0
    TRUNCATE = 1
    """Everything of the partition at and after `base_offset` that was written before this is void."""
    LOG_START = 2
    """The log start offset is now `base_offset`; if `last_offset` is the same, the log was emptied and starts there."""
    DELETE = 3
    """The partition was deleted: everything of it that was written before this is void."""

    MASK = 0x0F


class RunFlag:
    """What a data run's batches contain (bits of its flags above the kind)."""

    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    CLEANED = 0x40
    """Compaction has been here: the offsets may have gaps."""
    CLIPPED = 0x80
    """Only in an index: a truncation has lowered the last offset; the bytes after it are void."""


class BlockHeader(NamedTuple):
    """The 40 bytes in front of a block. `length` is the whole block: header, directory and batches."""

    magic: bytes
    format_version: int
    flags: int
    sequence: int
    length: int
    written_at_ms: int
    run_count: int
    crc: int

    @property
    def head_bytes(self) -> int:
        """Header and directory: the position of the first batch in the block."""
        return BLOCK_HEADER_BYTES + self.run_count * RUN_BYTES


class Run(NamedTuple):
    """One record of a directory. `position` is where its first batch is in the segment file, `length` its size.

    `last_offset` is the last offset of the last batch. `key` is the topic id and the partition, see `log_key`.
    """

    key: bytes
    leader_epoch: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    position: int
    length: int
    flags: int

    @property
    def kind(self) -> int:
        return self.flags & RunKind.MASK

    def pack(self) -> bytes:
        """Return the 64 bytes."""
        return _RUN.pack(*self)


#: The 64 bytes of a run, from the fields of `Run` in their order: thousands are packed for a block.
pack_run: Final = _RUN.pack


def log_key(topic_id: bytes, partition: int) -> bytes:
    """The 20 bytes that name a partition in every run: topic id, partition; they sort as tuples do."""
    return topic_id + _PARTITION.pack(partition)


def split_key(key: bytes) -> tuple[bytes, int]:
    """The topic id and the partition of a `log_key`."""
    return key[:16], _PARTITION.unpack_from(key, 16)[0]


def build_block_head(sequence: int, length: int, written_at_ms: int, runs: list[bytes]) -> bytes:
    """Return header and directory of a block of `length` bytes in all, from packed runs."""
    head = _HEADER_BEFORE_CRC.pack(BLOCK_MAGIC, FORMAT_VERSION, 0, sequence, length, written_at_ms, len(runs))
    directory = runs[0] if len(runs) == 1 else b"".join(runs)
    return head + _CRC.pack(extend(0, head + directory)) + directory


#: The size of what `build_lone_head` makes.
LONE_HEAD_BYTES: Final = BLOCK_HEADER_BYTES + RUN_BYTES
# The header up to its CRC and a run, which are summed together.
_LONE_HEAD = struct.Struct(_HEADER_BEFORE_CRC.format + _RUN.format.removeprefix(">"))


def build_lone_head(
    sequence: int,
    length: int,
    written_at_ms: int,
    key: bytes,
    leader_epoch: int,
    base_offset: int,
    last_offset: int,
    max_timestamp_ms: int,
    position: int,
    flags: int,
) -> bytes:
    """`build_block_head` for a block of one run, which has all bytes behind the head."""
    head = _LONE_HEAD.pack(
        BLOCK_MAGIC,
        FORMAT_VERSION,
        0,
        sequence,
        length,
        written_at_ms,
        1,
        key,
        leader_epoch,
        base_offset,
        last_offset,
        max_timestamp_ms,
        position,
        length - LONE_HEAD_BYTES,
        flags,
    )
    return head[:_CRC_POS] + _CRC.pack(extend(0, head)) + head[_CRC_POS:]


def parse_block_header(buf: bytes, pos: int = 0) -> BlockHeader | None:
    """Return the header at `pos`, or None if what is there cannot be one. The CRC is not checked here."""
    if len(buf) - pos < BLOCK_HEADER_BYTES:
        return None
    header = BlockHeader._make(_HEADER.unpack_from(buf, pos))
    if header.magic != BLOCK_MAGIC or header.format_version != FORMAT_VERSION or header.length < header.head_bytes:
        return None
    return header


def verify_block_head(header: BlockHeader, head: bytes) -> bool:
    """Whether the CRC matches `head`, which is exactly the block's header and directory."""
    return len(head) == header.head_bytes and header.crc == extend(
        extend(0, head[:_CRC_POS]), head[BLOCK_HEADER_BYTES:]
    )


def iter_runs(buf: bytes | bytearray | memoryview) -> Iterator[Run]:
    """Yield the run records of a directory, or of an active segment's index."""
    return map(Run._make, _RUN.iter_unpack(buf))
