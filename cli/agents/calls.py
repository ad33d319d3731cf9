"""Runs commands of `ottla` for an agent: for a bounded time, with a bounded answer, no name taken for an option."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import anyio
from anyio.abc import ByteReceiveStream
from mcp.server.mcpserver.exceptions import ToolError

MAX_ANSWER_BYTES: Final = 256 * 1024
MAX_INPUT_BYTES: Final = 1024 * 1024
_MAX_ERROR_BYTES: Final = 4 * 1024
_CONCURRENT_COMMANDS: Final = 4

Json = Any


class Commands:
    """Runs commands as the user of `connection`, the options that say which cluster it is and how to connect.

    No more than four run at a time. Each is ended after `timeout_s` seconds, and if the call of the tool is cancelled.
    """

    def __init__(self, connection: Sequence[str], timeout_s: float) -> None:
        self._connection = list(connection)
        self._timeout_s = timeout_s
        self._slots: anyio.CapacityLimiter | None = None

    async def values(self, *words: str, names: Sequence[str] = (), **options: object) -> tuple[list[Json], bool]:
        """The JSON output of a command, value by value or as one list, and whether it is more than fits into an answer.

        `names` are its operands, `options` those with a value, or True for a flag.
        """
        text, is_cut = await self._run([*words, "--json"], names, options, b"")
        found = list(_values(text))
        return found[0] if len(found) == 1 and isinstance(found[0], list) else found, is_cut

    async def value(self, *words: str, names: Sequence[str] = (), **options: object) -> Json:
        """The one value that a command prints as JSON."""
        found, is_cut = await self.values(*words, names=names, **options)
        if is_cut:
            raise ToolError(f"the answer has more than {MAX_ANSWER_BYTES} bytes: ask for less")
        return found[0] if len(found) == 1 else found

    async def text(self, *words: str, names: Sequence[str] = (), stdin: bytes = b"", **options: object) -> str:
        """The output of a command, which is not JSON."""
        text, is_cut = await self._run(list(words), names, options, stdin)
        return text + (f"\n… more than {MAX_ANSWER_BYTES} bytes" if is_cut else "")

    async def _run(
        self, words: list[str], names: Sequence[str], options: Mapping[str, object], stdin: bytes
    ) -> tuple[str, bool]:
        if len(stdin) > MAX_INPUT_BYTES:
            raise ToolError(f"more than {MAX_INPUT_BYTES} bytes at a time are not taken")
        command = [sys.executable, "-m", "ottla.cli", *words, *_options(options), *self._connection]
        if names:
            command += ["--", *names]
        if any("\0" in word for word in command):
            raise ToolError("a name has a null character")
        if self._slots is None:
            self._slots = anyio.CapacityLimiter(_CONCURRENT_COMMANDS)
        async with self._slots:
            with anyio.move_on_after(self._timeout_s) as scope:
                return await _bounded(command, stdin)
        assert scope.cancelled_caught
        raise ToolError(f"not done after {self._timeout_s:g} s: ask for less, or look whether the cluster answers")


def _values(text: str) -> Iterator[Json]:
    """The values of a text that has one after the other; what was cut off at its end is left out."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        try:
            value, position = decoder.raw_decode(text, position)
        except ValueError:
            return
        yield value


def _options(options: Mapping[str, object]) -> list[str]:
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            words += [f"{option}={each}" for each in value]
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    return words


async def _bounded(command: Sequence[str], stdin: bytes) -> tuple[str, bool]:
    """The output of a process that succeeds, cut at the limit, when the process is ended. ToolError if it fails."""
    async with await anyio.open_process(command) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        output, errors = _Cut(MAX_ANSWER_BYTES), _Cut(_MAX_ERROR_BYTES)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(errors.take_all, process.stderr)
                tasks.start_soon(_feed, process.stdin, stdin)
                await output.take_all(process.stdout)
                if output.is_full:
                    process.kill()
                code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
    if code and not output.is_full:
        said = errors.text().strip().splitlines()
        raise ToolError(said[-1].removeprefix("ottla: ") if said else f"the command ended with code {code}")
    return output.text(), output.is_full


async def _feed(stream: anyio.abc.ByteSendStream, data: bytes) -> None:
    try:
        if data:
            await stream.send(data)
        await stream.aclose()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # it has failed, and says why


class _Cut:
    """The beginning of a stream. What comes after it is not read."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._data = bytearray()
        self.is_full = False

    async def take_all(self, stream: ByteReceiveStream) -> None:
        async for chunk in stream:
            self._data += chunk
            if len(self._data) > self._limit_bytes:
                del self._data[self._limit_bytes :]
                self.is_full = True
                return

    def text(self) -> str:
        return self._data.decode(errors="replace")
