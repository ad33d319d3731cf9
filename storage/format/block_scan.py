"""Walking the blocks of a data file. It waits for the disk: callers do it in a worker thread, or on a stopped store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.format.block import (
    BLOCK_HEADER_BYTES,
    BLOCK_MAGIC,
    BlockHeader,
    Run,
    iter_runs,
    parse_block_header,
    verify_block_head,
)
from ottla.storage.format.segment_header import SEGMENT_HEADER_BYTES

if TYPE_CHECKING:
    from ottla.storage.disk import Disk, Handle

__all__ = ["BlockHead", "find_block", "read_exactly", "scan_heads"]

_FIRST_READ_BYTES = 4096
_SEARCH_BYTES = 1_048_576


class BlockHead(NamedTuple):
    """A block whose header and directory are sound; `position` is its place in the file."""

    position: int
    header: BlockHeader
    runs: list[Run]

    @property
    def end(self) -> int:
        return self.position + self.header.length


def scan_heads(
    disk: Disk, handle: Handle, end: int, start: int = SEGMENT_HEADER_BYTES, *, skip_damage: bool = False
) -> Iterator[BlockHead]:
    """Yield the heads of the blocks in [start, end) of a data file, up to the first one that is not sound.

    Sequences must rise by one from block to block. With `skip_damage` the walk continues at the next sound block.
    """
    position = start
    sequence: int | None = None
    while position < end:
        head = read_head(disk, handle, position, end)
        if head is None or (sequence is not None and head.header.sequence != sequence and not skip_damage):
            if not skip_damage:
                return
            found = find_block(disk, handle, position + 1, end)
            if found is None:
                return
            position = found
            continue
        yield head
        sequence = head.header.sequence + 1
        position = head.end


def read_head(disk: Disk, handle: Handle, position: int, end: int) -> BlockHead | None:
    """The head of the block at a position, or None unless it is sound and the block ends within `end`."""
    head = read_exactly(disk, handle, position, min(_FIRST_READ_BYTES, end - position))
    header = parse_block_header(head)
    if header is None or position + header.length > end:
        return None
    if len(head) < header.head_bytes:
        head = read_exactly(disk, handle, position, header.head_bytes)
    head = head[: header.head_bytes]
    if not verify_block_head(header, head):
        return None
    return BlockHead(position, header, list(iter_runs(head[BLOCK_HEADER_BYTES:])))


def find_block(disk: Disk, handle: Handle, start: int, end: int) -> int | None:
    """The position of the first sound block head at or after `start`, used to continue after damage."""
    position = start
    while position < end:
        chunk = read_exactly(disk, handle, position, min(_SEARCH_BYTES, end - position))
        at = chunk.find(BLOCK_MAGIC)
        while at >= 0:
            if read_head(disk, handle, position + at, end) is not None:
                return position + at
            at = chunk.find(BLOCK_MAGIC, at + 1)
        if len(chunk) < len(BLOCK_MAGIC):
            return None
        position += len(chunk) - len(BLOCK_MAGIC) + 1
        if len(chunk) < _SEARCH_BYTES:
            return None
    return None


def read_exactly(disk: Disk, handle: Handle, position: int, length: int) -> bytes:
    """The bytes at a position; fewer at the end of the file."""
    buffer = bytearray(length)
    count = disk.preadv(handle, [memoryview(buffer)], position) if length > 0 else 0
    return bytes(buffer[:count]) if count != length else bytes(buffer)
