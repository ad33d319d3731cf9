"""Checks of the blocks that a recovery reads, and where they go on after damage. Call from a worker thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import iter_batches, verify_crc
from ottla.storage.format.block import BLOCK_HEADER_BYTES, Run, RunKind
from ottla.storage.format.block_scan import BlockHead, find_block, read_exactly, read_head

if TYPE_CHECKING:
    from ottla.storage.disk import Disk, Handle

__all__ = ["find_following", "unsound_runs"]


def unsound_runs(head: BlockHead, body: bytes, *, verify: bool) -> list[Run]:
    """The data runs whose batches are not where the directory says or, with `verify`, fail their checksums."""
    view = memoryview(body)
    return [run for run in head.runs if run.kind == RunKind.DATA and not _is_sound(run, view, head, verify=verify)]


def find_following(disk: Disk, handle: Handle, position: int, end: int, sequence: int) -> BlockHead | None:
    """The first block after damage at `position`, where the block of a sequence should have been; None without one.

    A record's value may hold the image of a block. So what is found must be sound to its last batch, have a sequence
    that the damaged bytes leave room for, and end where the next block or the file does.
    """
    at = find_block(disk, handle, position + 1, end)
    while at is not None:
        head = read_head(disk, handle, at, end)
        if head is not None and 0 < head.header.sequence - sequence <= (at - position) // BLOCK_HEADER_BYTES:
            following = read_head(disk, handle, head.end, end) if head.end < end else None
            is_in_line = following is None or following.header.sequence == head.header.sequence + 1
            if is_in_line and (following is not None or head.end == end):
                body = read_exactly(disk, handle, at, head.header.length)
                if not unsound_runs(head, body, verify=True):
                    return head
        at = find_block(disk, handle, at + 1, end)
    return None


def _is_sound(run: Run, body: memoryview, head: BlockHead, *, verify: bool) -> bool:
    start = run.position - head.position
    piece = body[start : start + run.length]
    expected = run.base_offset
    try:
        for pos, batch in iter_batches(piece):
            is_in_place = expected <= batch.base_offset and batch.last_offset <= run.last_offset
            # No checksum of a batch covers its epoch.
            if not is_in_place or batch.leader_epoch != run.leader_epoch:
                return False
            if verify:
                verify_crc(piece, pos, batch)
            expected = batch.next_offset
    except ProtocolError:
        return False
    return expected == run.last_offset + 1
