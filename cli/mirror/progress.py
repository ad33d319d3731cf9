"""The progress of a mirror, as one line on a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from ottla.cli.options import counted

if TYPE_CHECKING:
    from ottla.cli.mirror.state import Comparison

_BAR_WIDTH: Final = 30


class MirrorBar:
    """A bar, the lag and the rate on stderr; nothing if that is not a terminal."""

    def __init__(self) -> None:
        self.is_shown = sys.stderr.isatty()
        self._began: tuple[float, int] | None = None

    def show(self, found: Comparison) -> None:
        """Show the progress now."""
        if self.is_shown:
            print(f"\r\x1b[K{self.line(found, time.monotonic())}", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Finish, and leave the line as it is."""
        if self.is_shown:
            print(file=sys.stderr, flush=True)

    def line(self, found: Comparison, now: float) -> str:
        """The bar is relative to what the source has now; the rate is the average since the beginning."""
        if self._began is None:
            self._began = now, found.copied
        since, copied = self._began
        rate = (found.copied - copied) / max(now - since, 1e-3)
        share = found.copied / found.records if found.records else 1.0
        bar = ("#" * int(share * _BAR_WIDTH)).ljust(_BAR_WIDTH, ".")
        left = f", {found.lag / rate:,.0f} s left" if rate > 0 and found.lag else ""
        return (
            f"mirroring [{bar}] {share:4.0%}  {counted(len(found.topics), 'topic')}, "
            f"{found.copied:,} of {found.records:,} records, lag {found.lag:,}, {rate:,.0f} a second{left}"
        )
