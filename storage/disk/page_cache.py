"""What the page cache holds of a file, as Linux 6.5 and later tell it (cachestat(2)).

Python has no function for it, so it is called by its number, which is the same on all of Linux's architectures but
Alpha. Where it is not known, or not allowed, nothing is taken to be in the page cache.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from typing import Final

__all__ = ["PageCache"]

_CACHESTAT: Final = 451


class _Range(ctypes.Structure):
    _fields_ = (("position", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    """Numbers of pages."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "being_written", "evicted", "recently_evicted")
    )


class PageCache:
    """The kernel's page cache. In any thread; no call waits for a device.

    `is_known` says whether the kernel tells what is in it.
    """

    __slots__ = ("_call", "is_known")

    def __init__(self) -> None:
        """Load the C library, and ask the kernel once. Blocks."""
        self.is_known = sys.platform == "linux" and platform.machine() != "alpha"
        if self.is_known:
            number, pointer = ctypes.c_long, ctypes.c_void_p
            prototype = ctypes.CFUNCTYPE(number, number, ctypes.c_int, pointer, pointer, ctypes.c_uint)
            self._call = prototype(("syscall", ctypes.CDLL(None)))
            self._ask_once()

    def _ask_once(self) -> None:
        handle = os.open(__file__, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.holds(handle, 0, 1)
        finally:
            os.close(handle)

    def holds(self, handle: int, position: int, length: int) -> bool:
        """Whether all pages of a range are in the page cache. Now and then it misses pages that are there."""
        if not self.is_known:
            return False
        counts = _Counts()
        if self._call(_CACHESTAT, handle, ctypes.byref(_Range(position, length)), ctypes.byref(counts), 0):
            # An older kernel, a sandbox, or a file system without a page cache.
            self.is_known = False
            return False
        pages = (position + length - 1) // mmap.PAGESIZE - position // mmap.PAGESIZE + 1
        return bool(counts.cached >= pages)
