"""Protobuf: the changes by which old messages would be misread, as Confluent's registry decides.

Fields are compared by their numbers: names, and what is added, do not matter on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.registry.errors import invalid_schema
from ottla.registry.formats.protobuf import ProtobufSchema
from ottla.registry.limits import MAX_COMPARISONS, MAX_MESSAGES
from ottla.schemas.json_text import MAX_DEPTH

_ENUM, _MESSAGES = 14, (10, 11)
_REQUIRED, _REPEATED = 2, 3
#: Types that are read as each other: https://protobuf.dev/programming-guides/proto3/#updating
_FAMILIES: Final = {
    **dict.fromkeys((3, 4, 5, 8, 13, _ENUM), "GENERAL_NUMBER"),
    **dict.fromkeys((17, 18), "SIGNED_NUMBER"),
    **dict.fromkeys((9, 12), "STRING_OR_BYTES"),
    **dict.fromkeys((7, 15), "FIXED32"),
    **dict.fromkeys((6, 16), "FIXED64"),
    1: "DOUBLE",
    2: "FLOAT",
}

_SENTENCES: Final = {
    "MESSAGE_REMOVED": "the {new} schema no longer has the message at '{path}' of the {old} one",
    "FIELD_KIND_CHANGED": "at '{path}' a scalar, an enum and a message stand for each other in the {new} and the {old} "
    "schema",
    "FIELD_SCALAR_KIND_CHANGED": "the scalar at '{path}' is written in another way in the {new} schema than in the "
    "{old} one",
    "FIELD_NAMED_TYPE_CHANGED": "the field at '{path}' has another message in the {new} schema than in the {old} one",
    "FIELD_NUMERIC_LABEL_CHANGED": "the numbers at '{path}' are repeated in only one of the {new} and the {old} schema",
    "REQUIRED_FIELD_ADDED": "the {new} schema requires the field at '{path}', which the {old} one does not have",
    "REQUIRED_FIELD_REMOVED": "the {old} schema requires the field at '{path}', which the {new} one does not have",
    "ONEOF_FIELD_REMOVED": "the {new} schema lacks a choice that the oneof at '{path}' of the {old} one has",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "the oneof at '{path}' of the {new} schema joins fields that the {old} one has "
    "side by side",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "the oneof at '{path}' of the {new} schema has taken in a field that stands alone "
    "in the {old} one",
}


def messages(reader: ProtobufSchema, writer: ProtobufSchema, *, is_reader_new: bool) -> list[str]:
    """Why `reader` would read messages of `writer` wrongly; empty if it would not."""
    comparison = _Comparison(_Types(writer), _Types(reader), is_reader_new=is_reader_new)
    comparison.types(writer.file, reader.file, "#")
    return comparison.found


class _Named(NamedTuple):
    """A message or enum, and its package."""

    descriptor: Any
    package: str
    #: Whether the schema itself defines it, and no import does.
    is_own: bool


class _Types:
    """All messages and enums that a schema knows, by full name with a dot in front."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self.by_name: dict[str, _Named] = {}
        for file in (*schema.imported.values(), schema.file):
            self._add(file, f".{file.package}" if file.package else "", file.package, is_own=file is schema.file)

    def _add(self, owner: Any, prefix: str, package: str, *, is_own: bool) -> None:
        is_file = hasattr(owner, "message_type")
        for message in owner.message_type if is_file else owner.nested_type:
            name = f"{prefix}.{message.name}"
            self.by_name[name] = _Named(message, package, is_own)
            self._add(message, name, package, is_own=is_own)
        for enum in owner.enum_type:
            self.by_name[f"{prefix}.{enum.name}"] = _Named(enum, package, is_own)


