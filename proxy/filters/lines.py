"""A file that lines are appended to, by filters that write down what they see."""

from __future__ import annotations

import os
from typing import IO

import trio


class LinesFile:
    """One file. It is opened again for each write, so that it can be moved away at any time (logrotate).

    Only its owner may read a file that is made here. `max_bytes` (0: no limit) is how long it may get.
    """

    def __init__(self, path: str, max_bytes: int = 0) -> None:
        """Raises ValueError, with a sentence, if the file cannot be written."""
        self.path = path
        self._max_bytes = max_bytes
        self._turn = trio.Lock()
        try:
            with self._open() as file:
                self.size_bytes = file.tell()
        except OSError as error:
            raise ValueError(f"{path} cannot be written: {error.strerror}") from None

    async def append(self, lines: bytes) -> bool:
        """Write whole lines, in the order of calls; False if there is no room for them. Raises OSError."""
        async with self._turn:
            return await trio.to_thread.run_sync(self._append, lines)

    def _append(self, lines: bytes) -> bool:
        with self._open() as file:
            self.size_bytes = file.tell()
            if self._max_bytes and self.size_bytes + len(lines) > self._max_bytes:
                return False
            file.write(lines)
            return True

    def _open(self) -> IO[bytes]:
        return open(self.path, "ab", opener=lambda path, flags: os.open(path, flags, 0o600))
