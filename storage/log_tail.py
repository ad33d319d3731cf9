"""Copies the end of a log into a file of its own, before the log is cut (`kept_logs` says when)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import trio

from ottla.kproto.records import NO_TIMESTAMP, iter_batches
from ottla.storage.format.block import LONE_HEAD_BYTES, RunFlag, build_lone_head
from ottla.storage.format.topic_file import topic_folder_name
from ottla.storage.kept_logs import SET_ASIDE_FOLDER, UNFINISHED_SUFFIX
from ottla.storage.store.segment_files import ASIDE_MARK, free_path

if TYPE_CHECKING:
    from ottla.storage.disk import Disk, Handle
    from ottla.storage.log.partition_log import PartitionLog

__all__ = ["set_tail_aside"]


async def set_tail_aside(log: PartitionLog, offset: int, node_path: str) -> str | None:
    """Copy what a log has written at and after an offset into a file, durably. Returns its path; None for nothing.

    The file is whole, or not there. Raises StorageError (CorruptLogError if a part cannot be read) or OSError; then
    nothing was copied. The caller sees to it that the log does not change meanwhile.
    """
    offset = max(offset, log.log_start_offset)
    if offset >= log.flushed_end_offset:
        return None
    context = log.store.context
    folder = os.path.join(node_path, SET_ASIDE_FOLDER)
    name = f"{topic_folder_name(log.topic, log.topic_id)}-{log.partition}-{offset}{ASIDE_MARK}"
    path = os.path.join(folder, name)
    copy = _Copy(context.disk, folder, path)
    await context.offload(copy.open)
    try:
        now_ms = context.clock.time_ms()
        while offset < log.flushed_end_offset:
            chain, offset = await log.read_batches(offset, log.flushed_end_offset)
            with chain:
                await context.offload(partial(copy.add, log.key, chain.to_bytes(), now_ms))
        return await context.offload(copy.finish)
    finally:
        # The wait is for a call of the disk.
        with trio.CancelScope(shield=True):
            await context.offload(copy.close)


class _Copy:
    """The file while it is written, under another name. All methods block."""

    def __init__(self, disk: Disk, folder: str, path: str) -> None:
        self._disk = disk
        self._folder = folder
        self._path = path
        self._unfinished = path + UNFINISHED_SUFFIX
        self._handle: Handle | None = None
        self._position = 0
        self._sequence = 0

    def open(self) -> None:
        disk = self._disk
        if not disk.exists(self._folder):
            disk.mkdir(self._folder)
            disk.fsync_directory(os.path.dirname(self._folder))
        if disk.exists(self._unfinished):
            disk.unlink(self._unfinished)
        self._handle = disk.create(self._unfinished)

    def add(self, key: bytes, data: bytes, now_ms: int) -> None:
        assert self._handle is not None
        for block in _blocks(key, data, self._position, self._sequence, now_ms):
            self._disk.pwritev(self._handle, [block], self._position)
            self._position += len(block)
            self._sequence += 1

    def finish(self) -> str:
        assert self._handle is not None
        self._disk.fdatasync(self._handle)
        path = free_path(self._disk, self._path)
        self._disk.rename(self._unfinished, path)
        self._disk.fsync_directory(self._folder)
        return path

    def close(self) -> None:
        if self._handle is not None:
            self._disk.close(self._handle)
            self._handle = None
        if self._disk.exists(self._unfinished):
            self._disk.unlink(self._unfinished)


def _blocks(key: bytes, data: bytes, position: int, sequence: int, now_ms: int) -> Iterator[bytes]:
    """Blocks with one run each, for the batches of each leader epoch."""
    for epoch, group in groupby(iter_batches(data), key=lambda each: each[1].leader_epoch):
        batches = list(group)
        begin, first = batches[0]
        last_position, last = batches[-1]
        content = data[begin : last_position + last.size_bytes]
        head = build_lone_head(
            sequence,
            LONE_HEAD_BYTES + len(content),
            now_ms,
            key,
            epoch,
            first.base_offset,
            last.last_offset,
            max((batch.max_timestamp_ms for _, batch in batches), default=NO_TIMESTAMP),
            position + LONE_HEAD_BYTES,
            RunFlag.CLEANED,  # offsets may have gaps
        )
        yield head + content
        position += len(head) + len(content)
        sequence += 1
