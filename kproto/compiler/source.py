"""A Python function in the making: lines with indentation, unique names, and the objects that they refer to."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from ottla.kproto.compiler import runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Source:
    def __init__(self, signature: str) -> None:
        self._lines = [f"def {signature}:"]
        self._depth = 1
        self._scope: dict[str, Any] = dict(vars(runtime))
        self._numbers = count(1)
        self._name = signature.partition("(")[0]

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    def local(self, prefix: str) -> str:
        """A name that nothing else in the function has."""
        return f"{prefix}{next(self._numbers)}"

    def constant(self, prefix: str, value: object) -> str:
        """A global name of the function that refers to `value`."""
        name = next((n for n, v in self._scope.items() if v is value and n.startswith(prefix)), None)
        if name is None:
            name = self.local(f"{prefix}_")
            self._scope[name] = value
        return name

    def unpacker(self, formats: str) -> str:
        return self._struct_method("unpack", formats)

    def packer(self, formats: str) -> str:
        return self._struct_method("pack", formats)

    def _struct_method(self, method: str, formats: str) -> str:
        name = f"{method}_{formats.replace('?', 'z')}"
        if name not in self._scope:
            packer = struct.Struct(">" + formats)
            self._scope[name] = packer.unpack_from if method == "unpack" else packer.pack
        return name

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def compile(self, filename: str) -> Callable[..., Any]:
        exec(compile(self.text, filename, "exec"), self._scope)
        function: Callable[..., Any] = self._scope[self._name]
        return function
