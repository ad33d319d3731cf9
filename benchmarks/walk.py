"""Through how many files and frames a small request goes, alone on its connection.

    python -m benchmarks.walk               # a Produce of 100 B, and a commit of offsets
    python -m benchmarks.walk commit --show # one of them, with its files and the stacks

Files are those of Ottla of which a function is called, in the event loop's thread, from the turn that receives the
request to the end of that turn, with the answer. Frames are those of functions in Python, from the event loop's wait
(`server/network/io_wait.py`) inwards: at the deepest place, and where the records are written (`pwritev`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import trio

from benchmarks.bytecodes import ASKED, Client, await_coordinator, serve
from ottla.runtime.purgatory import Purgatory
from ottla.server import network

_ROOT: Final = Path(network.__file__).parents[2]
_WAIT: Final = ("server/network/io_wait.py", "get_events")
_WALKS: Final = ("produce of 100 B, alone", "commit, alone")
_WARM_UP: Final = 20


class Walk:
    """What the thread that has called `begin` has gone through, while it is asked to look."""

    def __init__(self) -> None:
        self.is_looking = False
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.files: set[str] = set()
        self.deepest: list[str] = []
        self.to_write: list[str] = []

    def begin(self) -> None:
        sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, called: Any) -> None:
        if not self.is_looking or event not in ("call", "c_call"):
            return
        is_write = event == "c_call" and called.__name__ == "pwritev"
        if event == "c_call" and not is_write:
            return
        stack = _stack(frame)
        self.files.update(each.partition(":")[0] for each in stack)
        if len(stack) > len(self.deepest):
            self.deepest = stack
        if is_write and len(stack) > len(self.to_write):
            self.to_write = stack


def _stack(frame: FrameType | None) -> list[str]:
    """The functions from the event loop's wait to a frame; empty if that is not inside the wait."""
    found = []
    for code in _codes(frame):
        name = _name(code)
        found.append(f"{name}:{code.co_name}")
        if (name, code.co_name) == _WAIT:
            return found[::-1]
    return []


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def _name(code: CodeType) -> str:
    path = Path(code.co_filename)
    return str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else path.name


def _measure(port: int, walk: Walk, words: list[str], *, shows: bool) -> None:
    await_coordinator(port)
    print(f"{'':26}{'files':>8}{'frames at the deepest':>24}{'frames to the write':>22}")
    for name in _WALKS:
        if not any(word in name for word in words):
            continue
        with closing(Client(port)) as client:
            for _ in range(_WARM_UP):
                client.send(ASKED[name].frame)
                client.receive()
            walk.forget()
            walk.is_looking = True
            client.send(ASKED[name].frame)
            client.receive()
            walk.is_looking = False
        files = sorted(each for each in walk.files if "/" in each)
        print(f"{name:26}{len(files):8}{len(walk.deepest):24}{len(walk.to_write):22}")
        if shows:
            for what, lines in (("files", files), ("deepest", walk.deepest), ("to the write", walk.to_write)):
                print(f"\n{what}:", *lines, sep="\n    ", end="\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walk", description=__doc__)
    parser.add_argument("words", nargs="*", default=[""], help="only what has one of these in its name")
    parser.add_argument("--show", action="store_true", help="the files and the stacks as well")
    arguments = parser.parse_args()
    walk = Walk()
    walk.begin()

    def measure(port: int, _: trio.lowlevel.TrioToken, __: Purgatory) -> None:
        _measure(port, walk, arguments.words, shows=arguments.show)

    with tempfile.TemporaryDirectory() as folder:
        trio.run(serve, folder, measure)


if __name__ == "__main__":
    main()
