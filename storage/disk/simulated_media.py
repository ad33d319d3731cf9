"""What a simulated disk holds: files and directories, each with what is cached and what is durable.

The rules are those of POSIX at its least helpful. Of a file's pages written since its last sync, a power cut keeps any
subset, and may tear a page at a sector; the file's size is anywhere between the old and the new. What was not synced
when the power failed may have flipped bits, if that is asked for. A directory's changes since its last sync survive up
to some point in their order, and no further.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from random import Random

PAGE_BYTES = 4096
SECTOR_BYTES = 512


class SimulatedFile:
    """A file's content as the page cache has it, and as the platters have it. `modified_ms` is what the disk says."""

    __slots__ = ("_dirty_pages", "_durable", "content", "modified_ms")

    def __init__(self) -> None:
        self.content = bytearray()
        self.modified_ms: int | None = None
        self._durable = bytearray()
        self._dirty_pages: set[int] = set()

    def touch(self, now_ms: int | None) -> None:
        """It is changed now; None where nobody knows the time."""
        self.modified_ms = now_ms

    @property
    def has_unsynced_data(self) -> bool:
        return bool(self._dirty_pages) or len(self.content) != len(self._durable)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write into the page cache; a gap before `position` becomes zeros."""
        if not len(data):
            return
        end = position + len(data)
        old_size = len(self.content)
        if position > old_size:
            self.content.extend(bytes(position - old_size))
        self.content[position:end] = data
        self._mark(min(position, old_size), end)

    def truncate(self, size_bytes: int) -> None:
        """Cut or extend with zeros, in the page cache."""
        old_size = len(self.content)
        if size_bytes > old_size:
            self.content.extend(bytes(size_bytes - old_size))
            self._mark(old_size, size_bytes)
        elif size_bytes < old_size:
            del self.content[size_bytes:]
            self._dirty_pages = {page for page in self._dirty_pages if page * PAGE_BYTES < size_bytes}

    def sync(self) -> None:
        """Make the content durable."""
        self._durable = _resized(self._durable, len(self.content))
        for page in self._dirty_pages:
            start = page * PAGE_BYTES
            self._durable[start : start + PAGE_BYTES] = self.content[start : start + PAGE_BYTES]
        self._dirty_pages.clear()

    def fail_sync(self) -> None:
        """A sync that failed: Linux marks the pages clean all the same, so that no later sync writes them."""
        self._dirty_pages.clear()

    def lose_power(self, rng: Random, flips: Random | None = None) -> None:
        """Keep what is durable and a random part of what is not, in which `flips` may flip bits."""
        durable_bytes = len(self._durable)
        sizes = (len(self._durable), len(self.content))
        size_bytes = rng.choice((*sizes, rng.randint(min(sizes), max(sizes))))
        survived = _resized(self._durable, size_bytes)
        for page in sorted(self._dirty_pages):
            start = page * PAGE_BYTES
            end = min(start + rng.choice((0, PAGE_BYTES, _torn_bytes(rng))), size_bytes, len(self.content))
            if end > start:
                survived[start:end] = self.content[start:end]
                # What was durable before is not damaged: a sector is written whole, or not at all.
                first_new = max(start, durable_bytes)
                if flips is not None and first_new < end and flips.random() < 0.5:
                    bit = flips.randrange(first_new * 8, end * 8)
                    survived[bit // 8] ^= 1 << bit % 8
        self.content = survived
        self._durable = bytearray(survived)
        self._dirty_pages.clear()

    def flip_bit(self, bit: int) -> None:
        """Damage the content at rest, on the platters as in the cache."""
        self.content[bit // 8] ^= 1 << bit % 8
        if bit // 8 < len(self._durable):
            self._durable[bit // 8] ^= 1 << bit % 8

    def _mark(self, start: int, end: int) -> None:
        self._dirty_pages.update(range(start // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1))


class SimulatedDirectory:
    """A directory's names as the kernel has them, and as the platters have them."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, SimulatedNode] = {}
        self.durable: dict[str, SimulatedNode] = {}


SimulatedNode = SimulatedFile | SimulatedDirectory


class _Change:
    """Names that change together: a creation, a removal, or both ends of a rename."""

    __slots__ = ("assignments",)

    def __init__(self, assignments: list[tuple[SimulatedDirectory, str, SimulatedNode | None]]) -> None:
        self.assignments = assignments

    @property
    def directories(self) -> set[SimulatedDirectory]:
        return {directory for directory, _, _ in self.assignments}

    def apply_cached(self) -> None:
        for directory, name, node in self.assignments:
            _assign(directory.entries, name, node)

    def apply_durable(self) -> None:
        for directory, name, node in self.assignments:
            _assign(directory.durable, name, node)


