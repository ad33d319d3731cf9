"""Copies the end of a log into a file of its own, before the log is cut (`kept_logs` says when)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.kproto.records import NO_TIMESTAMP, iter_batches
from ottla.storage.disk.passing import is_full, passes
from ottla.storage.errors import CorruptLogError, DiskFullError, StoreOfflineError
from ottla.storage.format.block import LONE_HEAD_BYTES, RunFlag, build_lone_head
from ottla.storage.format.block_scan import read_exactly
from ottla.storage.format.topic_file import topic_folder_name
from ottla.storage.kept_logs import SET_ASIDE_FOLDER, UNFINISHED_SUFFIX
from ottla.storage.store.segment_files import ASIDE_MARK, free_path

if TYPE_CHECKING:
    from ottla.storage.disk import Disk, Handle
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.store.context import StorageContext

__all__ = ["TailAside", "set_tail_aside"]

_COPY_BYTES: Final = 4 << 20


class TailAside(NamedTuple):
    """What was set aside of a log's end. `path` has the batches, and is None if there are none.

    `unreadable` has the first and the last offset of each piece that cannot be read since its file is damaged;
    `damaged` are copies of those files, in which `ottla salvage` may find more. A file that is lost has none.
    """

    path: str | None = None
    unreadable: Sequence[tuple[int, int]] = ()
    damaged: Sequence[str] = ()


async def set_tail_aside(log: PartitionLog, offset: int, node_path: str) -> TailAside:
    """Copy what a log has written at and after an offset into a file, durably.

    Each file is whole, or not there. The caller sees to it that the log does not change meanwhile.

    Raises StorageError if what was to be set aside is not, or not all of it. While the disk is full (DiskFullError) or
    there are no descriptors it may be tried again. If the disk fails in any other way, the log's store stops for good,
    as it does when its own files fail (StoreOfflineError).
    """
    try:
        return await _set_tail_aside(log, offset, node_path)
    except OSError as error:
        text = f"{log}: what is at and after offset {offset} cannot be set aside: {error}"
        if is_full(error):
            raise DiskFullError(text) from error
        if not passes(error):
            log.store.fail(error)
        raise StoreOfflineError(text) from error


async def _set_tail_aside(log: PartitionLog, offset: int, node_path: str) -> TailAside:
    offset = max(offset, log.log_start_offset)
    end_offset = log.flushed_end_offset
    if offset >= end_offset:
        return TailAside()
    context = log.store.context
    folder = os.path.join(node_path, SET_ASIDE_FOLDER)
    name = f"{topic_folder_name(log.topic, log.topic_id)}-{log.partition}-{offset}"
    unreadable: list[tuple[int, int]] = []
    damaged: dict[str, None] = {}
    copy = _Copy(context.disk, folder, os.path.join(folder, name + ASIDE_MARK))
    async with _opened(copy, context):
        now_ms = context.clock.time_ms()
        while offset < end_offset:
            try:
                chain, offset = await log.read_batches(offset, end_offset)
            except CorruptLogError as error:
                if error.resumes_at <= offset:
                    raise
                unreadable.append((offset, min(error.resumes_at, end_offset) - 1))
                damaged[error.path] = None
                offset = error.resumes_at
                continue
            with chain:
                await context.offload(partial(copy.add, log.key, chain.to_bytes(), now_ms))
        copies = [await _copy_damaged(context, path, folder, name) for path in damaged]
        path = await context.offload(copy.finish) if copy.size_bytes else None
    return TailAside(path, unreadable, [path for path in copies if path is not None])


async def _copy_damaged(context: StorageContext, source: str, folder: str, name: str) -> str | None:
    """Copy a data file as it is; None if there is none. Where it was copied before, that copy is left."""
    disk = context.disk
    path = os.path.join(folder, f"{name}.{os.path.basename(source)}{ASIDE_MARK}")
    if not await context.offload(partial(disk.exists, source)):
        return None
    if await context.offload(partial(disk.exists, path)):
        return path
    handle = await context.offload(partial(disk.open_read, source))
    try:
        copy = _Copy(disk, folder, path)
        async with _opened(copy, context):
            size_bytes = await context.offload(partial(disk.size, handle))
            for position in range(0, size_bytes, _COPY_BYTES):
                await context.offload(partial(copy.add_piece, handle, position))
            return await context.offload(copy.finish)
    finally:
        # The wait is for a call of the disk.
        with trio.CancelScope(shield=True):
            await context.offload(partial(disk.close, handle))


@asynccontextmanager
async def _opened(copy: _Copy, context: StorageContext) -> AsyncIterator[None]:
    """Nothing is left of a copy that was not finished."""
    await context.offload(copy.open)
    try:
        yield
    finally:
        # The wait is for a call of the disk.
        with trio.CancelScope(shield=True):
            await context.offload(copy.close)


class _Copy:
    """A file while it is written, under another name. All methods block."""

    def __init__(self, disk: Disk, folder: str, path: str) -> None:
        self._disk = disk
        self._folder = folder
        self._path = path
        self._unfinished = path + UNFINISHED_SUFFIX
        self._handle: Handle | None = None
        self._sequence = 0
        self.size_bytes = 0

    def open(self) -> None:
        disk = self._disk
        if not disk.exists(self._folder):
            disk.mkdir(self._folder)
            disk.fsync_directory(os.path.dirname(self._folder))
        if disk.exists(self._unfinished):
            disk.unlink(self._unfinished)
        self._handle = disk.create(self._unfinished)

    def add(self, key: bytes, data: bytes, now_ms: int) -> None:
        """Add batches of a log."""
        for block in _blocks(key, data, self.size_bytes, self._sequence, now_ms):
            self._write(block)
            self._sequence += 1

    def add_piece(self, source: Handle, position: int) -> None:
        """Add what a file has at a position, as it is."""
        size_bytes = min(_COPY_BYTES, self._disk.size(source) - position)
        self._write(read_exactly(self._disk, source, position, size_bytes))

    def _write(self, content: bytes) -> None:
        assert self._handle is not None
        self._disk.pwritev(self._handle, [content], self.size_bytes)
        self.size_bytes += len(content)

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
