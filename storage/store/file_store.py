"""The file half of a store: a list of segments, of which the last is written to.

Methods that say so may block and are called inline for little data, else in a worker thread; one call at a time. A
failure of any of them means that the store must stop: nothing here is tried twice.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import suppress

import trio

from ottla.storage.disk.disk import Disk, Handle
from ottla.storage.disk.passing import passes
from ottla.storage.format.segment_header import boot_tag, build_segment_header
from ottla.storage.store.gate import Gate
from ottla.storage.store.segment import Segment

__all__ = ["FileStore", "sync_file"]


class FileStore:
    """The segments of one store, in the order of their positions. Others read its fields; only its methods change them.

    `unsynced_bytes` is what was written since the last `sync`. `layout_version` changes when a segment is sealed,
    replaced or removed, so that what was derived from the list can be derived again. `gate` is the life of the store:
    every user of the files is inside. The descriptor that is written by belongs to the write loop, which says so by
    `is_in_use`; `Writers` closes it when it is not.
    """

    __slots__ = (
        "_directory_synced",
        "_disk",
        "_handle",
        "_has_failed",
        "_has_name",
        "_sync_lock",
        "_unsynced",
        "directory",
        "gate",
        "is_in_use",
        "layout_version",
        "list_content",
        "list_lock",
        "next_sequence",
        "retired",
        "segments",
        "unsynced_bytes",
    )

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self.gate = Gate()
        self.is_in_use = False
        self.segments: list[Segment] = []
        #: Taken out without a replacement: their files go when the list of segments no longer names them.
        self.retired: list[Segment] = []
        #: What the list of sealed segments on the disk says, and who writes it.
        self.list_content = b""
        self.list_lock = trio.Lock()
        self.layout_version = 0
        self.next_sequence = 0
        self.unsynced_bytes = 0
        self._handle: Handle | None = None
        # Rolled, and not known to be synced.
        self._unsynced: list[Segment] = []
        self._directory_synced = False
        # The folder's name is durable.
        self._has_name = False
        self._sync_lock = threading.Lock()
        self._has_failed = False

    @property
    def active(self) -> Segment | None:
        """The segment that is written to; None before the first write."""
        if self.segments:
            last = self.segments[-1]
            if last.tables is not None:
                return last
        return None

    @property
    def has_sealed(self) -> bool:
        """Whether there is any sealed segment; the first is sealed before all others."""
        return bool(self.segments) and self.segments[0].is_sealed

    @property
    def unsealed(self) -> Sequence[Segment]:
        """The active segment, and before it those that are being sealed."""
        first = len(self.segments)
        while first and not self.segments[first - 1].is_sealed:
            first -= 1
        return self.segments[first:]

    @property
    def size_bytes(self) -> int:
        """The size of all data files."""
        return sum(segment.size_bytes for segment in self.segments)

    # What recovery, sealing and rewriting tell.

    def adopt(
        self, segments: Sequence[Segment], next_sequence: int, unsynced_bytes: int, list_content: bytes = b""
    ) -> None:
        """Take over the segments that recovery has found; `list_content` is the list of segments as it is on the
        disk.
        """
        assert not self.segments
        self.segments.extend(segments)
        self.next_sequence = next_sequence
        self.unsynced_bytes = unsynced_bytes
        self.list_content = list_content

    def sealed(self, segment: Segment) -> None:
        """The index file of a rolled segment is written."""
        segment.sealed()
        self.layout_version += 1

    def exchange(self, old: Sequence[Segment], new: Segment | None) -> None:
        """Put a new segment in place of old ones that follow each other; None leaves their place empty."""
        place = self.segments.index(old[0])
        assert self.segments[place : place + len(old)] == list(old)
        self.segments[place : place + len(old)] = [new] if new is not None else []
        if new is None:
            self.retired += old
        self.layout_version += 1

    def listed(self, content: bytes, retired: Sequence[Segment]) -> None:
        """The list on the disk now says this, and no longer names these segments."""
        self.list_content = content
        self.retired = [segment for segment in self.retired if segment not in retired]

    def truncate_tables(self, key: bytes, offset: int) -> None:
        """Void a partition's runs at and beyond an offset: here in unsealed segments, in sealed ones by the mark."""
        for segment in self.unsealed:
            assert segment.tables is not None
            if key in segment.tables or segment is self.segments[-1]:
                segment.truncate_table(key, offset)

    # Writing.

    def create_segment(self, now_ms: int, boot_id: str) -> tuple[Segment, Handle]:
        """Make the data file that follows the last one. May block; `begin_segment` follows on the event loop."""
        disk = self._disk
        last = self.segments[-1] if self.segments else None
        segment = Segment(self.directory, last.next_position if last is not None else 0)
        segment.begin(self.next_sequence, now_ms, boot_tag(boot_id))
        if last is None:
            disk.mkdir(self.directory)
        handle = disk.create(segment.data_path)
        try:
            header = build_segment_header(0, segment.position, self.next_sequence, now_ms, boot_tag=segment.boot_tag)
            disk.pwritev(handle, [header], 0)
        except BaseException:
            disk.close(handle)
            # It may be tried again, under the same name.
            disk.unlink(segment.data_path)
            raise
        return segment, handle

    def begin_segment(self, segment: Segment, handle: Handle) -> None:
        """Write to a new segment from now on."""
        if self.segments and self.unsynced_bytes:
            self._unsynced.append(self.segments[-1])
        self.close()
        self._handle = handle
        self._directory_synced = False
        self.segments.append(segment)

    @property
    def is_open(self) -> bool:
        """Whether there is a descriptor to write by: opening one may fail, and takes time."""
        return self._handle is not None

    def may_try_again(self, error: OSError) -> bool:
        """Whether what has failed can be done again: there was no room, or no descriptor, and no sync has failed."""
        return passes(error) and not self._has_failed

    def undo_write(self) -> None:
        """Cut off what a write without room has left, as it takes room. May block. The next write goes to its place."""
        segment = self.active
        if segment is not None and self._handle is not None:
            with suppress(OSError):
                self._disk.truncate(self._handle, segment.size_bytes)

    def write(self, pieces: Sequence[memoryview | bytes]) -> None:
        """Write a block at the end of the active segment. May block. `advance` follows on the event loop."""
        segment = self.segments[-1]
        self._disk.pwritev(self._open(), pieces, segment.size_bytes)

    def _open(self) -> Handle:
        if self._handle is None:
            self._handle = self._disk.open_write(self.segments[-1].data_path)
        return self._handle

    def use(self, *, is_in_use: bool) -> None:
        """The write loop has begun, or has ended."""
        self.is_in_use = is_in_use

    def advance(self, size_bytes: int, runs: list[bytes], written_at_ms: int, *, synced: bool) -> None:
        """Take a written block and its run records into account."""
        self.segments[-1].extend(size_bytes, runs, written_at_ms)
        self.next_sequence += 1
        self.unsynced_bytes = 0 if synced else self.unsynced_bytes + size_bytes

    def sync(self) -> None:
        """Make everything written up to now durable, file names included. May block."""
        for segment in self._unsynced:
            # Sealing has synced it; it may even have been rewritten since.
            if not segment.is_sealed:
                self.sync_segment(segment)
        self._unsynced.clear()
        if self.active is not None:
            self._fdatasync(self._open())
        if self.segments and not self._directory_synced:
            self.sync_names()
            self._directory_synced = True
        self.unsynced_bytes = 0

    def synced(self) -> None:
        """Others have made everything durable that was written up to now: each segment, and the names."""
        self._unsynced.clear()
        self._directory_synced = True
        self.unsynced_bytes = 0

    def sync_names(self) -> None:
        """Make the names in the store's folder durable, and those of the two folders it stands in. May block.

        The folder's own name does not change again as long as there is a store.
        """
        folders = [self.directory]
        if not self._has_name:
            folders.append(os.path.dirname(self.directory))
            folders.append(os.path.dirname(folders[-1]))
        for folder in folders:
            self._disk.fsync_directory(folder)
        self._has_name = True

    def sync_segment(self, segment: Segment) -> None:
        """Make one segment's data durable, through a descriptor of its own. May block; in any thread."""
        handle = self._disk.open_write(segment.data_path)
        try:
            self._fdatasync(handle)
        finally:
            self._disk.close(handle)

    def _fdatasync(self, handle: Handle) -> None:
        """Sync, unless a sync of this store has failed before: the kernel would now claim success for what it lost."""
        with self._sync_lock:
            if self._has_failed:
                raise OSError(errno.EIO, "an earlier sync of the store has failed")
            try:
                self._disk.fdatasync(handle)
            except OSError:
                self._has_failed = True
                raise

    def close(self) -> None:
        """Give the descriptor back; a later write or sync opens the file again."""
        if self._handle is not None:
            self._disk.close(self._handle)
            self._handle = None


def sync_file(disk: Disk, path: str) -> None:
    """Make a file's data durable, also what another process wrote. Blocks."""
    handle = disk.open_write(path)
    try:
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
