"""Avro types, with names resolved: a recursive type contains itself."""

from __future__ import annotations

from typing import Any, Final

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
NO_DEFAULT: Final = object()


class Field:
    """A field of a record. `order` is None where it is ascending."""

    __slots__ = ("aliases", "default", "doc", "name", "order", "props", "type")

    def __init__(self, name: str, type_: Type) -> None:
        self.name = name
        self.type = type_
        self.default: Any = NO_DEFAULT
        self.doc: str | None = None
        self.order: str | None = None
        self.aliases: list[str] = []
        self.props: dict[str, Any] = {}

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT


class Type:
    """A type. What it has depends on `kind`: a primitive's name, record, error, enum, fixed, array, map or union."""

    __slots__ = ("aliases", "branches", "default", "doc", "fields", "inner", "kind", "name", "props", "size", "symbols")

    def __init__(self, kind: str, name: str | None = None) -> None:
        self.kind = kind
        #: With the namespace.
        self.name = name
        self.doc: str | None = None
        self.aliases: list[str] = []
        #: Attributes that the specification does not name, `logicalType` and its parameters included.
        self.props: dict[str, Any] = {}
        self.fields: list[Field] = []
        self.symbols: list[str] = []
        #: Of an enum.
        self.default: str | None = None
        self.size = 0
        #: An array's items, or a map's values.
        self.inner: Type | None = None
        self.branches: list[Type] = []

    @property
    def is_record(self) -> bool:
        return self.kind in ("record", "error")

    @property
    def namespace(self) -> str | None:
        return (self.name or "").rpartition(".")[0] or None

    @property
    def simple_name(self) -> str:
        return (self.name or "").rpartition(".")[2]

    @property
    def label(self) -> str:
        """The name by which it differs from the other branches of a union."""
        return self.name or self.kind
