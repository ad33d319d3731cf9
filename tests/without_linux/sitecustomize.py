"""Linux without what only Linux has: `PYTHONPATH=tests/without_linux` for any Python, and all that it starts.

Ottla and its tests find none of the names that macOS lacks in the modules of the system, no inotify, and nothing to
read below /proc. Everybody else keeps what he has found at his own installation: Trio its epoll, for example.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import sys
from types import ModuleType
from typing import Any

_LACKING = {
    os: (
        *("fdatasync", "posix_fadvise", "posix_fallocate", "copy_file_range", "splice", "memfd_create", "eventfd"),
        *("sched_getaffinity", "sched_setaffinity", "pidfd_open", "waitid", "O_DIRECT", "O_TMPFILE", "O_PATH"),
        *(name for name in dir(os) if name.startswith(("RWF_", "MFD_", "POSIX_FADV_", "EFD_"))),
    ),
    select: tuple(name for name in dir(select) if name.lower().startswith("epoll")),
    socket: (
        *("SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED", "MSG_ERRQUEUE"),
        *("TCP_KEEPIDLE", "TCP_QUICKACK", "TCP_USER_TIMEOUT", "TCP_DEFER_ACCEPT", "TCP_CORK", "TCP_INFO"),
    ),
    fcntl: tuple(name for name in dir(fcntl) if name.startswith("F_OFD_")),
    signal: ("SIGRTMIN", "SIGRTMAX", "SIGPWR", "SIGSTKFLT", "pidfd_send_signal"),
}
_DENIED = ("ottla.", "tests.")


def _take_away(module: ModuleType, names: tuple[str, ...]) -> None:
    kept = {name: vars(module).pop(name) for name in names if name in vars(module)}

    def look(name: str) -> Any:
        if name not in kept or sys._getframe(1).f_globals.get("__name__", "").startswith(_DENIED):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return kept[name]

    vars(module)["__getattr__"] = look


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])
    if event == "ctypes.dlsym" and str(arguments[1]).startswith("inotify_"):
        raise AttributeError(arguments[1])


for _module, _names in _LACKING.items():
    _take_away(_module, _names)
sys.addaudithook(_hear)
