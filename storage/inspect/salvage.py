"""What is sound in a data file, or in a part that a start has set aside, whatever is wrong around it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import BatchHeader, crc_matches, iter_batches
from ottla.storage.format.block import RunKind, split_key
from ottla.storage.format.block_scan import read_exactly, scan_heads

if TYPE_CHECKING:
    from ottla.storage.disk import Disk

__all__ = ["SoundBatch", "salvage"]

_CUT_AT = re.compile(r"\.cut-(\d+)(\.\d+)?$")


class SoundBatch(NamedTuple):
    """A batch whose checksum is right: `header` is that of the batch at `position` in `content`."""

    topic_id: UUID
    partition: int
    content: bytes
    position: int
    header: BatchHeader


def salvage(disk: Disk, path: str) -> Iterator[SoundBatch]:
    """Every sound batch of every sound block, in the order of the file. What is not sound is passed over."""
    # What was cut off began at this byte of the original file, and refers to positions in that file.
    found = _CUT_AT.search(os.path.basename(path))
    cut_at = int(found[1]) if found is not None else 0
    handle = disk.open_read(path)
    try:
        for head in scan_heads(disk, handle, disk.size(handle), 0, skip_damage=True):
            for run in head.runs:
                if run.kind != RunKind.DATA:
                    continue
                content = read_exactly(disk, handle, run.position - cut_at, run.length)
                topic_id, partition = split_key(run.key)
                try:
                    for position, batch in iter_batches(content):
                        in_run = run.base_offset <= batch.base_offset and batch.last_offset <= run.last_offset
                        if in_run and crc_matches(content, position, batch):
                            yield SoundBatch(UUID(bytes=topic_id), partition, content, position, batch)
                except ProtocolError:
                    continue
    finally:
        disk.close(handle)
