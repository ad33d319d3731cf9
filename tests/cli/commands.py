"""Commands in processes of their own, forked from one that has imported them: an interpreter's start takes longer than
what most of them do."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

TIMEOUT_S: Final = 120
#: What most commands import, and what a child imports because its parent's main module is pytest's. What its own
#: command needs beyond that, each child imports for itself.
IMPORTED: Final = ["pytest", *(f"ottla.cli.{name}" for name in ("topic", "group", "config", "produce", "consume"))]


def run_forked(
    arguments: Sequence[str], *, stdin: bytes, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run` would: a whole process with its own streams, environment and exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_bytes(stdin)
        process: BaseProcess = context.Process(target=_be_command, args=(list(arguments), streams, dict(environment)))
        process.start()
        process.join(TIMEOUT_S)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(arguments), TIMEOUT_S)
        process.close()
        return subprocess.CompletedProcess(arguments, code, streams[1].read_bytes(), streams[2].read_bytes())


def _be_command(arguments: list[str], streams: list[Path], environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(streams):
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    # As an interpreter opens them where no locale is set.
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["ottla", *arguments]
    from ottla.cli import main

    sys.exit(main())
