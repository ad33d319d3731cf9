"""kafkajs, the client of Node.js, as a member of a group: compat_tests/node/member.js."""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "node"


def missing() -> str | None:
    """What this machine lacks to run it, in a sentence; None if it lacks nothing."""
    if shutil.which("node") is None:
        return "Node.js is not installed"
    if not (FOLDER / "node_modules" / "kafkajs").is_dir():
        return "kafkajs is not there: run `make clients`"
    return None


def member() -> list[str]:
    """The command that runs a member; its options follow."""
    return ["node", str(FOLDER / "member.js")]
