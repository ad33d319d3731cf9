"""What a broker's process has used, read from /proc."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _UTIME, _STIME, _CUTIME, _CSTIME = 1, 11, 12, 13, 14  # fields of /proc/PID/stat after the process's name
_PR_SET_CHILD_SUBREAPER = 36


class Cost(NamedTuple):
    """CPU seconds since the process started, resident and peak memory in MB (10^6 bytes), open files."""

    cpu_s: float
    resident_mb: float
    peak_mb: float
    open_files: int


def cost(pid: int) -> Cost:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Cost(
        cpu_s=(int(stat[_UTIME]) + int(stat[_STIME])) / _TICKS_PER_S,
        resident_mb=int(status["VmRSS"].split()[0]) * 1024 / 1e6,
        peak_mb=int(status["VmHWM"].split()[0]) * 1024 / 1e6,
        open_files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
    )


def threads_cpu_s(pid: int) -> float:
    """CPU seconds of the threads that a process has now, to the nanosecond where `cost` counts hundredths."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def adopt_orphans() -> None:
    """Become the parent of what a child leaves behind when it ends, so that `tree_cpu_s` goes on counting it.

    Spark's idle Python workers end while others run, and what they had used was missing afterwards.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def tree_cpu_s(pid: int, *, without: Collection[int] = ()) -> float:
    """CPU seconds of a process and of all that it has started, also of those that have ended and were waited for.

    The processes in `without`, and what they have started, are left out.
    """
    stats: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # It has ended meanwhile.
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    left, ticks = [pid], 0
    while left:
        each = left.pop()
        ticks += sum(int(stats[each][field]) for field in (_UTIME, _STIME, _CUTIME, _CSTIME))
        left += [child for child, stat in stats.items() if int(stat[_PARENT]) == each and child not in without]
    return ticks / _TICKS_PER_S
