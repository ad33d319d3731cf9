"""Metadata and rule sets: kept and answered as they were sent, and filled from settings and from the version before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.registry.store.records import Content, as_json
from ottla.registry.store.state import Version


def populated(content: Content, config: Mapping[str, Any], live: Sequence[Version]) -> Content:
    """A schema as it is registered: what it does not say is as in the version before, with the settings' defaults and
    overrides. Without a text it is the text of the version before.
    """
    before = live[-1].content if live else None
    if not content.text.strip() and before is not None:
        content = content._replace(kind=before.kind, text=before.text, references=before.references)
    own_metadata = content.metadata or (before.metadata if before is not None else None)
    own_rules = content.rule_set or (before.rule_set if before is not None else None)
    metadata = _merged(config.get("defaultMetadata"), own_metadata, config.get("overrideMetadata"))
    rules = _merged(config.get("defaultRuleSet"), own_rules, config.get("overrideRuleSet"))
    return content._replace(metadata=metadata, rule_set=rules)


def same_group(config: Mapping[str, Any], content: Content, versions: Sequence[Version]) -> list[Version]:
    """Those versions whose metadata has the same value as the schema's at the settings' `compatibilityGroup`."""
    group = config.get("compatibilityGroup")
    if group is None:
        return list(versions)
    own = properties(content).get(group)
    return [version for version in versions if properties(version.content).get(group) == own]


def properties(content: Content) -> Mapping[str, Any]:
    """The properties in a schema's metadata."""
    found = json.loads(content.metadata).get("properties") if content.metadata is not None else None
    return found if isinstance(found, dict) else {}


def _merged(default: object, own: str | None, override: object) -> str | None:
    if not isinstance(default, dict) and not isinstance(override, dict):
        return own
    merged: dict[str, Any] = {}
    for part in (default, None if own is None else json.loads(own), override):
        for name, value in part.items() if isinstance(part, dict) else ():
            merged[name] = _joined(merged.get(name), value)
    return as_json(merged)


def _joined(before: Any, value: Any) -> Any:
    if isinstance(before, dict) and isinstance(value, dict):
        return before | value
    if isinstance(before, list) and isinstance(value, list):
        # Rules are told apart by their names, what is sensitive by itself.
        names = {_name(part) for part in value}
        return [part for part in before if _name(part) not in names] + value
    return before if value is None else value


def _name(part: Any) -> Any:
    return part.get("name") if isinstance(part, dict) else part