class SimulatedMedia:
    """A tree of files. It outlives the simulated processes that use it, and their crashes."""

    __slots__ = ("_changes", "_root", "boots", "locks")

    def __init__(self) -> None:
        self._root = SimulatedDirectory()
        self._changes: list[_Change] = []
        self.locks: dict[SimulatedFile, object] = {}
        self.boots = 0

    @property
    def used_bytes(self) -> int:
        """The size of all named files."""
        return sum(len(file.content) for file in _files(self._root))

    def find(self, path: str) -> SimulatedNode | None:
        """The file or directory of a name, None if there is none."""
        node: SimulatedNode | None = self._root
        for name in _names(path):
            if not isinstance(node, SimulatedDirectory):
                return None
            node = node.entries.get(name)
        return node

    def file(self, path: str) -> SimulatedFile:
        """The file of a name; FileNotFoundError, IsADirectoryError."""
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, SimulatedDirectory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def directory(self, path: str) -> SimulatedDirectory:
        """The directory of a name; FileNotFoundError, NotADirectoryError."""
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, SimulatedFile):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def link(self, path: str, node: SimulatedNode) -> None:
        """Give a node a name in an existing directory; FileExistsError if it is taken."""
        directory, name = self._place(path)
        if name in directory.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._change([(directory, name, node)])

    def unlink(self, path: str) -> None:
        """Remove a name; FileNotFoundError."""
        directory, name = self._place(path)
        if name not in directory.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._change([(directory, name, None)])

    def rename(self, source: str, target: str) -> None:
        """Move a name, replacing a file of the new name; the usual errors."""
        source_directory, source_name = self._place(source)
        target_directory, target_name = self._place(target)
        node = source_directory.entries.get(source_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        replaced = target_directory.entries.get(target_name)
        if replaced is node:
            return
        if isinstance(replaced, SimulatedDirectory) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        self._change([(source_directory, source_name, None), (target_directory, target_name, node)])

    def files(self) -> list[SimulatedFile]:
        """All files that have a name."""
        return list(_files(self._root))

    def sync(self) -> None:
        """Make everything durable: contents and names."""
        for file in self.files():
            file.sync()
        for change in self._changes:
            change.apply_durable()
        self._changes.clear()

    def sync_directory(self, path: str) -> None:
        """Make a directory's names durable, and with them the other directories of its renames."""
        directories = {self.directory(path)}
        grown = True
        while grown:
            touched = [change.directories for change in self._changes if change.directories & directories]
            before = len(directories)
            directories.update(*touched)
            grown = len(directories) > before
        remaining = []
        for change in self._changes:
            if change.directories & directories:
                change.apply_durable()
            else:
                remaining.append(change)
        self._changes = remaining

    def lose_power(self, rng: Random, flips: Random | None = None) -> None:
        """Keep what is durable and a random part of what is not, of names and of content."""
        stopped: set[SimulatedDirectory] = set()
        for change in self._changes:
            if change.directories & stopped or rng.random() < 0.5:
                stopped |= change.directories
            else:
                change.apply_durable()
        self._changes = []
        _restore(self._root)
        for file in _files(self._root):
            file.lose_power(rng, flips)
        self.locks.clear()
        self.boots += 1

    def _change(self, assignments: list[tuple[SimulatedDirectory, str, SimulatedNode | None]]) -> None:
        change = _Change(assignments)
        change.apply_cached()
        self._changes.append(change)

    def _place(self, path: str) -> tuple[SimulatedDirectory, str]:
        parent, name = os.path.split(os.path.normpath(path))
        return self.directory(parent), name


def _names(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not an absolute path")
    return [name for name in os.path.normpath(path).split("/") if name]


def _assign(entries: dict[str, SimulatedNode], name: str, node: SimulatedNode | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _restore(directory: SimulatedDirectory) -> None:
    directory.entries = dict(directory.durable)
    for node in directory.entries.values():
        if isinstance(node, SimulatedDirectory):
            _restore(node)


def _files(directory: SimulatedDirectory) -> Iterator[SimulatedFile]:
    """All files below a directory, in a fixed order."""
    for _, node in _sorted(directory.entries.items()):
        if isinstance(node, SimulatedDirectory):
            yield from _files(node)
        else:
            yield node


def _sorted(items: Iterable[tuple[str, SimulatedNode]]) -> list[tuple[str, SimulatedNode]]:
    return sorted(items, key=lambda item: item[0])


def _resized(content: bytearray, size_bytes: int) -> bytearray:
    resized = content[:size_bytes]
    resized.extend(bytes(size_bytes - len(resized)))
    return resized


def _torn_bytes(rng: Random) -> int:
    return rng.randrange(1, PAGE_BYTES // SECTOR_BYTES) * SECTOR_BYTES
