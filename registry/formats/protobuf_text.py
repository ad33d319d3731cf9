"""Writes a FileDescriptorProto as a `.proto` file.

Custom options and what only editions have cannot be written: the first are left out, the second are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ottla.registry.formats import InvalidSchemaError
from ottla.schemas.json_text import MAX_DEPTH

_SCALARS: Final = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
_ENUM, _MESSAGE, _GROUP = 14, 11, 10
_LABELS: Final = {1: "optional", 2: "required", 3: "repeated"}
_REPEATED: Final = 3
_MAX_NUMBER: Final = 536_870_911
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")


def text_of(file: Any) -> str:
    """The text. Raises InvalidSchemaError if it cannot be written."""
    syntax = file.syntax or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise InvalidSchemaError(
            f"a descriptor with the syntax {syntax[:20]!r} cannot be written as text: send the text"
        )
    return "\n".join([*_Printer(syntax).file(file), ""])


class _Printer:
    def __init__(self, syntax: str) -> None:
        self._syntax = syntax

    def file(self, file: Any) -> Iterator[str]:
        yield f'syntax = "{self._syntax}";'
        if file.package:
            yield f"package {_checked(file.package)};"
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        for number, name in enumerate(file.dependency):
            kind = "public " if number in public else "weak " if number in weak else ""
            yield f"import {kind}{_quoted(name)};"
        yield from _options(file.options, "")
        for enum in file.enum_type:
            yield from self._enum(enum, "")
        for message in file.message_type:
            yield from self._message(message, "", 0)
        yield from self._extensions(file.extension, "", "")
        for service in file.service:
            yield from _service(service)

    def _message(self, message: Any, indent: str, depth: int) -> Iterator[str]:
        if depth > MAX_DEPTH:
            raise InvalidSchemaError("messages are nested too deeply")
        inner = f"{indent}  "
        yield f"{indent}message {_checked(message.name)} {{"
        yield from _options(message.options, inner)
        maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        members: dict[int, list[Any]] = {}
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                members.setdefault(field.oneof_index, []).append(field)
        told: set[int] = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield inner + self._field(field, maps)
            elif field.oneof_index not in told:
                told.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                yield f"{inner}oneof {_checked(oneof.name)} {{"
                yield from _options(oneof.options, f"{inner}  ")
                for member in members[field.oneof_index]:
                    yield f"{inner}  {self._field(member, maps, is_member=True)}"
                yield f"{inner}}}"
        for enum in message.enum_type:
            yield from self._enum(enum, inner)
        for nested in message.nested_type:
            if nested.name not in maps:
                yield from self._message(nested, inner, depth + 1)
        yield from self._extensions(message.extension, inner, "")
        for found in message.extension_range:
            yield f"{inner}extensions {_range(found.start, found.end - 1, _MAX_NUMBER)};"
        yield from _reserved(message, inner, exclusive=1, most=_MAX_NUMBER)
        yield f"{indent}}}"

    def _field(self, field: Any, maps: dict[str, Any], *, is_member: bool = False) -> str:
        entry = maps.get(field.type_name.rpartition(".")[2]) if field.label == _REPEATED else None
        options = ", ".join(self._field_options(field))
        end = f"{_checked(field.name)} = {field.number}{f' [{options}]' if options else ''};"
        if entry is not None:
            key, value = entry.field
            return f"map<{_type(key)}, {_type(value)}> {end}"
        label = (
            ""
            if is_member or (self._syntax == "proto3" and field.label == 1 and not field.proto3_optional)
            else (f"{_LABELS[field.label]} ")
        )
        return f"{label}{_type(field)} {end}"

    @staticmethod
    def _field_options(field: Any) -> Iterator[str]:
        if field.HasField("default_value"):
            yield f"default = {_default(field)}"
        if field.HasField("json_name") and field.json_name != _camel(field.name):
            yield f"json_name = {_quoted(field.json_name)}"
        yield from (f"{name} = {value}" for name, value in _known_options(field.options))

    def _enum(self, enum: Any, indent: str) -> Iterator[str]:
        yield f"{indent}enum {_checked(enum.name)} {{"
        yield from _options(enum.options, f"{indent}  ")
        for value in enum.value:
            options = ", ".join(f"{name} = {it}" for name, it in _known_options(value.options))
            yield f"{indent}  {_checked(value.name)} = {value.number}{f' [{options}]' if options else ''};"
        yield from _reserved(enum, f"{indent}  ", exclusive=0, most=2**31 - 1)
        yield f"{indent}}}"

    def _extensions(self, extensions: Iterable[Any], indent: str, _: str) -> Iterator[str]:
        for field in extensions:
            yield f"{indent}extend {_checked(field.extendee)} {{"
            yield f"{indent}  {self._field(field, {})}"
            yield f"{indent}}}"


def _service(service: Any) -> Iterator[str]:
    yield f"service {_checked(service.name)} {{"
    yield from _options(service.options, "  ")
    for method in service.method:
        asked = f"{'stream ' if method.client_streaming else ''}{_checked(method.input_type)}"
        answered = f"{'stream ' if method.server_streaming else ''}{_checked(method.output_type)}"
        start = f"  rpc {_checked(method.name)} ({asked}) returns ({answered})"
        options = list(_options(method.options, "    "))
        yield from [f"{start} {{", *options, "  }"] if options else [f"{start};"]
    yield "}"


def _type(field: Any) -> str:
    if field.type == _GROUP:
        raise InvalidSchemaError("a descriptor with a group cannot be written as text: send the text")
    return _SCALARS[field.type] if field.type in _SCALARS else _checked(field.type_name)


def _default(field: Any) -> str:
    if field.type == 9:
        return _quoted(field.default_value)
    if field.type == 12:
        return f'"{field.default_value}"'  # protoc has escaped it
    return str(field.default_value)


def _reserved(owner: Any, indent: str, *, exclusive: int, most: int) -> Iterator[str]:
    if owner.reserved_range:
        ranges = ", ".join(_range(it.start, it.end - exclusive, most) for it in owner.reserved_range)
        yield f"{indent}reserved {ranges};"
    if owner.reserved_name:
        yield f"{indent}reserved {', '.join(_quoted(name) for name in owner.reserved_name)};"


def _range(start: int, end: int, most: int) -> str:
    return str(start) if start == end else f"{start} to {'max' if end >= most else end}"


def _options(options: Any, indent: str) -> Iterator[str]:
    return (f"{indent}option {name} = {value};" for name, value in _known_options(options))


def _known_options(options: Any) -> Iterator[tuple[str, str]]:
    for field, value in options.ListFields():
        if field.name in ("map_entry", "uninterpreted_option", "features") or field.message_type is not None:
            continue
        for one in value if field.is_repeated else [value]:
            yield field.name, _option_value(field, one)


def _option_value(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return str(value).lower()
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0")
    )
    return f'"{escaped}"'


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name.removeprefix(".")):
        raise InvalidSchemaError(f"{name[:100]!r} is no name")
    return name


def _camel(name: str) -> str:
    """The default JSON name of a field."""
    return re.sub(r"_+(.?)", lambda found: found.group(1).upper(), name)
