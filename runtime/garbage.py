"""The schedule of a server's garbage collector."""

from __future__ import annotations

import gc
from typing import Final

# A request's objects are freed by their reference counts: collections find next to nothing, and run while the tail
# cache fills. Each one holds the loop while it looks at all objects made since the last one, so they are kept small:
# 4,000 objects take 1 ms.
_THRESHOLDS: Final = (2_000, 1, 25_000)


def collect_seldom() -> None:
    """Hide what the start has made from the garbage collector for good, and let it run rarely from now on."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(*_THRESHOLDS)
