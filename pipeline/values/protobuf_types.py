"""Which column a Protobuf field becomes, and how its values get there.

Fields that know whether they are set (`optional`, messages, members of a `oneof`) are null if they are not; others have
their default. Wrappers such as `google.protobuf.StringValue` become what they wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.pipeline.values.schemas import MAX_DEPTH, UnsupportedSchemaError, bounded

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

__all__ = ["Shape", "message_type", "shape_of"]

Shape = Callable[[Any], Any]
"""Turns a Protobuf value into one that a column takes."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

# By the numbers of FieldDescriptor.CPPTYPE_…; those of unsigned numbers need more room.
_INT32, _INT64, _UINT32, _UINT64, _DOUBLE, _FLOAT, _BOOL, _ENUM, _STRING, _MESSAGE = range(1, 11)
_PLAIN: Final[Mapping[int, DataType]] = {
    _INT32: IntegerType(),
    _INT64: LongType(),
    _UINT32: LongType(),
    _UINT64: DecimalType(20, 0),
    _DOUBLE: DoubleType(),
    _FLOAT: FloatType(),
    _BOOL: BooleanType(),
    _ENUM: StringType(),
}
_TYPE_BYTES: Final = 12


def message_type(message: Descriptor) -> StructType:
    """The columns of a message. UnsupportedSchemaError if it contains itself, or nothing."""
    return bounded(_struct(message, (), {}))


def _struct(message: Descriptor, above: tuple[str, ...], known: dict[str, StructType]) -> StructType:
    name = str(message.full_name)
    if name in above or len(above) > MAX_DEPTH:
        raise UnsupportedSchemaError(f"The Protobuf message {name} contains itself, or is nested too deeply.")
    if name not in known:
        fields = [StructField(str(field.name), _column(field, (*above, name), known)) for field in message.fields]
        if not fields:
            raise UnsupportedSchemaError(f"The Protobuf message {name} has no fields: it cannot be a column.")
        known[name] = StructType(fields)
    return known[name]


def _column(field: FieldDescriptor, above: tuple[str, ...], known: dict[str, StructType]) -> DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return MapType(_single(key, above, known), _single(value, above, known))
    one = _single(field, above, known)
    return ArrayType(one) if field.is_repeated else one


def _single(field: FieldDescriptor, above: tuple[str, ...], known: dict[str, StructType]) -> DataType:
    if field.cpp_type == _MESSAGE:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return TimestampType()
        if name in _WRAPPERS:
            return _single(field.message_type.fields_by_name["value"], above, known)
        return _struct(field.message_type, above, known)
    if field.cpp_type == _STRING:
        return BinaryType() if field.type == _TYPE_BYTES else StringType()
    return _PLAIN[field.cpp_type]


def shape_of(message: Descriptor) -> Shape:
    """What turns a message into a row; for a message that `message_type` accepted."""
    parts = [(str(field.name), _shape(field), field.has_presence) for field in message.fields]

    def shaped(value: Any) -> dict[str, Any]:
        return {
            name: None if presence and not value.HasField(name) else shape(getattr(value, name))
            for name, shape, presence in parts
        }

    return shaped


def _shape(field: FieldDescriptor) -> Shape:
    if _is_map(field):
        inner = _single_shape(field.message_type.fields_by_name["value"])
        return lambda value: {key: inner(value[key]) for key in value}
    one = _single_shape(field)
    if field.is_repeated:
        return lambda value: [one(part) for part in value]
    return one


def _single_shape(field: FieldDescriptor) -> Shape:
    if field.cpp_type == _MESSAGE:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return lambda value: _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        if name in _WRAPPERS:
            wrapped = _single_shape(field.message_type.fields_by_name["value"])
            return lambda value: wrapped(value.value)
        return shape_of(field.message_type)
    if field.cpp_type == _ENUM:
        names = {number: str(value.name) for number, value in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, str(value))
    return Decimal if field.cpp_type == _UINT64 else _same


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _same(value: Any) -> Any:
    return value
