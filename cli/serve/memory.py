"""How much memory there is for a process: the machine's, or its control group's."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_MEMORY = Path("/proc/meminfo")
_GROUP_USE = Path("/sys/fs/cgroup/memory.current")


def machine_memory() -> int:
    """All of it, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(_GROUP_LIMIT.read_text(encoding="ascii")))
    return total


def available_memory() -> int:
    """The available memory in bytes; all of it if the system does not say."""
    available = machine_memory()
    with contextlib.suppress(OSError):
        for line in _MEMORY.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError):
        limit = int(_GROUP_LIMIT.read_text(encoding="ascii"))
        used = int(_GROUP_USE.read_text(encoding="ascii"))
        available = min(available, max(limit - used, 0))
    return available
