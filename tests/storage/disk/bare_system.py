"""A system that has only what every Unix has: no vectored calls, no fdatasync, no posix_fadvise, no /proc."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

from ottla.storage.disk.system_calls import SystemCalls, system_calls


def bare_system() -> SystemCalls:
    return system_calls(
        SimpleNamespace(pread=os.pread, pwrite=os.pwrite, fsync=os.fsync), SimpleNamespace(), Path("/no/such/file")
    )
