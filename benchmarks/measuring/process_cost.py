"""What a broker's process has used, read from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _UTIME, _STIME, _CUTIME, _CSTIME, _START = 1, 11, 12, 13, 14, 19  # of /proc/PID/stat, after the process's name
_LOOK_INTERVAL_S = 2.0


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


def kernel_and_all_s(pid: int) -> tuple[float, float]:
    """CPU seconds that a process has spent in the kernel, and all, in hundredths: for how they are divided."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    kernel, interpreter = int(stat[_STIME]), int(stat[_UTIME])
    return kernel / _TICKS_PER_S, (kernel + interpreter) / _TICKS_PER_S


def tree_cpu_s(pid: int, *, without: Collection[int] = ()) -> float:
    """CPU seconds of a process and of all that it has started, also of those that have ended and were waited for.

    The processes in `without`, and what they have started, are left out.
    """
    fields = (_UTIME, _STIME, _CUTIME, _CSTIME)
    return sum(int(stat[field]) for _, stat in _tree(pid, without) for field in fields) / _TICKS_PER_S


class TreeWatch:
    """What a process and all that it starts use from now until `stop`, also those of them that end meanwhile.

    Spark's Python workers end when they were idle for a minute, and nobody inherits what they had used. So this looks
    at each process now and then; of one that ends, what it used after the last look is missing.
    """

    def __init__(self, pid: int, *, without: Collection[int] = ()) -> None:
        self._pid = pid
        self._without = without
        self._ticks: dict[tuple[int, str], int] = {}
        self.look()
        self._at_first = dict(self._ticks)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> float:
        """The CPU seconds."""
        self._stopped.set()
        self._thread.join()
        self.look()
        return sum(ticks - self._at_first.get(each, 0) for each, ticks in self._ticks.items()) / _TICKS_PER_S

    def look(self) -> None:
        """Take in what each has used until now."""
        for pid, stat in _tree(self._pid, self._without):
            self._ticks[pid, stat[_START]] = int(stat[_UTIME]) + int(stat[_STIME])

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_INTERVAL_S):
            self.look()


def _tree(pid: int, without: Collection[int]) -> Iterator[tuple[int, list[str]]]:
    """A process and all that it has started, each with its fields of /proc/PID/stat."""
    stats: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # It has ended meanwhile.
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    left = [pid]
    while left:
        each = left.pop()
        yield each, stats[each]
        left += [child for child, stat in stats.items() if int(stat[_PARENT]) == each and child not in without]
