"""What a broker's process has used, read from /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # fields of /proc/PID/stat after the process's name


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
