"""Keys and values of `_schemas`, with the fields of Confluent's registry in its order (its classes `SchemaKey`,
`SchemaValue`, `ConfigKey`, …).

Values of other registries may have other orders and further fields: those of settings are kept, others are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

SCHEMA: Final = "SCHEMA"
CONFIG: Final = "CONFIG"
MODE: Final = "MODE"
DELETE_SUBJECT: Final = "DELETE_SUBJECT"
CLEAR_SUBJECT: Final = "CLEAR_SUBJECT"
CONTEXT: Final = "CONTEXT"
NOOP: Final = "NOOP"

AVRO: Final = "AVRO"
#: Faster than `json.loads`, which looks for an encoding and for white space: a start decodes every record.
_raw_decode: Final = json.JSONDecoder().raw_decode
_WHITE_SPACE: Final = " \t\n\r"
_NO_REFERENCES: Final[tuple[Reference, ...]] = ()
# What the classes themselves do in Python.
_new_tuple: Final = tuple.__new__
_TENANT: Final = "default"
#: A field that only this registry writes: the highest id of a context, kept when its schema is removed for good. It is
#: in a DELETE_SUBJECT record of a subject that has no versions, so that to other registries the record says nothing.
HIGHEST_ID: Final = "highestId"
HIGHEST_ID_SUBJECT: Final = "__highest_id"


class Key(NamedTuple):
    """A key of any type. `subject` is the context's name for CONTEXT, and None for the settings of everything."""

    keytype: str
    subject: str | None = None
    version: int = 0

    def encode(self) -> bytes:
        """Its bytes."""
        fields: dict[str, Any] = {"keytype": self.keytype}
        if self.keytype == CONTEXT:
            fields |= {"tenant": _TENANT, "context": self.subject}
        elif self.keytype != NOOP:
            fields["subject"] = self.subject
        if self.keytype == SCHEMA:
            fields["version"] = self.version
        fields["magic"] = 1 if self.keytype == SCHEMA else 0
        return dumped(fields)


class Reference(NamedTuple):
    """Another schema that one names."""

    name: str
    subject: str
    version: int


class Content(NamedTuple):
    """The content of a schema id."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    #: As JSON, so that equal ones are equal and take little memory; None if there is none.
    metadata: str | None = None
    rule_set: str | None = None


class SchemaValue(NamedTuple):
    """A version of a subject."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False
    guid: str | None = None

    def encode(self) -> bytes:
        """Its bytes."""
        content = self.content
        fields: dict[str, Any] = {"subject": self.subject, "version": self.version, "id": self.id}
        if self.guid is not None:
            fields["guid"] = self.guid
        if content.kind != AVRO:
            fields["schemaType"] = content.kind
        if content.references:
            fields["references"] = [reference._asdict() for reference in content.references]
        if content.metadata is not None:
            fields["metadata"] = json.loads(content.metadata)
        if content.rule_set is not None:
            fields["ruleSet"] = json.loads(content.rule_set)
        fields |= {"schema": content.text, "deleted": self.deleted}
        return dumped(fields)


def dumped(fields: Mapping[str, Any]) -> bytes:
    """JSON as Jackson writes it."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def as_json(value: Any) -> str | None:
    """Metadata or a rule set as they are kept: None if there is nothing in them."""
    if not isinstance(value, dict) or not any(part not in (None, {}, []) for part in value.values()):
        return None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _decoded(data: bytes) -> dict[str, Any]:
    text = data.decode().strip(_WHITE_SPACE)
    fields, end = _raw_decode(text)
    if end != len(text) or not isinstance(fields, dict):
        raise ValueError("no JSON object")
    return fields


def parse_key(data: bytes) -> Key | None:
    """The key of a record; None for one that this registry does not know. Raises ValueError if it is no key."""
    fields = _decoded(data)
    keytype = fields.get("keytype")
    if keytype == SCHEMA:
        key: Key = _new_tuple(Key, (SCHEMA, str(fields["subject"]), int(fields["version"])))
        return key
    if keytype == NOOP:
        return Key(NOOP)
    if keytype == CONTEXT:
        return Key(CONTEXT, str(fields["context"]))
    subject = fields.get("subject")
    if keytype in (CONFIG, MODE):
        return Key(keytype, None if subject is None else str(subject))
    if keytype in (DELETE_SUBJECT, CLEAR_SUBJECT):
        return Key(keytype, str(subject))
    return None


def parse_value(data: bytes) -> dict[str, Any]:
    """The fields of a value. Raises ValueError if it is none."""
    return _decoded(data)


def schema_value(key: Key, fields: Mapping[str, Any]) -> SchemaValue:
    """A version as a value describes it. Raises ValueError, KeyError or TypeError if it does not."""
    get = fields.get
    references, metadata, rule_set, guid = get("references"), get("metadata"), get("ruleSet"), get("guid")
    content: Content = _new_tuple(
        Content,
        (
            str(get("schemaType") or AVRO),
            str(fields["schema"]),
            _references(references) if references else _NO_REFERENCES,
            None if metadata is None else as_json(metadata),
            None if rule_set is None else as_json(rule_set),
        ),
    )
    assert key.subject is not None
    value: SchemaValue = _new_tuple(
        SchemaValue,
        (
            key.subject,
            key.version,
            int(fields["id"]),
            content,
            bool(get("deleted", False)),
            None if guid is None else str(guid),
        ),
    )
    return value


def _references(references: Sequence[Mapping[str, Any]]) -> tuple[Reference, ...]:
    return tuple(Reference(str(it["name"]), str(it["subject"]), int(it["version"])) for it in references)
