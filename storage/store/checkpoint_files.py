"""What a checkpoint writes into a store's folder, and in which order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ottla.kproto.records.crc import extend
from ottla.runtime.time_slice import TimeSlice
from ottla.storage.format.checkpoint import CHECKPOINT_NAME, Checkpoint, pack_checkpoint
from ottla.storage.format.topic_file import TOPIC_FILE

if TYPE_CHECKING:
    from ottla.storage.disk.disk import Disk
    from ottla.storage.store.checkpoint import CheckpointBuilder
    from ottla.storage.store.message_store import MessageStore
    from ottla.storage.store.segment import Segment

__all__ = ["CheckpointFiles", "says", "take_checkpoint"]


class CheckpointFiles:
    """A checkpoint whose states are taken. `write` and `put_in_place` block, `written` follows on the event loop.

    What the checkpoint speaks of must be durable before it is in its place: the segments, the index of the one that is
    written to, the names of them all. With it comes the file that describes the topic.
    """

    __slots__ = (
        "_builder",
        "_content",
        "_disk",
        "_index_tail",
        "_is_last",
        "_point",
        "_segments",
        "_topic",
        "_written",
        "store",
    )

    def __init__(
        self,
        store: MessageStore,
        builder: CheckpointBuilder,
        point: Checkpoint,
        segment: Segment,
        index_tail: bytes,
        content: list[bytes],
    ) -> None:
        files = store.files
        self.store = store
        self._builder = builder
        self._disk = store.context.disk
        self._point = point
        self._segments = files.segments[files.segments.index(segment) :]
        self._index_tail = index_tail
        self._content = content
        self._topic = store.new_description()
        self._is_last = files.next_sequence, files.active
        # What was written beside the files that it replaces.
        self._written: list[tuple[str, str]] = []

    @property
    def size_bytes(self) -> int:
        """How much memory it takes until it is written."""
        return len(self._index_tail) + sum(map(len, self._content))

    def write_durably(self) -> None:
        """All of it, for this store alone."""
        self._write(is_synced=True)
        self.store.files.sync_names()
        self.put_in_place()
        self._disk.fsync_directory(self._segments[0].directory)

    def write_unsynced(self) -> None:
        """Write everything beside what it replaces, and sync nothing."""
        self._write(is_synced=False)

    def _write(self, *, is_synced: bool) -> None:
        """`is_synced` makes the contents durable, but no names."""
        disk, files = self._disk, self.store.files
        if is_synced:
            for segment in self._segments:
                files.sync_segment(segment)
        self._write_index(is_synced=is_synced)
        directory = self._segments[0].directory
        self._write_beside(os.path.join(directory, CHECKPOINT_NAME), self._content, is_synced=is_synced)
        path = os.path.join(directory, TOPIC_FILE)
        if self._topic is not None and not says(disk, path, self._topic):
            self._write_beside(path, [self._topic], is_synced=is_synced)

    def _write_index(self, *, is_synced: bool) -> None:
        disk, segment = self._disk, self._segments[0]
        exists = disk.exists(segment.index_path)
        handle = disk.open_write(segment.index_path) if exists else disk.create(segment.index_path)
        try:
            disk.pwritev(handle, [self._index_tail], segment.index_length)
            if is_synced:
                disk.fdatasync(handle)
        finally:
            disk.close(handle)

    def _write_beside(self, path: str, content: list[bytes], *, is_synced: bool) -> None:
        self._written.append((self._disk.write_beside(path, *content, is_synced=is_synced), path))

    def put_in_place(self) -> None:
        """Replace the old files. The names are durable after the next sync of the folder."""
        for beside, path in self._written:
            self._disk.rename(beside, path)

    def written(self) -> None:
        """All of it is durable: the store takes note."""
        store, files, segment = self.store, self.store.files, self._segments[0]
        if (files.next_sequence, files.active) == self._is_last:
            files.synced()
        if self._topic is not None:
            store.description_written(self._topic)
        store.recover_from(self._point.segment_position)
        segment.indexed(len(self._index_tail), self._point.index_length, self._point.index_crc)

    def drop(self) -> None:
        """It was not written: the next one takes the states again."""
        self.store.drop_snapshots(self._builder)


async def take_checkpoint(store: MessageStore, *, makes_room: bool) -> CheckpointFiles | None:
    """Take every changed partition's state; None where nothing was written yet. The caller holds the store's lock."""
    context, files = store.context, store.files
    segment = files.active
    if segment is None:
        return None
    index_tail = bytes(segment.pending_index)
    point = Checkpoint(
        context.boot_id,
        segment.position,
        segment.size_bytes,
        files.next_sequence,
        segment.index_length + len(index_tail),
        extend(segment.index_crc, index_tail),
    )
    builder = store.begin_checkpoint(makes_room=makes_room)
    was_written = builder.is_armed
    try:
        try:
            await builder.take_all()
        finally:
            store.end_checkpoint(builder)
        if not was_written:
            await store.writer.flush(sync=False)
        builder.check()
    except BaseException:
        store.drop_snapshots(builder)
        raise
    store.take_snapshots(builder)
    content = []
    time_slice = TimeSlice()
    for piece in pack_checkpoint(point, dict(store.snapshots)):
        content.append(piece)
        await time_slice.maybe_yield()
    return CheckpointFiles(store, builder, point, segment, index_tail, content)


def says(disk: Disk, path: str, content: bytes) -> bool:
    """Whether a file is there and has this content. Blocks."""
    return disk.exists(path) and disk.read_file(path) == content
