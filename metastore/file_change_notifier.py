"""How processes that share a file tell each other that it has changed, without looking at it all the time.

To notify is to touch the file, and to watch is to have inotify do so: the kernel knows who watches, nothing is
registered anywhere, and nothing is left behind by a process that was killed. When a process ends, in whatever way, the
kernel closes its descriptors of the file, and that is noticed as well: if it was killed after changing the file and
before it notified, the others look all the same.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import trio

logger = logging.getLogger(__name__)

_IN_ATTRIB: Final = 0x4
_IN_CLOSE_WRITE: Final = 0x8
#: More than enough: the kernel merges equal events, and one of the file itself has no name and takes 16 bytes.
_READ_BYTES: Final = 4096
_POLL_S: Final = 0.01
_POLLS_PER_LOOK: Final = 5


class FileChangeNotifier:
    """Notifies of changes of one file, which exists."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def notify(self) -> None:
        """Wake all who watch, in every process. Takes microseconds, or as long as the disk does: for worker threads.

        Never fails: the change is stored, and watchers find it the next time that they look for another reason.
        """
        # By its name: closing a descriptor of the file would drop the locks that SQLite holds on it.
        with suppress(OSError):
            os.utime(self._path)

    @contextmanager
    def watch(self) -> Iterator[FileWatch]:
        """Notice each change from here on."""
        try:
            fd = _watch(self._path)
        except OSError as error:
            logger.warning(
                "inotify cannot be used (%s), so changes by other processes are looked for 20 times a second; "
                "the sysctl fs.inotify.max_user_instances may be too low",
                error.strerror,
            )
            yield _PollingWatch(self._path)
            return
        try:
            yield _InotifyWatch(fd)
        finally:
            trio.lowlevel.notify_closing(fd)
            os.close(fd)


class FileWatch(ABC):
    """A watch on a file, for one task at a time."""

    @abstractmethod
    async def wait(self) -> None:
        """Return once it has changed since the last return, and sometimes when it has not."""


class _InotifyWatch(FileWatch):
    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def wait(self) -> None:
        await trio.lowlevel.wait_readable(self._fd)
        # All changes so far are one event. What comes after this read is noticed by the next call.
        with suppress(BlockingIOError):
            os.read(self._fd, _READ_BYTES)


class _PollingWatch(FileWatch):
    """For machines that have no inotify, or no instance of it left."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._touched = self._look()

    async def wait(self) -> None:
        # Two changes in one tick of the file system's clock look like one: hence the return without a change.
        for _ in range(_POLLS_PER_LOOK):
            await trio.sleep(_POLL_S)
            if (touched := self._look()) != self._touched:
                self._touched = touched
                return

    def _look(self) -> int:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0


def _watch(path: Path) -> int:
    """An inotify descriptor for the file. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except AttributeError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(path), _IN_ATTRIB | _IN_CLOSE_WRITE) >= 0:
        return fd
    number = ctypes.get_errno()
    if fd >= 0:
        os.close(fd)
    raise OSError(number, os.strerror(number))
