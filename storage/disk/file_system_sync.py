"""A sync of a whole file system (syncfs(2)), where Linux is known to do it as `Disk.sync_all` promises.

Since Linux 5.8 it tells that a write has failed since the file was opened. What a file system makes of it differs:
FUSE and network file systems may promise less, and one in layers has its own rules. So it is used on those that
journal names and flush the device, and nowhere else. Python has no function for it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import Final

__all__ = ["sync_file_system"]

_FIRST_RELEASE: Final = (5, 8)
#: On these the type of a file system is the first long of what fstatfs(2) says.
_MACHINES: Final = ("x86_64", "aarch64")
#: ext4, XFS, Btrfs.
_FILE_SYSTEMS: Final = (0xEF53, 0x58465342, 0x9123683E)


def sync_file_system(handle: int) -> bool:
    """Make everything durable that was written to the file system of an open file; False if that is not known to work.

    OSError if it fails. Blocks.
    """
    if sys.platform != "linux" or platform.machine() not in _MACHINES or _release() < _FIRST_RELEASE:
        return False
    library = ctypes.CDLL(None, use_errno=True)
    status = (ctypes.c_long * 32)()
    if library.fstatfs(handle, status) or status[0] not in _FILE_SYSTEMS:
        return False
    if library.syncfs(handle):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


def _release() -> tuple[int, ...]:
    """The first two numbers of the kernel's release."""
    numbers = platform.release().split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())
