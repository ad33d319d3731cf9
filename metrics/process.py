"""Metrics of this process, by Prometheus' usual names."""

from __future__ import annotations

import os
import resource
from functools import cache
from typing import Final

from ottla.metrics.metric import Family, Metric, counter, gauge, single

CPU: Final = counter("process_cpu_seconds_total", "CPU time of the process.")
RESIDENT: Final = gauge("process_resident_memory_bytes", "Memory of the process.")
VIRTUAL: Final = gauge("process_virtual_memory_bytes", "Address space of the process.")
OPEN_FDS: Final = gauge("process_open_fds", "Open file descriptors.")
MAX_FDS: Final = gauge("process_max_fds", "Limit on open file descriptors.")
START_TIME: Final = gauge("process_start_time_seconds", "When the process began, since 1970.")

METRICS: Final = tuple(metric for metric in globals().values() if isinstance(metric, Metric))

_PAGE_BYTES: Final = resource.getpagesize()


def collect() -> list[Family]:
    """The families of this module. May block."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    families = [
        single(CPU, usage.ru_utime + usage.ru_stime),
        single(MAX_FDS, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]
    try:
        with open("/proc/self/statm", "rb") as file:
            virtual, resident = file.read().split()[:2]
        families.append(single(VIRTUAL, int(virtual) * _PAGE_BYTES))
        families.append(single(RESIDENT, int(resident) * _PAGE_BYTES))
        families.append(single(OPEN_FDS, len(os.listdir("/proc/self/fd")) - 1))
        families.append(single(START_TIME, _start_time_seconds()))
    except FileNotFoundError:
        pass  # no Linux
    return families


@cache
def _start_time_seconds() -> float:
    with open("/proc/self/stat", "rb") as file:
        started_ticks = int(file.read().rpartition(b")")[2].split()[19])
    with open("/proc/stat", "rb") as file:
        booted_seconds = next(float(line.split()[1]) for line in file if line.startswith(b"btime"))
    return booted_seconds + started_ticks / os.sysconf("SC_CLK_TCK")
