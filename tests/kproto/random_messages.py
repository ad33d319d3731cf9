"""Random messages of every class and version, each of which its number makes again.

Hypothesis takes ten times as long to draw them.
"""

from __future__ import annotations

import math
import struct
from random import Random
from typing import Any
from uuid import UUID

from ottla.kproto.schema import FRESH, Field, Message, Primitive, StructType, TaggedField


def random_message(cls: type[Message], version: int, number: int) -> Message:
    """One of the messages that a version can carry."""
    return _Generator(f"{cls.__name__} v{version} #{number}", cls, version).message()


class _Generator:
    """Makes a message of a class and version from a seed; what the version lacks stays at its default."""

    def __init__(self, seed: str, cls: type[Message], version: int) -> None:
        self._random = Random(seed)
        self._cls = cls
        self._version = version
        self._flexible = cls.FLEXIBLE_VERSIONS.includes(version)

    def message(self) -> Message:
        message: Message = self._struct(self._cls)
        return message

    def _struct(self, cls: StructType) -> Any:
        values = {f.name: self._field(f) for f in cls.FIELDS if f.versions.includes(self._version)}
        if self._flexible and self._random.random() < 0.2:
            tags = {self._random.randrange(300) for _ in range(2)} - {field.tag for field in cls.FIELDS}
            values["unknown_tagged_fields"] = tuple(TaggedField(tag, self._bytes()) for tag in sorted(tags))
        return cls(**values)

    def _field(self, field: Field) -> Any:
        chance = self._random.random()
        if field.nullable.includes(self._version) and chance < 0.2:
            return None
        if field.default is not FRESH and field.default is not None and chance < 0.4:
            return field.default
        if field.kind == "array":
            return [self._item(field.element) for _ in range(self._random.choice((0, 1, 1, 2, 3)))]
        if field.kind == "struct":
            return self._item(field.element)
        return self._primitive(field.kind)

    def _item(self, element: Primitive | StructType | None) -> Any:
        return self._primitive(element.name) if isinstance(element, Primitive) else self._struct(element)  # type: ignore[arg-type]

    def _primitive(self, kind: str) -> Any:
        if kind == "bool":
            return self._random.random() < 0.5
        if kind == "string":
            return self._text()
        if kind in ("bytes", "records"):
            return self._bytes()
        if kind == "uuid":
            return UUID(int=self._random.getrandbits(128))
        if kind == "float64":
            value: float = (
                struct.unpack(">d", self._random.randbytes(8))[0] if self._random.random() < 0.8 else math.inf
            )
            return 0.5 if math.isnan(value) else value  # what is not equal to itself cannot be compared
        bits = int(kind.lstrip("uint"))
        lowest, highest = (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return self._random.choice((0, 1, lowest, highest, self._random.randint(lowest, highest)))

    def _text(self) -> str:
        size = self._random.choice((0, 1, 5, 10, 126, 127, 128))
        return "".join(self._random.choices("abc-._é€𝄞", k=size))

    def _bytes(self) -> bytes:
        return self._random.randbytes(self._random.choice((0, 1, 10, 126, 127, 140)))
