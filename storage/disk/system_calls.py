"""The system calls of the data path, and replacements for those that a system lacks.

Linux has them all. macOS has neither `fdatasync` nor `posix_fadvise` nor `RWF_NOWAIT` nor /proc; some systems lack
vectored reads and writes at a position. A replacement does the same, only more slowly: it never promises less.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple
from uuid import uuid4

__all__ = ["Buffers", "SystemCalls", "system_calls"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_NOT_KNOWN_HERE: Final = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY})

Buffers = Sequence[memoryview | bytes]


class SystemCalls(NamedTuple):
    """What `RealDisk` calls. `preadv_nowait` raises OSError (EOPNOTSUPP) if reads cannot be kept from waiting."""

    pwritev: Callable[[int, Buffers, int], int]
    preadv: Callable[[int, Buffers, int], int]
    preadv_nowait: Callable[[int, Buffers, int], int]
    fdatasync: Callable[[int], None]
    fsync: Callable[[int], None]
    advise_willneed: Callable[[int, int, int], None]
    boot_id: Callable[[], str]


def system_calls(
    system: ModuleType | SimpleNamespace = os, control: ModuleType | SimpleNamespace = fcntl, boot_id: Path = _BOOT_ID
) -> SystemCalls:
    """The calls of a system whose modules have these functions."""
    fsync = partial(_full_sync, system, control) if hasattr(control, "F_FULLFSYNC") else system.fsync
    can_tell = hasattr(system, "preadv") and hasattr(system, "RWF_NOWAIT")
    return SystemCalls(
        pwritev=getattr(system, "pwritev", partial(_pwrite_each, system)),
        preadv=getattr(system, "preadv", partial(_pread_each, system)),
        preadv_nowait=partial(_preadv_nowait, system) if can_tell else _never_at_once,
        fdatasync=getattr(system, "fdatasync", fsync),
        fsync=fsync,
        advise_willneed=partial(_advise_willneed, system) if hasattr(system, "posix_fadvise") else _say_nothing,
        # If it is not known whether the machine was restarted, each start finds out what is on the disk.
        boot_id=partial(_read_boot_id, boot_id, f"unknown-{uuid4().hex}"),
    )


def _pwrite_each(system: Any, handle: int, buffers: Buffers, position: int) -> int:
    written = 0
    for buffer in buffers:
        count = system.pwrite(handle, buffer, position + written)
        written += count
        if count < len(buffer):
            break
    return written


def _pread_each(system: Any, handle: int, buffers: Buffers, position: int) -> int:
    read = 0
    for buffer in buffers:
        data = system.pread(handle, len(buffer), position + read)
        memoryview(buffer)[: len(data)] = data
        read += len(data)
        if len(data) < len(buffer):
            break
    return read


def _preadv_nowait(system: Any, handle: int, buffers: Buffers, position: int) -> int:
    count: int = system.preadv(handle, buffers, position, system.RWF_NOWAIT)
    return count


def _never_at_once(_handle: int, _buffers: Buffers, _position: int) -> int:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def _full_sync(system: Any, control: Any, handle: int) -> None:
    # On macOS fsync leaves the data in the drive's cache.
    try:
        control.fcntl(handle, control.F_FULLFSYNC)
    except OSError as error:
        if error.errno not in _NOT_KNOWN_HERE:
            raise
        # File systems of networks and some of FUSE do not know it, and offer no more than this.
        system.fsync(handle)


def _advise_willneed(system: Any, handle: int, position: int, length: int) -> None:
    system.posix_fadvise(handle, position, length, system.POSIX_FADV_WILLNEED)


def _say_nothing(_handle: int, _position: int, _length: int) -> None:
    pass


def _read_boot_id(path: Path, otherwise: str) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return otherwise
