"""Checks whether a value fits a schema: Avro, JSON Schema or Protobuf, from a file or a registry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.schema_registry import RegistryError
from ottla.schemas.codec import codec_of
from ottla.schemas.errors import ValueMismatchError
from ottla.schemas.files import schema_of_file

if TYPE_CHECKING:
    from ottla.client.schema_registry import SchemaText

Check = Callable[[bytes], str | None]
"""Returns a sentence that says what is wrong with a value, or None."""


def check_of(schema: SchemaText) -> Check:
    """The check of a schema. It may take long to make: call it in a worker thread. Raises SchemaError."""
    codec = codec_of(schema)

    def check(value: bytes) -> str | None:
        try:
            codec.check(value)
        except ValueMismatchError as error:
            return str(error)
        return None

    return check


def check_of_file(path: str, kind: str) -> Check:
    """The check of a file's schema, with the files beside it that it refers to. Raises ValueError with a sentence."""
    try:
        return check_of(schema_of_file(Path(path), kind))
    except RegistryError as error:
        raise ValueError(str(error)) from None
