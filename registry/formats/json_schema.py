"""JSON Schema: checked against the draft's own schema by jsonschema-rs, and kept as it was sent, without spaces.

Confluent's registry keeps the order of keys, too. What a schema refers to by `$ref` comes with it, by name; nothing is
ever fetched from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema_rs

from ottla.registry.formats import InvalidSchemaError
from ottla.registry.formats.json_text import dumps, loads

_DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"
#: The base address of a schema without an `$id`. Nothing is fetched from there.
_BASE: Final = "http://schema.invalid/"
#: Those that jsonschema-rs has. It would fetch any other one from where its name points to.
_DRAFTS: Final = frozenset(
    {
        "http://json-schema.org/draft-04/schema",
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)
_MAX_POINTER_PARTS: Final = 100


class JsonSchema:
    """A parsed schema; `documents` are it and all that it refers to, by address."""

    def __init__(self, root: Any, documents: Mapping[str, Any]) -> None:
        self.root = root
        self.base = _id_of(root) or _BASE
        self._documents = {**documents, self.base: root}
        self.canonical = dumps(root)

    def normalized(self) -> str:
        return dumps(self.root, sort_keys=True)

    def formatted(self, form: str) -> str:
        return self.canonical

    def resolve(self, reference: str, base: str) -> tuple[Any, str] | None:
        """The target of a `$ref` in the document at `base`, and the target's document; None if there is no target."""
        address, pointer = urldefrag(urljoin(base, reference))
        document = self._documents.get(address, self._documents.get(address.removeprefix(_BASE)))
        if document is None:
            document = self._documents.get(reference.partition("#")[0])
        if document is None:
            return None
        found = _at(document, pointer)
        return None if found is None else (found, address)


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parse a schema whose references name other documents. Raises InvalidSchemaError."""
    root = loads(text)
    _check(root)
    documents: dict[str, Any] = {}
    for name, other in references.items():
        document = loads(other)
        for address in (name, urljoin(_BASE, name), _id_of(document)):
            if address:
                documents[address.rstrip("#")] = document
    return JsonSchema(root, documents)


def _check(root: Any) -> None:
    if not isinstance(root, (dict, bool)):
        raise InvalidSchemaError("it is neither an object nor a boolean")
    if isinstance(root, bool):
        return
    draft = root.get("$schema")
    is_known = isinstance(draft, str) and draft.rstrip("#") in _DRAFTS
    given = root if is_known else {**root, "$schema": _DRAFT_7}
    try:
        jsonschema_rs.meta.validate(given)
    except jsonschema_rs.ValidationError as error:
        where = "/".join(str(part) for part in error.instance_path)
        raise InvalidSchemaError(f"{error.message[:300]} at #/{where}") from None
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise InvalidSchemaError(str(error)[:300]) from None


def _id_of(document: Any) -> str:
    found = document.get("$id", document.get("id")) if isinstance(document, dict) else None
    return found.rstrip("#") if isinstance(found, str) else ""


def _at(document: Any, pointer: str) -> Any:
    """A part of a document, by a JSON pointer or by its `$anchor` or `$id`."""
    if not pointer:
        return document
    if not pointer.startswith("/"):
        return _anchored(document, pointer)
    found = document
    for part in pointer.split("/")[1 : _MAX_POINTER_PARTS + 1]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isascii() and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def _anchored(document: Any, name: str) -> Any:
    waiting = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if name in (part.get("$anchor"), str(part.get("$id", "")).removeprefix("#")):
                return part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return None
