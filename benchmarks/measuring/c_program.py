"""A load generator in C, built when it is first needed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

CACHE: Final = Path(".cache")
TIMEOUT_S: Final = 900


class MissingToolError(Exception):
    """Something that the benchmarks need is not installed; the message says what."""


class CProgram:
    """One source file, the libraries that it is linked with, and where it finds headers beside the usual places."""

    def __init__(self, source: Path, *libraries: str, includes: Sequence[Path] = ()) -> None:
        self._source = source
        self._libraries = libraries
        self._includes = includes
        self._program = CACHE / source.stem

    def build(self) -> Path:
        """Compile it unless that was done since it last changed. Raises MissingToolError."""
        if self._program.exists() and self._program.stat().st_mtime > self._source.stat().st_mtime:
            return self._program
        if shutil.which("cc") is None:
            raise MissingToolError("a C compiler is needed: install gcc")
        self._program.parent.mkdir(exist_ok=True)
        links = [f"-l{library}" for library in self._libraries]
        headers = [f"-I{folder}" for folder in self._includes]
        command = ["cc", "-O2", "-pthread", *headers, "-o", str(self._program), str(self._source), *links]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if built.returncode:
            wanted = " and ".join(f"lib{library}-dev" for library in self._libraries) or "libc6-dev"
            raise MissingToolError(f"cannot build {self._source.name}; is {wanted} installed?\n{built.stderr}")
        return self._program

    def start(self, *words: object) -> subprocess.Popen[str]:
        """Start it; `result` waits for what it measures."""
        command = [str(self.build().absolute()), *map(str, words)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def result(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """What a started run measured. Raises CalledProcessError if it failed, TimeoutExpired if it never ends."""
        try:
            output, errors = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args, output, errors)
        measured: dict[str, Any] = json.loads(output)
        return measured

    def run(self, *words: object) -> dict[str, Any]:
        """Start it and wait for what it measures."""
        return self.result(self.start(*words))
