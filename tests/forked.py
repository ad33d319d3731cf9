"""`ottla` commands in processes of their own, forked from one that has imported them: an interpreter's start and the
imports take longer than what most commands do, and ten times as long as the rest of a broker's start.

A process is forked for what is tested beside it. Where its start itself is tested, it is `subprocess.Popen`'s.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final, NamedTuple

TIMEOUT_S: Final = 120
#: A child imports pytest because its parent's main module is pytest's.
IMPORTED: Final = ["pytest", "tests.forked_modules"]


class _Surroundings(NamedTuple):
    """What a child has of who starts it, and not of the process that it is forked from."""

    environment: dict[str, str]
    folder: str
    umask: int

    @classmethod
    def here(cls, environment: Mapping[str, str]) -> _Surroundings:
        umask = os.umask(0o077)
        os.umask(umask)
        return cls(dict(environment), os.getcwd(), umask)

    def enter(self) -> None:
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        os.umask(self.umask)


class Forked:
    """A command that runs, with those methods of `subprocess.Popen` that tests call. Its output is a pipe, of text."""

    def __init__(
        self, arguments: Sequence[str], *, stderr: IO[Any] | None = None, start_new_session: bool = False
    ) -> None:
        self.args = ["ottla", *arguments]
        self.returncode: int | None = None
        reading, writing = os.pipe()
        self.stdout: IO[str] = open(reading, encoding="utf-8")  # noqa: SIM115
        try:
            surroundings = _Surroundings.here(os.environ)
            self._process = _forked(
                _be_running,
                list(arguments),
                _Passed(writing, 2 if stderr is None else stderr.fileno()),
                surroundings,
                start_new_session,
            )
        except BaseException:
            self.stdout.close()
            raise
        finally:
            os.close(writing)
        pid = self._process.pid
        assert pid is not None
        self.pid = pid

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        if self.returncode is None:
            self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended."""
        if self.returncode is None:
            self._process.join(timeout)
        code = self.poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(15)

    def kill(self) -> None:
        self.send_signal(9)


class _Passed:
    """The numbers of open files that a child is given."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, tuple(map(DupFd, self.numbers))


def _received(*passed: Any) -> list[int]:
    return [each.detach() for each in passed]


def run_forked(
    arguments: Sequence[str], *, stdin: bytes, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run` would: a whole process with its own streams, environment and exit code."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        paths[0].write_bytes(stdin)
        with ExitStack() as opened:
            streams = [
                opened.enter_context(path.open("rb" if number == 0 else "ab")) for number, path in enumerate(paths)
            ]
            passed = _Passed(*(stream.fileno() for stream in streams))
            process = _forked(_be_command, list(arguments), passed, _Surroundings.here(environment))
        process.join(TIMEOUT_S)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(arguments), TIMEOUT_S)
        process.close()
        return subprocess.CompletedProcess(arguments, code, paths[1].read_bytes(), paths[2].read_bytes())


def _forked(function: Any, *arguments: Any) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    # Those that are left when the interpreter ends are ended then, as daemons are: it waits for all others.
    process: BaseProcess = context.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def _be_running(arguments: list[str], passed: list[int], surroundings: _Surroundings, starts_session: bool) -> None:
    if starts_session:
        os.setsid()
    output, log = passed
    _be_command(arguments, [os.open(os.devnull, os.O_RDONLY), output, log], surroundings)


def _be_command(arguments: list[str], streams: list[int], surroundings: _Surroundings) -> None:
    surroundings.enter()
    for number, opened in enumerate(streams):
        os.dup2(opened, number)
        os.close(opened)
    # As an interpreter opens them where no locale is set.
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["ottla", *arguments]
    from ottla.cli import main

    sys.exit(main())
