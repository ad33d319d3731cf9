"""Whether a process uses a node's folder, and which: the one place where the command line finds that out.

The lock itself is tried. /proc/locks only tells whose it is, and shows no process of another PID namespace, for example
of another container that shares the volume.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from ottla.cli import CommandError
from ottla.storage.node_dir import LOCK_FILE

UNSEEN = (
    "is in use by a process that cannot be seen from here: run this in its PID namespace "
    "(docker run --pid=container:NAME, or a pod's shareProcessNamespace), or stop the broker first"
)


def lock_owner(path: Path) -> int | None:
    """The process that holds a file's lock (flock); None if nobody does.

    Raises CommandError if somebody holds it and it cannot be seen who, or if the lock may not be tried.
    """
    while not _is_free(path):
        pid = _listed_owner(path)
        if pid is not None:
            return pid
        if not _is_free(path):
            raise CommandError(f"{path.parent} {UNSEEN}")
    return None


def refuse_running(folders: list[Path], consequence: str = "stop every node first") -> None:
    """Raises CommandError if a process uses one of these nodes' folders, whether it can be seen or not.

    The lock decides, not a session: a node that hangs has none, and may wake up.
    """
    for folder in folders:
        if not _is_free(folder / LOCK_FILE):
            raise CommandError(f"{refusal(folder)}: {consequence}")


def refusal(folder: Path) -> str:
    """`<folder> is in use by process 17 (ottla serve …)`, or by another process if it cannot be found out which."""
    try:
        process_id = lock_owner(folder / LOCK_FILE)
    except (CommandError, OSError):
        process_id = None
    if process_id is None:
        return f"{folder} is in use by another process"
    return f"{folder} is in use by process {process_id}{_command(process_id)}"


def _is_free(path: Path) -> bool:
    """Whether nobody holds a file's lock. A shared lock conflicts with the broker's, and needs no right to write."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    except PermissionError:
        raise CommandError(f"{path} may not be read: run this as the broker's user") from None
    return True


def _listed_owner(path: Path) -> int | None:
    """The process that /proc/locks names; None if it names none that is seen from here."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return None
    for line in lines:
        fields = line.split()
        if "FLOCK" not in fields or "->" in fields or int(fields[5].rpartition(":")[2]) != inode:
            continue
        pid = int(fields[4])
        if _has_open(pid, path):
            return pid
    return None


def _has_open(pid: int, path: Path) -> bool:
    """Whether this is really the process: a file of another file system may have the same inode number."""
    try:
        handles = os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        return False
    except PermissionError:
        raise CommandError(f"process {pid} cannot be paused: run this as the broker's user") from None
    for handle in handles:
        with contextlib.suppress(OSError):
            if os.path.samefile(f"/proc/{pid}/fd/{handle}", path):
                return True
    return False


def _command(process_id: int) -> str:
    try:
        words = Path(f"/proc/{process_id}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    shown = " ".join(filter(None, words))
    return f" ({shown[:80]}{'…' if len(shown) > 80 else ''})" if shown else ""
