"""Filters from a configuration: those that come with Ottla, and those that packages provide by an entry point."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from ottla.proxy.errors import ProxyError
from ottla.proxy.filters.chain import Named, Scope
from ottla.proxy.filters.filter import Filter, pattern

ENTRY_POINTS: Final = "ottla.proxy.filters"
"""The group of entry points by which a package provides filters: `name = "package.module:Class"`."""

OWN: Final = {
    "audit": "ottla.proxy.filters.audit:Audit",
    "encryption": "ottla.proxy.filters.encryption:Encryption",
    "faults": "ottla.proxy.filters.faults:Faults",
    "limits": "ottla.proxy.filters.limits:Limits",
    "recorder": "ottla.proxy.filters.recorder:Recorder",
    "tenants": "ottla.proxy.filters.tenants:Tenants",
    "validation": "ottla.proxy.filters.validation:Validation",
}


def make_filters(tables: Any) -> list[Named]:
    """The filters of `[[filter]]` tables, in order. ProxyError says in a sentence what is wrong with one."""
    if not isinstance(tables, list) or not all(isinstance(it, dict) for it in tables):
        raise ProxyError("filter: write each filter as a table, [[filter]]")
    found: list[Named] = []
    for number, table in enumerate(tables, 1):
        options = dict(table)
        kind = options.pop("type", None)
        if not isinstance(kind, str):
            raise ProxyError(f"filter {number} has no type: write type = one of {', '.join(_known())}")
        name = options.pop("name", kind)
        if not isinstance(name, str) or name in {it.name for it in found}:
            raise ProxyError(f"filter {number}: {name!r} is already taken: write name = another one")
        what = f"filter {number} ({kind})"
        scope = _scope(what, options)
        found.append(Named(name, _make(what, _class(kind, number), options), scope))
    return found


def _scope(what: str, options: dict[str, Any]) -> Scope:
    """The clients that a filter applies to. Takes these options out; the others are the filter's own."""
    try:
        return Scope(*(pattern(it, options.pop(it)) if it in options else None for it in Scope._fields))
    except (ValueError, TypeError) as error:
        raise ProxyError(f"{what}: {error}") from None


def _class(kind: str, number: int) -> type[Filter]:
    place = OWN.get(kind) or (kind if ":" in kind else _entry_points().get(kind))
    if place is None:
        raise ProxyError(f"filter {number}: there is no filter {kind!r}; known are {', '.join(_known())}")
    module, _, attribute = place.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except ImportError as error:
        raise ProxyError(f"filter {number}: {place} cannot be imported: {error}") from None
    except AttributeError:
        raise ProxyError(f"filter {number}: {module} has no {attribute}") from None
    if not (isinstance(found, type) and issubclass(found, Filter)):
        raise ProxyError(f"filter {number}: {place} is not a filter: it must be a subclass of ottla.proxy's Filter")
    return found


def _make(what: str, cls: type[Filter], options: Mapping[str, Any]) -> Filter:
    named = {name.replace("-", "_"): value for name, value in options.items()}
    parameters = inspect.signature(cls).parameters
    takes_all = any(it.kind is it.VAR_KEYWORD for it in parameters.values())
    unknown = sorted(named.keys() - parameters.keys())
    if unknown and not takes_all:
        known = ", ".join(it.replace("_", "-") for it in parameters) or "none"
        raise ProxyError(f"{what}: there is no option {unknown[0].replace('_', '-')!r}; its options are {known}")
    for parameter in parameters.values():
        if (
            parameter.name not in named
            and parameter.default is parameter.empty
            and parameter.kind is not parameter.VAR_KEYWORD
        ):
            raise ProxyError(f"{what}: the option {parameter.name.replace('_', '-')!r} is missing")
    try:
        return cls(**named)
    except (ValueError, TypeError) as error:
        raise ProxyError(f"{what}: {error}") from None


def _entry_points() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {it.name: it.value for it in entry_points(group=ENTRY_POINTS)}


def _known() -> Sequence[str]:
    return sorted(OWN.keys() | _entry_points().keys())