class _Comparison:
    """`old` is the writer's schema here and `new` the reader's, whichever of them is the newer one."""

    def __init__(self, old: _Types, new: _Types, *, is_reader_new: bool) -> None:
        self.found: list[str] = []
        self._old, self._new = old, new
        self._names = ("new", "old") if is_reader_new else ("old", "new")
        self._compared: set[tuple[int, int]] = set()
        self._steps = 0

    def types(self, old: Any, new: Any, path: str, depth: int = 0) -> None:
        """Compare the messages of two files, or inside of two messages."""
        if depth > MAX_DEPTH:
            raise invalid_schema("The schemas are nested too deeply to be compared")
        after = {message.name: message for message in _inner(new)}
        for message in _inner(old):
            where = f"{path}/{message.name}"
            if message.name not in after:
                self._tell("MESSAGE_REMOVED", where)
            else:
                self._messages(message, after[message.name], where)
                self.types(message, after[message.name], where, depth + 1)

    def _messages(self, old: Any, new: Any, path: str) -> None:
        self._steps += 1 + len(old.field)
        if self._steps > MAX_COMPARISONS:
            raise invalid_schema("The schemas are too large to be compared")
        if (id(old), id(new)) in self._compared:
            return
        self._compared.add((id(old), id(new)))
        before = {field.number: field for field in old.field}
        after = {field.number: field for field in new.field}
        oneofs_before, oneofs_after = _oneofs(old), _oneofs(new)
        for number, field in before.items():
            where = f"{path}/{number}"
            if number in after:
                self._fields(old, field, new, after[number], where)
            elif number in oneofs_before and oneofs_before[number] in oneofs_after.values():
                self._tell("ONEOF_FIELD_REMOVED", f"{path}/{oneofs_before[number]}/{number}")
            elif field.label == _REQUIRED:
                self._tell("REQUIRED_FIELD_REMOVED", where)
        for number, field in after.items():
            if number not in before and field.label == _REQUIRED:
                self._tell("REQUIRED_FIELD_ADDED", f"{path}/{number}")
        self._moved(before, oneofs_before, oneofs_after, path)

    def _moved(
        self, before: Mapping[int, Any], oneofs_before: Mapping[int, str], oneofs_after: Mapping[int, str], path: str
    ) -> None:
        """Fields that could be set together before, and exclude each other now."""
        for name in dict.fromkeys(oneofs_after.values()):
            members = [number for number, oneof in oneofs_after.items() if oneof == name]
            moved = [number for number in members if number in before and number not in oneofs_before]
            if len(moved) > 1:
                self._tell("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{name}")
            elif moved and any(number in oneofs_before for number in members):
                self._tell("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{name}")

    def _fields(self, old_owner: Any, old: Any, new_owner: Any, new: Any, path: str) -> None:
        old_entry, new_entry = _map_entry(old_owner, old), _map_entry(new_owner, new)
        if old_entry is not None and new_entry is not None:
            for one, other in zip(old_entry.field, new_entry.field, strict=True):
                self._types(one, other, path)
        elif (old_entry is None) != (new_entry is None):
            self._tell("FIELD_KIND_CHANGED", path)
        else:
            if (old.label == _REPEATED) != (new.label == _REPEATED) and _is_numeric(old) and _is_numeric(new):
                self._tell("FIELD_NUMERIC_LABEL_CHANGED", path)
            self._types(old, new, path)

    def _types(self, old: Any, new: Any, path: str) -> None:
        if (old.type in _MESSAGES) != (new.type in _MESSAGES):
            self._tell("FIELD_KIND_CHANGED", path)
        elif old.type not in _MESSAGES:
            if _FAMILIES[old.type] != _FAMILIES[new.type]:
                self._tell("FIELD_SCALAR_KIND_CHANGED", path)
        else:
            self._message_types(old.type_name, new.type_name, path)

    def _message_types(self, old_name: str, new_name: str, path: str) -> None:
        before, after = self._old.by_name.get(old_name), self._new.by_name.get(new_name)
        if before is None or after is None:
            if old_name != new_name:
                self._tell("FIELD_NAMED_TYPE_CHANGED", path)
            return
        if _local(old_name, before.package) != _local(new_name, after.package):
            self._tell("FIELD_NAMED_TYPE_CHANGED", path)
        elif not (before.is_own and after.is_own):
            # Messages that both files define are compared anyway.
            found = len(self.found)
            self._messages(before.descriptor, after.descriptor, path)
            if len(self.found) > found:
                self._tell("FIELD_NAMED_TYPE_CHANGED", path)

    def _tell(self, name: str, path: str) -> None:
        if len(self.found) < MAX_MESSAGES:
            new, old = self._names
            description = _SENTENCES[name].format(path=path, new=new, old=old)
            self.found.append(f'{{errorType:"{name}", description:"{description}"}}')


def _inner(owner: Any) -> list[Any]:
    inner = owner.message_type if hasattr(owner, "message_type") else owner.nested_type
    return [message for message in inner if not message.options.map_entry]


def _oneofs(message: Any) -> dict[int, str]:
    """The names of the oneofs that fields are in, by the fields' numbers."""
    return {
        field.number: message.oneof_decl[field.oneof_index].name
        for field in message.field
        if field.HasField("oneof_index") and not field.proto3_optional
    }


def _map_entry(owner: Any, field: Any) -> Any:
    """The message of keys and values, if the field is a map."""
    if field.label != _REPEATED or field.type not in _MESSAGES:
        return None
    name = field.type_name.rpartition(".")[2]
    return next((it for it in owner.nested_type if it.name == name and it.options.map_entry), None)


def _is_numeric(field: Any) -> bool:
    return field.type not in _MESSAGES and _FAMILIES[field.type] != "STRING_OR_BYTES"


def _local(name: str, package: str) -> str:
    return name.removeprefix(f".{package}.") if package else name.removeprefix(".")
