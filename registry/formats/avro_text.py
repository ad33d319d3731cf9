"""Avro types as text: as Java's `Schema.toString()` writes them, and normalised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.registry.formats.avro_types import Type
from ottla.registry.formats.json_text import dumps


def canonical_text(root: Type, known: frozenset[str]) -> str:
    """The order of attributes is Java's; types in `known` are only named, and so is each at its second place."""
    return dumps(_Writer(known).type(root, None))


def normalized_text(root: Type, known: frozenset[str]) -> str:
    """Full names everywhere, and unspecified attributes in the order of their names; docs stay."""
    return dumps(_Normalizer(known).type(root, None))


class _Writer:
    def __init__(self, known: frozenset[str]) -> None:
        self._known = set(known)

    def type(self, type_: Type, namespace: str | None) -> Any:
        if type_.name is not None:
            if type_.name in self._known:
                return self.reference(type_, namespace)
            self._known.add(type_.name)
            return self._named(type_, namespace)
        if type_.kind == "union":
            return [self.type(branch, namespace) for branch in type_.branches]
        if type_.inner is not None:
            attribute = "items" if type_.kind == "array" else "values"
            inner = self.type(type_.inner, namespace)
            return {"type": type_.kind, attribute: inner} | self.props(type_.props)
        return {"type": type_.kind} | self.props(type_.props) if type_.props else type_.kind

    def reference(self, type_: Type, namespace: str | None) -> str:
        """The reference to a type that was defined before."""
        assert type_.name is not None
        return type_.simple_name if type_.namespace in (None, namespace) else type_.name

    def name(self, type_: Type, namespace: str | None) -> dict[str, Any]:
        """The attributes with a type's own name."""
        named: dict[str, Any] = {"name": type_.simple_name}
        if type_.namespace != namespace:
            named["namespace"] = type_.namespace or ""
        return named

    def props(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes that the specification does not name."""
        return dict(props)

    def _named(self, type_: Type, namespace: str | None) -> dict[str, Any]:
        written: dict[str, Any] = {"type": type_.kind} | self.name(type_, namespace)
        if type_.doc is not None:
            written["doc"] = type_.doc
        if type_.kind == "enum":
            written["symbols"] = type_.symbols
            if type_.default is not None:
                written["default"] = type_.default
        elif type_.kind == "fixed":
            written["size"] = type_.size
        else:
            written["fields"] = [self._field(field, type_.namespace) for field in type_.fields]
        written |= self.props(type_.props)
        if type_.aliases:
            own = f"{type_.namespace}." if type_.namespace else ""
            written["aliases"] = [
                alias.removeprefix(own) if "." not in alias.removeprefix(own) else alias for alias in type_.aliases
            ]
        return written

    def _field(self, field: Any, namespace: str | None) -> dict[str, Any]:
        written: dict[str, Any] = {"name": field.name, "type": self.type(field.type, namespace)}
        if field.doc is not None:
            written["doc"] = field.doc
        if field.has_default:
            written["default"] = field.default
        if field.order is not None:
            written["order"] = field.order
        if field.aliases:
            written["aliases"] = field.aliases
        return written | self.props(field.props)


class _Normalizer(_Writer):
    def reference(self, type_: Type, namespace: str | None) -> str:
        return type_.name or type_.kind

    def name(self, type_: Type, namespace: str | None) -> dict[str, Any]:
        return {"name": type_.name}

    def props(self, props: Mapping[str, Any]) -> dict[str, Any]:
        return {name: props[name] for name in sorted(props)}
