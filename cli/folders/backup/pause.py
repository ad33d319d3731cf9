"""Pausing a process while its files are looked at.

The files of a paused broker are like those of a killed one, and recovery is made for that: everything that it has
acknowledged is there, and at most the block that was being written is torn. Unlike a killed broker it then continues as
if nothing had happened.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ottla.cli.folders.backup.errors import BackupError

LONGEST_PAUSE_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.001


@contextlib.contextmanager
def paused(pids: Sequence[int]) -> Iterator[None]:
    """The processes are paused inside this context. They continue afterwards in any case, even if this process is
    killed.
    """
    if not pids:
        yield
        return
    guard = _Guard(pids)
    try:
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        deadline = time.monotonic() + LONGEST_PAUSE_SECONDS / 2
        while not all(map(_stands_still, pids)):
            if time.monotonic() > deadline:
                raise BackupError(f"process {', '.join(map(str, pids))} cannot be paused: is its disk hanging?")
            time.sleep(_POLL_SECONDS)
        yield
        if guard.has_ended():
            raise BackupError("it took too long to look at the files: try again when the machine is less busy")
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        guard.release()


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        raise BackupError(f"process {pid} has ended in the meantime: try again") from None
    except PermissionError:
        raise BackupError(f"process {pid} cannot be paused: run this as the broker's user") from None


def _stands_still(pid: int) -> bool:
    """Whether every thread has stopped; a write that is under way in the kernel ends first."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        # The state comes after the name, which is in parentheses and may contain anything.
        states = [Path(f"/proc/{pid}/task/{it}/stat").read_text().rpartition(")")[2].split()[0] for it in threads]
    except FileNotFoundError:
        raise BackupError(f"process {pid} has ended in the meantime: try again") from None
    return all(state == "T" for state in states)


class _Guard:
    """A child process that lets the processes continue when this one ends, or after a while if it never does."""

    def __init__(self, pids: Sequence[int]) -> None:
        watched, self._held = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.close(self._held)
            select.select([watched], [], [], LONGEST_PAUSE_SECONDS)
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)
            os._exit(0)
        os.close(watched)

    def has_ended(self) -> bool:
        """Whether it has already let them continue, in which case what was seen since may not belong together."""
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def release(self) -> None:
        os.close(self._held)
        os.waitpid(self._pid, 0)
