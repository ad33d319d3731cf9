"""Giving large memory back to the system without holding anybody up.

To unmap 95 MB that were written takes 30 ms, in which Python runs nothing else. So the pages are given back a few at a
time, in a thread that lets others run in between; what is left to unmap then is empty.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections import deque
from typing import Final

__all__ = ["Unmapping"]

_PIECE_BYTES: Final = 524_288


class Unmapping:
    """Memory that waits to be given back. Its thread ends by itself when there is none, and keeps no process alive."""

    __slots__ = ("_is_running", "_lock", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[memoryview] = deque()
        self._lock = threading.Lock()
        self._is_running = False

    def free(self, memory: memoryview) -> None:
        """Give back memory that nobody uses any more; it must be a mapping of its own. In any thread."""
        with self._lock:
            self._waiting.append(memory)
            if self._is_running:
                return
            self._is_running = True
        try:
            threading.Thread(target=self._run, name="ottla unmapping", daemon=True).start()
        except RuntimeError:
            # There can be no more threads now: memory is unmapped as a whole, here, and the next time is another try.
            with self._lock:
                self._is_running = False
                self._waiting.clear()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_running = False
                    return
                memory = self._waiting.popleft()
            _empty(memory)


def _empty(memory: memoryview) -> None:
    mapping = memory.obj
    advice = getattr(mmap, "MADV_DONTNEED", None)
    if not isinstance(mapping, mmap.mmap) or advice is None:
        return
    size_bytes = len(mapping)
    for start in range(0, size_bytes, _PIECE_BYTES):
        mapping.madvise(advice, start, min(_PIECE_BYTES, size_bytes - start))
        # Another thread that waits for the interpreter gets it.
        time.sleep(0)
