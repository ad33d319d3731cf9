"""A debug mode that names whatever holds the event loop: one process is one core, so a hold delays everybody.

The instrument times every step of every task. A thread watches the step under way and, when it has lasted for the
threshold, takes the loop thread's stack, so that the log line shows where the time went and not only which task it was.
Little CPU time in a long hold means that the machine was busy with something else, or the step waited for the disk.

It costs a few per cent and is off unless asked for (`ottla serve --debug-loop`).
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import re
import sys
import tempfile
import threading
import time
import traceback
from typing import IO, Any, Final

import trio

logger = logging.getLogger(__name__)

DEFAULT_THRESHOLD_MS: Final = 0.5

_STACK_DEPTH: Final = 12
_MAX_LINES_PER_SECOND: Final = 10
# A hold that is this much longer than all before is logged in any case: that can be a few dozen times.
_RECORD: Final = 1.2
_TRIO_RUN: Final = "unrolled_run"
_FRAME: Final = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
# The thread has to get the interpreter while the loop is busy: by default it would wait 5 ms for it.
_SWITCH_INTERVAL_SECONDS: Final = 0.000_1


class LoopWatchdog(trio.abc.Instrument):
    """Logs steps of tasks that take `threshold_ms` or longer, and counts and measures all of them.

    Ten a second are logged, and each one that uses more CPU than all before it.

    Hand it to `trio.run(..., instruments=[watchdog])`. The thread lives from `before_run` to `after_run`.
    """

    def __init__(self, threshold_ms: float = DEFAULT_THRESHOLD_MS) -> None:
        self._threshold_seconds = threshold_ms / 1000
        self._step_started = 0.0
        self._cpu_started = 0.0
        self._sample: traceback.StackSummary | None = None
        self._collecting_since = 0.0
        self._collected_seconds = 0.0
        self._lines = 0
        self._lines_since = 0.0
        self._suppressed = 0
        self._loop_thread = 0
        self._ended = threading.Event()
        self.holds = 0
        self.longest_hold_ms = 0.0
        self.longest_cpu_ms = 0.0

    def forget(self) -> None:
        """Count from now on, without what the start has taken."""
        self.holds = 0
        self.longest_hold_ms = self.longest_cpu_ms = 0.0

    def before_run(self) -> None:
        self._loop_thread = threading.get_ident()
        self._switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
        gc.callbacks.append(self._on_collection)
        threading.Thread(target=self._watch, name="loop watchdog", daemon=True).start()

    def after_run(self) -> None:
        self._ended.set()
        gc.callbacks.remove(self._on_collection)
        sys.setswitchinterval(self._switch_interval)

    def sum_up(self) -> None:
        """Log what was counted; called before the end, which may take a while."""
        logger.info(
            "the loop was held %d times, for at most %.1f ms, of which the CPU worked at most %.1f ms",
            self.holds,
            self.longest_hold_ms,
            self.longest_cpu_ms,
        )

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._collected_seconds = 0.0
        self._sample = None
        self._cpu_started = time.thread_time()
        self._step_started = time.perf_counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        held_seconds = time.perf_counter() - self._step_started
        self._step_started = 0.0
        if held_seconds >= self._threshold_seconds:
            self._report(task, held_seconds)

    def _report(self, task: trio.lowlevel.Task, held_seconds: float) -> None:
        cpu_ms = (time.thread_time() - self._cpu_started) * 1000
        self.holds += 1
        is_record = cpu_ms > self.longest_cpu_ms * _RECORD
        self.longest_hold_ms = max(self.longest_hold_ms, held_seconds * 1000)
        self.longest_cpu_ms = max(self.longest_cpu_ms, cpu_ms)
        now = time.monotonic()
        if now - self._lines_since >= 1:
            self._lines, self._lines_since = 0, now
        if self._lines >= _MAX_LINES_PER_SECOND and not is_record:
            self._suppressed += 1
            return
        self._lines += 1
        where = "".join(traceback.format_list(self._sample)) if self._sample else "  (too short to be seen)\n"
        collected = ""
        if self._collected_seconds:
            collected = f", {self._collected_seconds * 1000:.1f} ms of it garbage collection"
        left_out = f"; {self._suppressed} more were not logged" if self._suppressed else ""
        self._suppressed = 0
        logger.warning(
            "the loop was held for %.1f ms (%.1f ms of CPU) by %s%s%s\n%s",
            held_seconds * 1000,
            cpu_ms,
            task.name,
            collected,
            left_out,
            where.rstrip(),
            extra={"task": task.name, "duration_ms": round(held_seconds * 1000, 3)},
        )

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if threading.get_ident() != self._loop_thread:
            return
        if phase == "start":
            self._collecting_since = time.perf_counter()
        else:
            self._collected_seconds += time.perf_counter() - self._collecting_since

    def _watch(self) -> None:
        """Sample the loop's stack once in every step that has lasted for most of the threshold."""
        sampled_step = 0.0
        with tempfile.TemporaryFile() as dump:
            while not self._ended.wait(self._threshold_seconds / 4):
                started = self._step_started
                if not started or started == sampled_step:
                    continue
                if time.perf_counter() - started >= self._threshold_seconds * 0.75:
                    sampled_step = started
                    stack = _stack_of(self._loop_thread, dump)
                    if self._step_started == started:
                        self._sample = stack


def _stack_of(thread: int, dump: IO[bytes]) -> traceback.StackSummary:
    """The stack of a thread, from where Trio steps the task on; the innermost last.

    Frames of another thread that runs on must not be followed by Python code, which that thread takes turns with: a
    frame may be gone by the next step, and the interpreter crashes. `faulthandler` takes all of them in one.
    """
    dump.seek(0)
    dump.truncate()
    faulthandler.dump_traceback(dump, all_threads=True)
    dump.seek(0)
    found = re.search(rf"hread 0x{thread:016x} .*\n((?:  .*\n)*)", dump.read().decode(errors="replace"))
    frames = [] if found is None else _FRAME.findall(found[1].partition(f" in {_TRIO_RUN}\n")[0])
    stack = traceback.StackSummary.from_list([(file, int(line), name, None) for file, line, name in frames])
    del stack[_STACK_DEPTH:]
    stack.reverse()
    for each in stack:
        assert each.line is not None  # it is looked up here, and not on the loop
    return stack
