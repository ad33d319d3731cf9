"""Schemas as clients see them."""

from __future__ import annotations

import json
from typing import Any

from ottla.registry.store.state import IdEntry, Version


def of_version(version: Version, text: str | None = None, *, tells_deleted: bool = False) -> dict[str, Any]:
    """A version of a subject; `text` is its schema in another form."""
    answer: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    answer["guid"] = version.entry.guid
    answer |= content(version.entry, text)
    if tells_deleted and version.deleted:
        answer["deleted"] = True
    return answer


def content(entry: IdEntry, text: str | None = None) -> dict[str, Any]:
    """The schema of an id."""
    found = entry.content
    answer: dict[str, Any] = {"schemaType": found.kind}
    if found.references:
        answer["references"] = [reference._asdict() for reference in found.references]
    if found.metadata is not None:
        answer["metadata"] = json.loads(found.metadata)
    if found.rule_set is not None:
        answer["ruleSet"] = json.loads(found.rule_set)
    answer["schema"] = found.text if text is None else text
    return answer
