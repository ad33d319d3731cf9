"""The types of schemas: how each is parsed, and the texts in which it is stored and compared.

A format's module is loaded when the first schema of its type comes; some need what the extra `ottla[registry]`
installs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol

from ottla.registry.errors import invalid_schema

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
KINDS: Final = (JSON, PROTOBUF, AVRO)
"""The types, in the order of Confluent's answer."""

_MODULES: Final = {AVRO: "avro", JSON: "json_schema", PROTOBUF: "protobuf"}


class InvalidSchemaError(Exception):
    """A text is not a schema of its type; the text says why in one sentence."""


class Parsed(Protocol):
    """A schema that has been understood."""

    #: The text under which it is stored.
    canonical: str

    def normalized(self) -> str:
        """The normalised text: equal for all schemas of the same meaning."""

    def formatted(self, form: str) -> str:
        """The text in another form that the type has: `resolved` for Avro, `serialized` for Protobuf; `canonical` for
        any other name.
        """


def parse(kind: str, text: str, references: Mapping[str, str]) -> Parsed:
    """Parse a schema with those that it refers to: texts by name, each after what it refers to itself.

    Takes as long as the text deserves: call it in a worker thread. Raises RegistryError 42201.
    """
    if kind not in _MODULES:
        raise invalid_schema(f"Invalid schema type {kind}")
    try:
        parsed: Parsed = _module("formats", kind).parse(text, references)
    except InvalidSchemaError as error:
        raise invalid_schema(f"Invalid schema of type {kind}, details: {error}") from None
    except RecursionError:
        raise invalid_schema(f"Invalid schema of type {kind}, details: it is nested too deeply") from None
    return parsed


def messages(kind: str, reader: Parsed, writer: Parsed, *, is_reader_new: bool) -> list[str]:
    """Why `reader` cannot read all that was written with `writer`, a sentence for each reason; empty if it can.

    Call it in a worker thread.
    """
    try:
        found: list[str] = _module("compatibility", kind).messages(reader, writer, is_reader_new=is_reader_new)
    except RecursionError:
        raise invalid_schema("The schemas are nested too deeply to be compared") from None
    except ArithmeticError:
        raise invalid_schema("The schemas have numbers that cannot be compared") from None
    return found


def _module(package: str, kind: str) -> Any:
    try:
        return import_module(f"ottla.registry.{package}.{_MODULES[kind]}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ottla"):
            raise
        raise invalid_schema(
            f"Schemas of type {kind} need {error.name}, which is not installed: install Ottla with its extra `registry`"
        ) from None
