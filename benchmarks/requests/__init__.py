"""Requests a second, from connections that each send one prepared request again and again. See requests.c."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from struct import pack
from typing import Any

from benchmarks.c_program import CProgram
from ottla.kproto import codec, headers
from ottla.kproto.schema import Request

_PROGRAM = CProgram(Path(__file__).with_name("requests.c"))
build = _PROGRAM.build


def frame(request: Request, version: int, client_id: str = "bench") -> bytes:
    """A request as it goes over the wire, with its length in front."""
    header = headers.build_request_header(request.API_KEY, version, 1, client_id)
    body = b"".join(codec.build_parts(request, version))
    return pack(">i", len(header) + len(body)) + header + body


def run(bootstrap: str, frames: Iterable[bytes], *, connections: int, seconds: int) -> dict[str, Any]:
    """Let `connections` send for so long, the i-th of them frame i modulo their number.

    Returns how many were `answered` in how many `seconds`, and `p50_ms` and `p99_ms` of a request.
    """
    host, _, port = bootstrap.rpartition(":")
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(frames))
        file.flush()
        return _PROGRAM.run(host, port, connections, seconds, file.name)
