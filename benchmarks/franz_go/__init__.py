"""Load through franz-go, a client that nobody has tuned a broker to. See main.go."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from benchmarks.measuring.c_program import CACHE, TIMEOUT_S, MissingToolError

__all__ = ["consume"]

_SOURCES: Final = Path(__file__).parent


def _build() -> Path:
    """Compile it, which takes no time where nothing has changed. Raises MissingToolError."""
    if shutil.which("go") is None:
        raise MissingToolError("Go is needed for franz-go")
    program = (CACHE / "franz_go").absolute()
    built = subprocess.run(
        ["go", "build", "-o", str(program), "."], cwd=_SOURCES, capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise MissingToolError(f"cannot build {_SOURCES}\n{built.stderr}")
    return program


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> dict[str, Any]:
    """Read so many records of a topic; what was measured. Raises CalledProcessError if it fails."""
    words = map(str, (_build(), bootstrap, topic, partitions, count))
    done = subprocess.run(list(words), capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured
