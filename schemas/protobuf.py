"""Protobuf's values, by the descriptors that protoc makes of a schema's text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ottla.schemas.errors import SchemaError, ValueMismatchError, first_line
from ottla.schemas.framing import joined_indexes, split_indexes
from ottla.schemas.json_text import value_json
from ottla.schemas.protobuf_files import SCHEMA_FILE, compiled

if TYPE_CHECKING:
    from ottla.client.schema_registry import SchemaText

_FAULTS = (DecodeError, json_format.Error, ValueError, TypeError, RecursionError)


class ProtobufCodec:
    """Implements Codec; a body begins with the message's indexes. It writes the message of the name `message`."""

    kind = "PROTOBUF"

    def __init__(self, files: Iterable[bytes], message: str | None) -> None:
        self._pool = pool_of(files)
        self._file = self._pool.FindFileByName(SCHEMA_FILE)
        self._indexes = (0,) if message is None else _indexes_of(self._file, message)

    def check(self, body: bytes) -> None:
        self._value(body)

    def tree(self, body: bytes) -> Any:
        value = self._value(body)
        try:
            return json_format.MessageToDict(value, preserving_proto_field_name=True, descriptor_pool=self._pool)
        except _FAULTS as error:
            raise ValueMismatchError(f"it cannot be shown as JSON: {first_line(error)}") from None

    def to_json(self, body: bytes) -> str:
        value = self._value(body)
        try:
            text: str = json_format.MessageToJson(
                value,
                indent=None,
                always_print_fields_with_no_presence=True,
                ensure_ascii=False,
                descriptor_pool=self._pool,
            )
        except _FAULTS as error:
            raise ValueMismatchError(f"it cannot be written as JSON: {first_line(error)}") from None
        return text

    def from_json(self, text: str) -> bytes:
        value_json(text)
        value = GetMessageClass(message_at(self._file, self._indexes))()
        try:
            json_format.Parse(text, value, descriptor_pool=self._pool)
        except _FAULTS as error:
            raise ValueMismatchError(f"it does not fit the Protobuf message: {first_line(error)}") from None
        return joined_indexes(self._indexes) + bytes(value.SerializeToString())

    def record_name(self, body: bytes) -> str:
        return str(message_at(self._file, split_indexes(body)[0]).full_name)

    def _value(self, body: bytes) -> Any:
        indexes, start = split_indexes(body)
        message = message_at(self._file, indexes)
        try:
            return GetMessageClass(message).FromString(body[start:])
        except _FAULTS as error:
            raise ValueMismatchError(f"it is not Protobuf of type {message.full_name}: {first_line(error)}") from None


def codec(schema: SchemaText, message: str | None = None) -> ProtobufCodec:
    """Make a schema ready; its references are the files that it imports. Raises SchemaError."""
    files = compiled(schema.text, schema.references)
    return ProtobufCodec([file.SerializeToString() for file in files.values()], message)


def pool_of(files: Iterable[bytes]) -> Any:
    """The types of some files, each after those that it imports."""
    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    return pool


def message_at(file: Any, indexes: Iterable[int]) -> Any:
    """The message at these places. Raises ValueMismatchError if there is none."""
    messages, found = list(file.message_types_by_name.values()), None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueMismatchError(f"its schema has no message {list(indexes)}")
        found = messages[index]
        messages = list(found.nested_types)
    return found


def _indexes_of(file: Any, name: str) -> tuple[int, ...]:
    def search(messages: list[Any], above: tuple[int, ...]) -> tuple[int, ...] | None:
        for index, message in enumerate(messages):
            if name in (message.full_name, message.name):
                return (*above, index)
            if (below := search(list(message.nested_types), (*above, index))) is not None:
                return below
        return None

    found = search(list(file.message_types_by_name.values()), ())
    if found is None:
        raise SchemaError(f"the Protobuf schema has no message {name}")
    return found
