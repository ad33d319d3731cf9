"""The memory that batches arrive in: it is lent, and overwritten when it is given back."""

from __future__ import annotations

from ottla.simulation.storage.engine import Fragment

__all__ = ["ReceivedMemory"]

_SCRIBBLE = b"\xdd"


class ReceivedMemory:
    """Counts what the engine has not given back."""

    def __init__(self) -> None:
        self.lent = 0

    def lend(self, content: bytes) -> Fragment:
        """Memory with a copy of this content, and one reference that is the caller's."""
        self.lent += 1
        return Fragment(memoryview(bytearray(content)), self._take_back)

    def _take_back(self, memory: memoryview) -> None:
        self.lent -= 1
        memory[:] = _SCRIBBLE * len(memory)
