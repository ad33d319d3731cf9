"""How processes that share a file tell each other that it has changed, without looking at it all the time.

To ring is to touch the file, and to listen is to have inotify watch it: the kernel knows who listens, nothing is
registered anywhere, and nothing is left behind by a process that was killed. A process that ends, in whatever way, has
its descriptors of the file closed by the kernel, and that is heard as well: if it had changed the file and was killed
before it rang, the others look all the same.
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
#: More than the kernel keeps of equal events; those of a file itself have no name and 16 bytes.
_READ_BYTES: Final = 4096
_POLL_S: Final = 0.01
_POLLS_PER_LOOK: Final = 5


class Bell:
    """The bell of one file, which exists."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ring(self) -> None:
        """Wake everybody who listens, in every process. A few microseconds, or a wait for the disk: for worker threads.

        Never fails: what was to be told has happened, and is found by whoever looks for another reason.
        """
        # By its name: to close a descriptor of the file would drop the locks that SQLite holds on it.
        with suppress(OSError):
            os.utime(self._path)

    @contextmanager
    def listen(self) -> Iterator[Ear]:
        """Hear each ring from here on."""
        try:
            fd = _watch(self._path)
        except OSError as error:
            logger.warning(
                "inotify cannot be used (%s), so changes by other processes are looked for 20 times a second; "
                "the sysctl fs.inotify.max_user_instances may be too low",
                error.strerror,
            )
            yield _PollingEar(self._path)
            return
        try:
            yield _InotifyEar(fd)
        finally:
            trio.lowlevel.notify_closing(fd)
            os.close(fd)


class Ear(ABC):
    """Who listens to a bell, for one task at a time."""

    @abstractmethod
    async def wait(self) -> None:
        """Return when it has rung since the last return, and sometimes without."""


class _InotifyEar(Ear):
    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def wait(self) -> None:
        await trio.lowlevel.wait_readable(self._fd)
        # Rings that nobody has heard yet are one event. What comes after this is heard by the next call.
        with suppress(BlockingIOError):
            os.read(self._fd, _READ_BYTES)


class _PollingEar(Ear):
    """For machines on which inotify has no room left, or that have none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._touched = self._look()

    async def wait(self) -> None:
        # Two rings in one tick of the file system's clock look like one: hence the return without any.
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
