"""Single operations measured in CPU time, so that a busy machine disturbs little: by pyperf, or quickly by timeit."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterable

Operation = Callable[[], object]

_REPEATS = 40


def by_pyperf(module: str, description: str, operations: Iterable[tuple[str, Operation]]) -> None:
    """Calibrated, in worker processes that run `module`; with pyperf's command line: `--help`, `--fast`, `--output`."""
    import pyperf

    runner = pyperf.Runner(program_args=("-m", module))
    runner.metadata["description"] = f"{description} (CPU time)"
    for what, operation in operations:
        runner.bench_time_func(what, cpu_seconds, operation)


def cpu_seconds(loops: int, operation: Operation) -> float:
    """CPU seconds of this process in which the operation was run so often."""
    began = time.process_time()
    for _ in range(loops):
        operation()
    return time.process_time() - began


def best_us(operation: Operation) -> float:
    """CPU microseconds of the operation, best of several short runs."""
    timer = timeit.Timer(operation, timer=time.process_time)
    loops = max(1, timer.autorange()[0] // _REPEATS)
    return min(timer.repeat(_REPEATS, loops)) / loops * 1e6
