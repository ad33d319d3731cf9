"""Bodies and parameters of requests, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.registry.errors import invalid_schema, invalid_version, unprocessable
from ottla.registry.formats import AVRO
from ottla.registry.limits import MAX_ID, MAX_LISTED, MAX_REFERENCES
from ottla.registry.store.records import Content, Reference, as_json

LATEST: Final = -1


class SchemaRequest(NamedTuple):
    """A schema as a client sends it. `version` is 0 and `id` is -1 where the registry chooses."""

    content: Content
    version: int = 0
    id: int = -1


def schema_request(body: Mapping[str, Any]) -> SchemaRequest:
    """The body of a registration, a look-up or a check. Raises RegistryError 422 or 42201."""
    text = body.get("schema")
    if text is not None and not isinstance(text, str):
        raise unprocessable("schema is no text")
    kind = body.get("schemaType") or AVRO
    if not isinstance(kind, str):
        raise unprocessable("schemaType is no text")
    content = Content(
        kind.upper(), text or "", _references(body), as_json(body.get("metadata")), as_json(body.get("ruleSet"))
    )
    version, schema_id = _number(body, "version", 0), _number(body, "id", -1)
    if version < -1 or not -1 <= schema_id <= MAX_ID:
        raise invalid_schema(f"{version} is no version or {schema_id} is no id")
    return SchemaRequest(content, max(version, 0), schema_id)


def _references(body: Mapping[str, Any]) -> tuple[Reference, ...]:
    given = body.get("references") or []
    if not isinstance(given, list) or len(given) > MAX_REFERENCES:
        raise unprocessable(f"references are no list of up to {MAX_REFERENCES}")
    references = []
    for one in given:
        if not isinstance(one, dict):
            raise unprocessable("a reference is no object")
        name, subject, version = one.get("name"), one.get("subject"), one.get("version", LATEST)
        if not (isinstance(name, str) and isinstance(subject, str) and type(version) is int and name and subject):
            raise unprocessable("a reference has no name, subject and version")
        references.append(Reference(name, subject, version))
    return tuple(references)


def _number(body: Mapping[str, Any], name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int:
        raise unprocessable(f"{name} is no whole number")
    return int(value)


def version_number(text: str) -> int:
    """A version in an address: a number, or LATEST. Raises RegistryError 42202."""
    if text in ("latest", "-1"):
        return LATEST
    if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= MAX_ID:
        return int(text)
    raise invalid_version(text)


class Query(dict[str, str]):
    """The parameters of an address; of those that are given twice, the first."""

    def flag(self, name: str) -> bool:
        """Whether one is set to true."""
        return self.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """A whole number. Raises RegistryError 404, as Confluent's framework does."""
        text = self.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise unprocessable(f"{name} is no whole number") from None

    def page(self, found: list[Any]) -> list[Any]:
        """The part of a list that `offset` and `limit` ask for."""
        offset, limit = self.number("offset", 0), self.number("limit", -1)
        begin = max(0, offset)
        return found[begin : begin + (limit if 0 <= limit < MAX_LISTED else MAX_LISTED)]
