"""Checks whether a value fits a schema: JSON Schema or Avro, from a file or a registry.

A check returns a sentence that says what is wrong with a value, or None; a schema that cannot be used raises
ValueError. No value can make a check run long or recurse deeply: patterns are matched in linear time, and schemas in
which a few bytes of Avro could stand for an endless value are refused.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Check = Callable[[bytes], str | None]

_MAX_REASON_LENGTH: Final = 300
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_EMPTY: Final = "null"


def read_schema(path: str) -> Any:
    """The JSON in a file. Raises ValueError, with a sentence, if there is none."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def json_check(schema: Any) -> Check:
    """Values are JSON that fits a JSON Schema, of the draft that it names, or of 2020-12."""
    try:
        import jsonschema_rs
    except ImportError:
        raise ValueError("JSON Schema needs the extra ottla[proxy]") from None
    try:
        validator = jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())
    except (ValueError, TypeError) as error:
        raise ValueError(f"the JSON Schema cannot be used: {_first_line(error)}") from None

    def check(value: bytes) -> str | None:
        try:
            item = json.loads(value, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            return _shortened(f"it is not JSON: {error}")
        try:
            found = next(iter(validator.iter_errors(item)), None)
        except (ValueError, RecursionError) as error:
            return _shortened(f"it cannot be compared with the schema: {_first_line(error)}")
        if found is None:
            return None
        place = "".join(f"[{it}]" if isinstance(it, int) else f".{it}" for it in found.instance_path)
        return _shortened(f"${place}: {found.message}")

    return check


def avro_check(schema: Any) -> Check:
    """Values are one Avro datum of a schema, with nothing after it."""
    try:
        import fastavro
    except ImportError:
        raise ValueError("Avro needs the extra ottla[proxy]") from None
    try:
        parsed = fastavro.parse_schema(schema)
    except Exception as error:  # noqa: BLE001 - whatever it stumbles over, it is the schema's fault
        raise ValueError(f"the Avro schema cannot be used: {_first_line(error)}") from None
    _refuse_endless(schema)

    def check(value: bytes) -> str | None:
        stream = io.BytesIO(value)
        try:
            fastavro.schemaless_reader(stream, parsed, None)
        except Exception as error:  # noqa: BLE001 - bytes that are no Avro may make it stumble over anything
            return _shortened(f"it is not Avro of this schema: {_first_line(error) or type(error).__name__}")
        rest = len(value) - stream.tell()
        return f"{rest} bytes follow the Avro value" if rest else None

    return check


def _refuse_endless(schema: Any) -> None:
    """Raises ValueError for what a few bytes could make endless: arrays of nothing, and types within themselves."""
    named: dict[str, Any] = {}
    _walk(schema, named, (), "")


def _walk(schema: Any, named: dict[str, Any], within: tuple[str, ...], space: str) -> bool:
    """Look through a schema; returns whether its values may take no bytes."""
    if isinstance(schema, list):
        for one in schema:
            _walk(one, named, within, space)
        return False  # the branch takes a byte
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return schema == _EMPTY
        name = schema if "." in schema or not space else f"{space}.{schema}"
        name = name if name in named or name in within else schema
        if name in within:
            raise ValueError(f"the Avro type {schema} contains itself: values might be nested without end")
        return bool(named.get(name, False))
    kind = schema["type"]
    if kind in ("array", "map"):
        is_empty = _walk(schema["items" if kind == "array" else "values"], named, within, space)
        if is_empty and kind == "array":
            raise ValueError("an Avro array of what takes no bytes might be without end")
        return False
    if kind in ("record", "error", "fixed", "enum"):
        space = schema.get("namespace", space)
        name = schema["name"] if "." in schema["name"] or not space else f"{space}.{schema['name']}"
        is_empty = kind == "fixed" and not schema["size"]
        if kind in ("record", "error"):
            inside = [
                _walk(field["type"], named, (*within, name), name.rpartition(".")[0]) for field in schema["fields"]
            ]
            is_empty = all(inside)
        named[name] = is_empty
        return is_empty
    return _walk(kind, named, within, space)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_REASON_LENGTH else f"{text[:_MAX_REASON_LENGTH]}…"
