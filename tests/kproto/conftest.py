"""Hypothesis strategies for every message, derived from its declaration."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import pytest
from hypothesis import strategies as st

from ottla.kproto import internal_records
from ottla.kproto.headers import RequestHeader, ResponseHeader
from ottla.kproto.messages import all_message_classes
from ottla.kproto.schema import FRESH, Field, Message, StructType, TaggedField
from ottla.kproto.versions import NO_VERSIONS

MessageStrategy = Callable[[type[Message], int], st.SearchStrategy[Message]]

# Around 127 bytes a length needs another byte. What is in them says nothing, and each letter would be drawn.
_LONG_TEXT = st.integers(126, 130).map("a".__mul__)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | _LONG_TEXT
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.uuids(),
    "string": _TEXT,
    "bytes": st.binary(max_size=140),
    "records": st.binary(max_size=140),
}


@lru_cache(maxsize=4096)
def message_strategy(cls: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Any instance that the version can carry: what it cannot carry stays at its default."""
    flexible = cls.FLEXIBLE_VERSIONS.includes(version)
    strategy: st.SearchStrategy[Message] = _struct(cls, version, flexible)
    return strategy


def _struct(cls: StructType, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    values = {f.name: _field(f, version, flexible) for f in cls.FIELDS if f.versions.includes(version)}
    if flexible:
        values["unknown_tagged_fields"] = _unknown_tags(cls)
    return st.builds(cls, **values)


def _unknown_tags(cls: StructType) -> st.SearchStrategy[tuple[TaggedField, ...]]:
    known = {f.tag for f in cls.FIELDS}
    tags = st.integers(0, 300).filter(lambda tag: tag not in known)
    fields = st.dictionaries(tags, st.binary(max_size=5), min_size=1, max_size=2)
    kept = fields.map(lambda d: tuple(TaggedField(tag, d[tag]) for tag in sorted(d)))
    return st.sampled_from([True, False, False, False]).flatmap(lambda some: kept if some else st.just(()))


def _field(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    element = field.element
    if isinstance(element, StructType):
        value = _struct(element, version, flexible)
    else:
        value = _VALUES[field.kind if element is None else element.name]
    if field.kind == "array":
        value = st.lists(value, max_size=3)
    if field.default is not FRESH:
        value |= st.just(field.default) if _may_hold_default(field, version) else st.nothing()
    if field.nullable.includes(version) or field.kind == "records":
        value |= st.none()
    return value


def _may_hold_default(field: Field, version: int) -> bool:
    return field.default is not None or field.nullable.includes(version) or field.kind == "records"


def _every_class() -> list[type[Message]]:
    internal = [
        value
        for module in pkgutil.iter_modules(internal_records.__path__, internal_records.__name__ + ".")
        for value in vars(import_module(module.name)).values()
        if isinstance(value, type) and issubclass(value, Message) and value.VERSIONS != NO_VERSIONS
    ]
    return [*all_message_classes(), RequestHeader, ResponseHeader, *dict.fromkeys(internal)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `message_class` runs for every message, header and internal record."""
    if "message_class" in metafunc.fixturenames:
        metafunc.parametrize("message_class", _every_class(), ids=lambda cls: cls.__name__)


@pytest.fixture(scope="session")
def example_factor() -> int:
    """How many times as many examples as usual: OTTLA_TEST_EXAMPLE_FACTOR in the environment."""
    return int(os.environ.get("OTTLA_TEST_EXAMPLE_FACTOR", "1"))


@pytest.fixture(scope="session")
def strategy_of() -> MessageStrategy:
    """`strategy_of(cls, version)`: any instance which that version can carry."""
    return message_strategy


@pytest.fixture(scope="session")
def every_message_class() -> list[type[Message]]:
    """Every message, header and internal record."""
    return _every_class()
