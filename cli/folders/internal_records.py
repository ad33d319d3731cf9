"""The records of internal topics as text: groups, offsets, transactions and the state of share groups."""

from __future__ import annotations

from typing import Any

from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records import record_types
from ottla.kproto.rendering import to_json


def explain(topic: str, key: bytes | memoryview | None, value: bytes | memoryview | None) -> dict[str, Any] | None:
    """The kind of record, and its key and value in the form that `json.dumps` takes; the value of a tombstone is None.

    None for records of other topics, and for those that cannot be read, for example a newer broker's.
    """
    try:
        types = record_types(topic)
    except KeyError:
        return None
    try:
        parsed_key, parsed_value = types.parse(key or b"", value)
    except DecodeError:
        return None
    name = type(parsed_key).__name__.removesuffix("Key")
    return {"record": name, "key": to_json(parsed_key), "value": to_json(parsed_value)}
