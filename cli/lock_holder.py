"""Who holds the lock of a node's folder, for the message that refuses a second one."""

from __future__ import annotations

from pathlib import Path

from ottla.cli.backup.errors import BackupError
from ottla.cli.backup.pause import lock_owner
from ottla.storage.node_dir import LOCK_FILE


def refusal(folder: Path) -> str:
    """`<folder> is in use by process 17 (ottla serve …)`, or by another process if it cannot be found out which."""
    try:
        process_id = lock_owner(folder / LOCK_FILE)
    except (BackupError, OSError):
        process_id = None
    if process_id is None:
        return f"{folder} is in use by another process"
    return f"{folder} is in use by process {process_id}{_command(process_id)}"


def _command(process_id: int) -> str:
    try:
        words = Path(f"/proc/{process_id}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    shown = " ".join(filter(None, words))
    return f" ({shown[:80]}{'…' if len(shown) > 80 else ''})" if shown else ""
