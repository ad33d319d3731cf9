"""A bound on log lines: whoever sends us rubbish must not fill the disk, nor hold the loop with writing about it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

LINES_PER_SECOND: Final = 100


class LineLimit(logging.Filter):
    """Passes so many records a second; the first one of a later second says how many were left out.

    Critical records always pass. Add it to a handler, which then counts all loggers together.
    """

    def __init__(
        self, lines_per_second: int = LINES_PER_SECOND, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._limit = lines_per_second
        self._monotonic = monotonic
        self._second = 0
        self._lines = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > self._limit and record.levelno < logging.CRITICAL:
            self._left_out += 1
            return False
        if self._left_out:
            record.msg = f"{record.getMessage()} (and {self._left_out} lines before it that are not shown)"
            record.args = None
            self._left_out = 0
        return True
