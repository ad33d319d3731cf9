"""Requests a second, from connections that each send one prepared request again and again. See requests.c."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.measuring.c_program import CProgram

_PROGRAM = CProgram(Path(__file__).with_name("requests.c"))
build = _PROGRAM.build


def run(bootstrap: str, frames: Iterable[bytes], *, connections: int, seconds: int) -> dict[str, Any]:
    """Let `connections` send for so long, the i-th of them frame i modulo their number.

    Returns how many were `answered` in how many `seconds`, and `p50_ms` and `p99_ms` of a request.
    """
    host, _, port = bootstrap.rpartition(":")
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(frames))
        file.flush()
        return _PROGRAM.run(host, port, connections, seconds, file.name)
