"""Bodies of v2, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.rest.errors import key_schema_missing, unprocessable, value_schema_missing
from ottla.rest.limits import MAX_RECORDS
from ottla.rest.producing import NewRecord
from ottla.rest.schemas import SchemaGiven
from ottla.rest.values import Encode, Format, parsed

_FIELDS: Final = frozenset({"records", "key_schema", "key_schema_id", "value_schema", "value_schema_id"})
_RECORD_FIELDS: Final = frozenset({"key", "value", "partition"})
_MAX_ID: Final = 2**31 - 1


class ProduceBody(NamedTuple):
    """A parsed body; schemas are None where there are no keys, or no values, or the format has none."""

    records: Sequence[Mapping[str, Any]]
    key_schema: SchemaGiven | None
    value_schema: SchemaGiven | None

    def encoded(self, encode_key: Encode, encode_value: Encode, partition: int | None, now_ms: int) -> list[NewRecord]:
        """The records; `partition` is that of the address. Raises RestError 42203."""
        return [
            NewRecord(
                encode_key(record.get("key")),
                encode_value(record.get("value")),
                record.get("partition") if partition is None else partition,
                now_ms,
            )
            for record in self.records
        ]


def produce_body(data: bytes, form: Format) -> ProduceBody:
    """Raises RestError 400, 422, 42201 or 42202."""
    body = parsed(data)
    if not isinstance(body, dict):
        raise unprocessable("The request is no object")
    _check_fields(body, _FIELDS)
    records = body.get("records")
    if not isinstance(records, list) or not records:
        raise unprocessable("records may not be empty")
    if len(records) > MAX_RECORDS:
        raise unprocessable(f"A request may have {MAX_RECORDS} records")
    for record in records:
        if not isinstance(record, dict):
            raise unprocessable("a record is no object")
        _check_fields(record, _RECORD_FIELDS)
        partition = record.get("partition")
        if partition is not None and (type(partition) is not int or not 0 <= partition <= _MAX_ID):
            raise unprocessable("partition must be a number, and not less than 0")
    if form.schema_kind is None:
        return ProduceBody(records, None, None)
    key_schema, value_schema = _schema(body, "key"), _schema(body, "value")
    if key_schema is None and any(record.get("key") is not None for record in records):
        raise key_schema_missing()
    if value_schema is None and any(record.get("value") is not None for record in records):
        raise value_schema_missing()
    return ProduceBody(records, key_schema, value_schema)


def _check_fields(given: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in given:
        if name not in known:
            raise unprocessable(f"Unrecognized field: {name[:100]}")


def _schema(body: Mapping[str, Any], part: str) -> SchemaGiven | None:
    schema_id, text = body.get(f"{part}_schema_id"), body.get(f"{part}_schema")
    if schema_id is not None:
        if type(schema_id) is not int or not 0 < schema_id <= _MAX_ID:
            raise unprocessable(f"{part}_schema_id is no id")
        return SchemaGiven(schema_id=schema_id)
    if text is None:
        return None
    if not isinstance(text, str):
        raise unprocessable(f"{part}_schema is no text")
    return SchemaGiven(text=text)
